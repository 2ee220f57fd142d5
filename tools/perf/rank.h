/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of a pair of kedge perf: the side that moves its messages, what is in
 * them, and what a batch of them does.
 */
#ifndef TOOLS_PERF_RANK_H
#define TOOLS_PERF_RANK_H

#include <stdatomic.h>

#include <kedge/channel.h>
#include <kedge/channel_info.h>

#include "base/base.h"
#include "tools/common/list.h"
#include "tools/common/plot.h"
#include "tools/common/proc.h"
#include "tools/perf/ucx_build.h"

#define PERF_WHY_LEN	200
#define PERF_PATH_LEN	200
#define PERF_BYTES_MAX	((uint64_t)1 << 30)
#define PERF_WINDOW_MAX 1024u
/* Messages under way are no more bytes than that, but two always. */
#define PERF_WINDOW_BYTES (32ull << 20)
/* The longest message that may go eagerly. */
#define PERF_EAGER_MAX (32u << 10)
/* From here on malloc() maps a buffer of its own, and free() unmaps it. */
#define PERF_MAP_BYTES (128u << 10)

/**
 * enum perf_buffers - where messages are sent from and received
 * @PERF_MALLOC: buffers of malloc(), used again and again
 * @PERF_HEAP:   the same, of kedge_channel_alloc() or the peer's like
 * @PERF_FRESH:  malloc, receive, use, free for each message
 * @PERF_SEGMENT: as PERF_MALLOC, but whole pages, and each of kedge's is a segment
 */
enum perf_buffers {
	PERF_MALLOC,
	PERF_HEAP,
	PERF_FRESH,
	PERF_SEGMENT,
	PERF_BUFFERS,
};

extern const char *const perf_buffers_names[PERF_BUFFERS + 1];

/**
 * enum perf_phase - what a batch does
 * @PERF_PINGPONG: a message there, a message back
 * @PERF_STREAM:   messages there, a window of them at a time, and one back
 */
enum perf_phase {
	PERF_PINGPONG,
	PERF_STREAM,
	PERF_PHASES,
};

/* ---- sides ---- */

/** struct perf_op - an operation under way; the side sets it
 * @done:   it is complete
 * @status: 0 or a negative errno
 * @len:    of the message
 */
struct perf_op {
	bool done;
	int32_t status;
	uint64_t len;
};

/** struct perf_counts - a side's counters; they stay 0 where it has none
 * @ways:    messages received by each enum kedge_way
 * @cts_ns:  from RTS to CTS, in all
 * @cts_cnt: CTS sent
 */
struct perf_counts {
	uint64_t ways[8];
	uint64_t cts_ns;
	uint64_t cts_cnt;
};

/** struct perf_facts - what a side says of its channel
 * @transport: its name
 * @version:   of the library
 * @ways:      bit 1 << KEDGE_WAY_x for each that works
 * @eager_max: longest eager message
 * @missing:   why ways are missing
 * @build:     PERF_BUILD_* (UCX)
 * @path:      the file that the library was loaded from (peers)
 */
struct perf_facts {
	char transport[32];
	char version[32];
	uint32_t ways;
	uint32_t eager_max;
	char missing[PERF_WHY_LEN];
	uint32_t build;
	char path[PERF_PATH_LEN];
};

/** struct perf_place - where the other end is
 * @transport: "shm", or a provider of libfabric's
 * @node:      path of a socket, or a host; NULL is the transport's default
 * @service:   a port; NULL is the default
 */
struct perf_place {
	char *transport;
	char *node;
	char *service;
};

struct perf_side;

/** struct perf_pair_cfg - a pair as the command line has it
 * @side:       who is measured
 * @name:       of the way, what is in UCX_TLS, or libfabric's provider
 * @way:        enum kedge_way (kedge)
 * @heap_bytes: of kedge_channel_alloc() (kedge)
 * @place:      borrowed (kedge)
 * @prefix:     where it is installed, borrowed; NULL: where the loader finds it
 *              (UCX)
 */
struct perf_pair_cfg {
	const struct perf_side *side;
	char name[32];
	uint32_t way;
	uint64_t heap_bytes;
	const struct perf_place *place;
	const char *prefix;
};

/**
 * struct perf_side - a library that moves messages
 * @name:     as --peer has it
 * @open:     a channel to the other rank. @fd is a stream socket to it, the
 *            side's from now on. 0, or a negative errno with the reason in @why
 * @segments: it attaches memory that is a segment
 * @alloc, @free: memory that suits it best
 * @send:     1 if it is complete, else 0, and @op->done tells; or a negative
 *            errno
 * @recv:     0, and @op->done tells; or a negative errno
 * @progress: what was done, 0 for nothing, or a negative errno
 * @counts:   its counters so far; NULL if it has none
 * @cost:     what a message is expected to cost; NULL if it has no model
 *
 * All but open are called through these pointers on every side.
 */
struct perf_side {
	const char *name;
	bool segments;
	int (*open)(const struct perf_pair_cfg *cfg, unsigned int rank, int fd,
		    void **ctx, struct perf_facts *facts,
		    char why[PERF_WHY_LEN]);
	void (*close)(void *ctx);
	void *(*alloc)(void *ctx, size_t len);
	void (*free)(void *ctx, void *p);
	int (*send)(void *ctx, const void *buf, size_t len, struct perf_op *op);
	int (*recv)(void *ctx, void *buf, size_t len, struct perf_op *op);
	int (*progress)(void *ctx);
	void (*counts)(void *ctx, struct perf_counts *counts);
	int (*cost)(void *ctx, uint32_t way, uint64_t len, uint32_t flags,
		    uint64_t *ns);
};

/* The calls that every side has, by the names that each gives its functions. */
#define PERF_SIDE_CALLS                                          \
	.open = side_open, .close = side_close,                  \
	.alloc = side_alloc, .free = side_free,                  \
	.send = side_send, .recv = side_recv,                    \
	.progress = side_progress

extern const struct perf_side perf_kedge;
/* NULL where this build has none. */
const struct perf_side *perf_ucx(void);
const struct perf_side *perf_libfabric(void);
/* Give the other rank this address, and take its, of @max bytes at most, by the
 * stream socket @fd: 0, or a negative errno. *@theirs is the caller's to free. */
int perf_swap_addresses(int fd, const void *mine, size_t len, size_t max,
			void **theirs);
/* perf_kedge's context of a channel that is open, which it then owns; NULL if
 * there is no memory. */
void *perf_kedge_wrap(struct kedge_channel *ch, struct perf_facts *facts);
/* The options of a channel for a pair. */
void perf_kedge_opts(const struct perf_pair_cfg *cfg,
		     struct kedge_channel_opts *opts);

/* ---- where channels are opened: open.c ---- */

int perf_listen(const struct perf_place *at,
		const struct kedge_channel_opts *opts,
		struct kedge_listener **listener);
int perf_connect(const struct perf_place *at,
		 const struct kedge_channel_opts *opts, int timeout_ms,
		 struct kedge_channel **ch);
/* Both ends on this host, over the socket @fd, which it owns on success. */
int perf_open_pair(const struct perf_place *at, unsigned int rank, int fd,
		   const struct kedge_channel_opts *opts,
		   struct kedge_channel **ch);

/* ---- contents of messages: check.c ---- */

/* Behind each buffer, to see what writes there. */
#define PERF_GUARD 64u

/* Fill @buf with what message @seq of @seed has, and the guard behind it. */
void perf_fill(void *buf, size_t len, uint64_t seed, uint64_t seq);
void perf_fill_guard(void *buf, size_t len);
/* The first offset that is not as perf_fill() wrote it, or -1. */
int64_t perf_verify(const void *buf, size_t len, uint64_t seed, uint64_t seq);
/* Read every byte, as 64-bit words. */
uint64_t perf_use(const void *buf, size_t len);

/* ---- batches: pattern.c ---- */

/* The kinds of a request to a rank. */
enum perf_kind { PERF_RUN, PERF_COST };

#define PERF_CHECK (1u << 0) /* every byte of every message is verified */
#define PERF_USE   (1u << 1) /* the receiver reads what it got */

/** struct perf_req - a batch, or a question, to a rank
 * @kind:    enum perf_kind
 * @phase:   enum perf_phase
 * @buffers: enum perf_buffers
 * @flags:   PERF_*, or KEDGE_COST_*
 * @window:  messages under way
 * @way:     whose cost
 * @bytes:   of a message
 * @warm:    messages before the clock starts
 * @cnt:     messages
 * @seed:    of the contents
 */
struct perf_req {
	uint32_t kind;
	uint32_t phase;
	uint32_t buffers;
	uint32_t flags;
	uint32_t window;
	uint32_t way;
	uint64_t bytes;
	uint64_t warm;
	uint64_t cnt;
	uint64_t seed;
};

/** struct perf_rep - what became of it
 * @rc:        0 or a negative errno
 * @preempted: the rank lost its CPU meanwhile
 * @ns:        for a message (rank 0), or its cost
 * @faults:    page faults, for a message
 * @wrong:     messages that came out wrong, warm-up included
 * @counts:    of the batch
 * @facts:     in the first message, which says that the channel is open
 * @why:       what failed, or the first wrong message
 */
struct perf_rep {
	int32_t rc;
	uint32_t preempted;
	double ns;
	double faults;
	uint64_t wrong;
	struct perf_counts counts;
	struct perf_facts facts;
	char why[PERF_WHY_LEN];
};

/** struct perf_moved - how far a rank that is a child has come, for its parent
 * @cnt: messages received so far
 *
 * Each rank has a cache line of its own, so that it costs a message next to nothing.
 */
struct perf_moved {
	_Alignas(64) _Atomic uint64_t cnt;
};

struct perf_buffer {
	void *p;
	struct kedge_segment *segment; /* or NULL */
};

/** struct perf_rank - one end of a pair
 * @moved:  shared with the parent; NULL where this process has no such
 * @yield:  there are fewer CPUs than ranks: give it away while waiting
 * @req:    whose buffers these are, and what is being done
 * @send, @recv: buffers, @slots of each that has any
 * @sent, @got: operations of each slot
 * @end, @end_byte: what ends a stream
 * @seq:    of the next message sent, and received
 * @broken: an operation failed, others may be under way
 * @sink:   keeps the compiler from not using
 */
struct perf_rank {
	const struct perf_side *side;
	void *ctx;
	unsigned int rank;
	struct perf_moved *moved;
	bool yield;
	struct perf_req req;
	uint32_t send_slots;
	uint32_t recv_slots;
	struct perf_buffer send[PERF_WINDOW_MAX];
	struct perf_buffer recv[PERF_WINDOW_MAX];
	struct perf_op sent[PERF_WINDOW_MAX];
	struct perf_op got[PERF_WINDOW_MAX];
	struct perf_op end;
	char end_byte;
	uint64_t seq[2];
	uint64_t wrong;
	bool broken;
	volatile uint64_t sink;
	char why[PERF_WHY_LEN];
};

/* Do a batch, answer a question. */
void perf_rank_run(struct perf_rank *r, const struct perf_req *req,
		   struct perf_rep *rep);
/* NULL, or what is wrong with a request from another host. */
const char *perf_req_check(const struct perf_req *req);
/* Close the side and free the buffers. */
void perf_rank_fini(struct perf_rank *r);
/* Prepares a process for the sides that it opens. */
void perf_rank_prepare(void);

/* Buffers: buffer.c */
int perf_buffers_make(struct perf_rank *r, const struct perf_req *req);
void perf_buffers_free(struct perf_rank *r);

#endif /* TOOLS_PERF_RANK_H */
