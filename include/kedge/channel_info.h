/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel's properties, its counters, and the cost it expects of a message.
 */
#ifndef KEDGE_CHANNEL_INFO_H
#define KEDGE_CHANNEL_INFO_H

#include <kedge/channel.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct kedge_channel_info - what a channel is
 * @size:      sizeof(struct kedge_channel_info), set by the caller
 * @ways:      bit 1 << KEDGE_WAY_x for each way that works here
 * @transport: its name, "shm" for instance; static
 * @why:       what is missing for the other ways, in words; the channel's
 * @peer_pid:  the peer's process, 0 where it is on another host
 * @eager_max: longest message sent eagerly, in bytes
 */
struct kedge_channel_info {
	uint32_t size;
	uint32_t ways;
	const char *transport;
	const char *why;
	uint32_t peer_pid;
	uint32_t eager_max;
};

/**
 * kedge_channel_info() - describe a channel
 * @channel: borrowed
 * @info:    filled; @info->size set
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0, or -EINVAL if an argument is NULL or @info->size is too small.
 */
KEDGE_API int kedge_channel_info(struct kedge_channel *channel,
				 struct kedge_channel_info *info);

/**
 * struct kedge_channel_stats - what a channel has done since it was opened
 * @size:        sizeof(struct kedge_channel_stats), set by the caller
 * @sent:        messages sent, complete or not
 * @received:    messages received whole
 * @bytes_sent:  bytes of the former
 * @bytes_received: bytes of the latter
 * @failed:      operations that completed with an error
 * @unexpected:  messages that came before their receive
 * @ways:        messages received by each enum kedge_way
 * @swapped:     bytes whose pages were swapped
 * @copied:      bytes copied out of landing pages
 * @pool_empty:  times the landing pool had no pages
 * @cts_ns:      time from seeing an RTS or posting its receive, whichever was
 *               later, to sending the CTS, in all
 * @cts_cnt:     CTS sent
 * @attached:    (shared memory) bytes copied out of segments of the peer's that this side
 *               has attached, and into them
 */
struct kedge_channel_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t sent;
	uint64_t received;
	uint64_t bytes_sent;
	uint64_t bytes_received;
	uint64_t failed;
	uint64_t unexpected;
	uint64_t ways[8];
	uint64_t swapped;
	uint64_t copied;
	uint64_t pool_empty;
	uint64_t cts_ns;
	uint64_t cts_cnt;
	uint64_t attached;
};

/**
 * kedge_channel_stats() - counters
 * @channel: borrowed
 * @stats:   filled; @stats->size set
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0, or -EINVAL if an argument is NULL or @stats->size is too small.
 */
KEDGE_API int kedge_channel_stats(struct kedge_channel *channel,
				  struct kedge_channel_stats *stats);

/** KEDGE_COST_FRESH - the buffer was never touched: it has no pages yet */
#define KEDGE_COST_FRESH (1u << 0)

/**
 * kedge_channel_cost() - what a message is expected to cost
 * @channel: borrowed
 * @way:     an enum kedge_way
 * @len:     bytes
 * @flags:   KEDGE_COST_*
 * @ns:      set on success: time until it is received, in nanoseconds
 *
 * By the model of shared memory, whatever the transport, that is measured once
 * in a process: now, or before, when a message of 256 KiB or more came. That
 * takes some milliseconds. KEDGE_WAY_AUTO takes the least.
 *
 * Threads: and Fork: as kedge_channel_open_shm().
 *
 * Return: 0, -EINVAL if an argument is NULL or @way is none, or -EOPNOTSUPP for a
 * way that does not work here, or not for that length.
 */
KEDGE_API int kedge_channel_cost(struct kedge_channel *channel, uint32_t way,
				 uint64_t len, uint32_t flags, uint64_t *ns);

/**
 * kedge_way_name() - a way's name
 * @way: an enum kedge_way
 *
 * Threads: any.
 *
 * Return: "auto", "eager", "direct", "swap", "copy" or "register", static; NULL
 * for what is none.
 */
KEDGE_API const char *kedge_way_name(uint32_t way);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_CHANNEL_INFO_H */
