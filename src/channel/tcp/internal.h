/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport over TCP: what its files share.
 *
 * After the handshake (meet/handshake.h) each direction is a stream of frames:
 *
 *   packet   struct tcp_head with id 0, the packet, zeros to a multiple of 8
 *   data     struct tcp_head with the receiver's name of a flow, at most
 *            FRAME_MAX bytes of it, struct tcp_tail
 *
 * A flow is one bulk under way. Its receiver names it in the CTS, and from then
 * on reads no further than the next head, so that data is read by the kernel
 * into the pieces themselves and never copied by this process: memory that
 * cannot be written is an errno of recvmsg(), not a signal. Its sender's data
 * goes to sendmsg() from the caller's buffer; a send is complete when the kernel
 * has all of it.
 *
 * Either side gives a flow up at once and without waiting. A sender in the
 * middle of a frame sends zeros for the rest, and a tail that says so; a
 * receiver reads what still comes into no place. That is why the tail is needed:
 * the head of a frame cannot say whether all its bytes are the message's.
 *
 * All of it is the channel's one thread's.
 */
#ifndef CHANNEL_TCP_H
#define CHANNEL_TCP_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/list.h"
#include "base/process/clofork.h"
#include "channel/meet/handshake.h"
#include "channel/transport.h"

/*
 * A packet waits for the frame that has begun. So one is as long as the socket
 * takes at once, found by trying: the kernel sends four megabytes of one call
 * with a third less work than in sixteen calls. Where the socket fills up, the
 * line or the peer is slower than this processor, and short frames are free.
 *
 * With bbr they stay short: it paces, and of long calls it makes half the
 * bandwidth of short ones (docs/channel.md).
 */
#define FRAME_MIN (256u << 10)
#define FRAME_MAX (4u << 20)
/*
 * Each direction has a buffer from the start that holds the longest packet of
 * this channel (@small_len bytes of @small), so that whatever memory there is,
 * packets get through. Where they come or go faster than that holds, one of
 * these lengths takes its place until the channel rests, if there is memory.
 */
#define OUT_LEN (128u << 10)
#define IN_LEN	(PACKET_OF(TCP_EAGER_MAX) + (7u << 10))
/* So much is moved in one poll, each way, or one frame. */
#define POLL_LEN (1u << 20)
#define IOV_CNT	 64u

struct tcp_head {
	uint32_t len;
	uint32_t id; /* 0: a packet */
};

#define TAIL_WHOLE 0x6b656e64u /* all bytes of the frame are the message's */

struct tcp_tail {
	uint32_t whole; /* TAIL_WHOLE or 0 */
	uint32_t id;	/* of its head; 0 where @whole is */
};

struct tcp_flow {
	struct list node; /* t->sending or t->landing, or alone */
	struct bulk *bulk;
	uint32_t id;
	bool recv;
	bool finished; /* sent to its last byte; or all of it has landed */
	bool broken;   /* receiver: the peer has given it up */
	int err;       /* why it cannot go on, or 0 */
	uint64_t len;
	uint64_t done; /* bytes */
	uint64_t seen; /* of them, when step() looked last */
	/* The place of @done in the pieces. */
	uint32_t piece;
	uint64_t piece_off;
};

/*
 * Bytes leave in this order: the rest of a stopped flow's frame (@owed, then
 * @zeros), the rest of the frame that was begun, packets, new frames.
 */
struct tcp_out {
	char *buf;
	size_t cap;
	size_t at, end; /* packets in it */
	struct tcp_flow *flow; /* of the frame that is begun or chosen, or NULL */
	struct tcp_head head;
	struct tcp_tail tail;
	uint64_t sent; /* bytes of that frame */
	bool stuck; /* the socket was full in the middle of it */
	uint32_t frame_max; /* of the next one: FRAME_MIN to @frame_top */
	uint32_t frame_top;
	uint8_t owed[sizeof(struct tcp_tail)];
	uint32_t owed_len;
	uint64_t zeros;
};

enum in_state {
	IN_HEAD,
	IN_DATA,
	IN_TAIL,
};

struct tcp_in {
	char *buf;
	size_t cap;
	bool full; /* the last read got as much as it had room for */
	size_t at, end;
	size_t packet; /* bytes of the one that is out, with its head; or 0 */
	enum in_state state;
	uint32_t id;
	uint64_t left;	       /* IN_DATA */
	struct tcp_flow *flow; /* of the data; NULL: they are skipped */
};

struct tcp_block {
	struct list node;
	void *at;
	size_t len;
};

/*
 * @timer:   wakes a waiter to look after the peer; closed while no bytes are under
 *           way to it
 * @looked_ns: when that was done last
 * @err:     0, or why no bytes can be read or written any more
 * @polling: a poll is under way, and flush() comes
 * @later:   what is committed next can wait for a poll
 * @full:    the socket takes no more in this poll
 * @dry:     there is no more to read in this poll
 * @armed:   flush() sees to it that the descriptor shows when the socket takes
 *           more
 * @next_id: the name that was given last; @flow_cnt: names given in all
 * @finished_cnt: flows that are sent and not reported
 */
struct tcp {
	struct clofork sock, epoll, timer;
	int fd; /* of @sock */
	uint32_t host_timeout_ms;
	uint64_t looked_ns;
	int err;
	char why[96];
	bool polling, later, full, dry, armed, wants_out, second;
	uint32_t next_id, finished_cnt;
	uint64_t flow_cnt;
	uint64_t may_read, may_write;
	uint32_t packet_max;
	size_t small_len;
	char *small; /* the small buffers: @out's, then @in's */
	struct tcp_out out;
	struct tcp_in in;
	struct list sending, landing;
	struct list heap;
	uint64_t heap_used, heap_max;
};


/* A channel over a connection after its handshake. On success it owns @sock. */
int tcp_channel(struct clofork *sock, const struct kedge_channel_opts *opts,
		const struct transport_peer *peer,
		struct kedge_channel **channel);

/* Move what is in a buffer to a longer one, if there is memory. */
void tcp_grow(const struct tcp *t, char **buf, size_t *cap, size_t len,
	      size_t used);
/* Back to the small ones, where the others are empty. */
void tcp_shrink(struct tcp *t);
int tcp_open_buffers(struct tcp *t, const struct transport_peer *peer);
/* Of a channel that ends. */
void tcp_free_buffers(struct tcp *t);
/* The connection is over. The first reason stays. */
void tcp_die(struct tcp *t, int why, const char *text);

/* ---- alive.c ---- */

/* Now and then: the connection is ended if the peer's host does not answer. */
void tcp_alive_look(struct tcp *t);
/* Before a wait: see to it that it ends in time for that. */
void tcp_alive_arm(struct tcp *t);

/* ---- out.c ---- */

void tcp_out_init(struct tcp *t);
void *tcp_reserve(void *ctx, size_t len);
void tcp_commit(void *ctx, void *packet, size_t len);
/* Hand the socket what it takes; new frames only where @data. */
void tcp_pump(struct tcp *t, bool data);
/* Only what completes a frame is still sent of it. */
void tcp_out_drop(struct tcp *t, struct tcp_flow *f);
static inline bool tcp_out_pending(const struct tcp *t)
{
	const struct tcp_out *o = &t->out;

	return o->at != o->end || o->owed_len || o->zeros || o->flow;
}

/* ---- in.c ---- */

const void *tcp_next(void *ctx, size_t *len);
void tcp_release(void *ctx, const void *packet);

/* ---- bulk.c ---- */

int tcp_offer(void *ctx, struct bulk *b, void *desc, size_t *len);
int tcp_accept(void *ctx, struct bulk *b, const void *rts, size_t rts_len,
	       void *cts, size_t *cts_len);
int tcp_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len);
int tcp_step(void *ctx, struct bulk *b);
int tcp_stop(void *ctx, struct bulk *b);
void tcp_end(void *ctx, struct bulk *b);
/* The next bytes of it, at most @len: elements of @v, at most @max. */
size_t flow_iov(const struct tcp_flow *f, uint64_t len, struct iovec *v,
		size_t max);
void flow_advance(struct tcp_flow *f, uint64_t len);

/* ---- close.c ---- */

/* Committed packets go out, if need be after this call has returned. */
void tcp_close(void *ctx);
void tcp_leave(void *ctx);

#endif /* CHANNEL_TCP_H */
