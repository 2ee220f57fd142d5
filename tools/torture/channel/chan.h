/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge torture --channel. Two processes, the ranks, send each other random
 * messages in sessions, one channel each. The process that started them (the
 * supervisor) stops, kills and replaces them meanwhile, and judges each
 * session.
 *
 * The fate of a message each side writes down on the ledger, memory that
 * all three share and that outlives a rank: so a message can be missed, or
 * counted twice, whoever dies. What a message is (length, class, bytes) follows
 * from the session's seed and its number alone, which is in its tag.
 */
#ifndef TORTURE_CHAN_H
#define TORTURE_CHAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kedge/channel.h>
#include <kedge/channel_info.h>

#include "base/base.h"
#include "tools/common/util.h"

#define CHAN_MESSAGES (1u << 18) /* of a session in one direction, at most */
#define CHAN_WINDOW   32u	 /* operations under way, of each kind */
#define CHAN_WHY_LEN  200
#define CHAN_WHYS     16u
#define CHAN_LATE_NS  30000000000ull /* nothing moves for so long: it hangs */

/* ---- what a message is: plan.c ---- */

#define CHAN_CLASSES	6u
#define CHAN_CLASS_MASK ((uint64_t)0xff << 56)
#define CHAN_NO_NUMBER	(~CHAN_CLASS_MASK)

/* The mixes of lengths. */
enum chan_mix { CHAN_SMALL, CHAN_MIXED, CHAN_LARGE, CHAN_MIXES };

extern const char *const chan_mix_names[CHAN_MIXES + 1];

/** struct chan_go - a session, as the supervisor wants it
 * @seed:     of the messages
 * @session:  its number
 * @messages: that each rank sends
 * @mix:      enum chan_mix
 * @segments: most of the buffers that are not short are in segments
 * @way, @flags, @timeout_ms, @eager_max, @unexpected: the channel's options,
 *            of each rank
 */
struct chan_go {
	uint64_t seed;
	uint64_t session;
	uint32_t messages;
	uint32_t mix;
	uint32_t segments;
	uint32_t way[2];
	uint32_t flags[2];
	uint32_t timeout_ms[2];
	uint32_t eager_max[2];
	uint32_t unexpected[2];
};

/* A session of random properties. */
void chan_plan(struct util_rng *rng, uint32_t mix, struct chan_go *go);
/* Message @n of those that rank @from sends. */
uint32_t chan_class(const struct chan_go *go, unsigned int from, uint32_t n);
size_t chan_len(const struct chan_go *go, unsigned int from, uint32_t n);
size_t chan_class_max(uint32_t class);
static inline uint64_t chan_tag(uint32_t class, uint64_t n)
{
	return (uint64_t)class << 56 | n;
}
void chan_fill(const struct chan_go *go, unsigned int from, uint32_t n,
	       void *buf, size_t len);
/* The first offset that is not as chan_fill() wrote it, or -1. */
int64_t chan_verify(const struct chan_go *go, unsigned int from, uint32_t n,
		    const void *buf, size_t len);

/* ---- the ledger: ledger.c ---- */

/* The sender's word on a message. */
enum chan_out {
	OUT_NONE,
	OUT_TRIED, /* it is under way, or died with its sender */
	OUT_EAGER, /* complete at once */
	OUT_DONE,
	OUT_FAILED,
};

/* The receiver's word on it. */
enum chan_in {
	IN_NONE,
	IN_WHOLE,
	IN_SHORT, /* the buffer was too short */
	IN_FAILED,
};

/* Messages of one direction. Each field has one writer; @in is the receiver's,
 * the others are the sender's. */
struct chan_dir {
	_Atomic uint32_t closed; /* every send is over, none follows */
	_Atomic uint32_t sent;
	_Atomic uint8_t out[CHAN_MESSAGES];
	_Atomic uint8_t in[CHAN_MESSAGES];
};

/* The counts of a rank, in all sessions. */
struct chan_tally {
	uint64_t whole, bytes;
	uint64_t ways[8];
	uint64_t cancelled, timed_out, truncated, reset, faults, other;
	uint64_t forks, maps, leaks;
	uint64_t attached; /* bytes that were copied by segments */
	uint64_t notice_ns; /* the slowest to see that the peer is dead */
	uint64_t wrong;
	uint32_t why_cnt;
	char why[CHAN_WHYS][CHAN_WHY_LEN];
};

/** struct chan_ledger - what supervisor and ranks share
 * @stop:      the supervisor: begin no more messages
 * @forgets:   what a killed process has sent may be lost with it: the kernel
 *             still had it
 * @killed_ns: when the supervisor killed a rank in this session
 * @beat:      changes as long as a rank gets on
 * @left:      a rank has closed its end
 * @dir:       by the rank that sends
 */
struct chan_ledger {
	_Atomic uint32_t stop;
	bool forgets;
	_Atomic uint64_t killed_ns;
	_Atomic uint64_t beat[2];
	_Atomic uint32_t left[2];
	struct chan_tally tally[2];
	struct chan_dir dir[2];
};

/* The finds of an audit. */
struct chan_audit {
	uint64_t messages, lost, wrong;
	char why[CHAN_WHY_LEN];
};

int chan_ledger_make(struct chan_ledger **ledger);
void chan_ledger_free(struct chan_ledger *ledger);
/* Before a session. */
void chan_ledger_clear(struct chan_ledger *ledger);
/* After it: @died[i] if rank i did not live to its end. */
void chan_ledger_audit(struct chan_ledger *ledger, const bool died[2],
		       struct chan_audit *audit);
/* The first number from @from on that is complete for its sender and not here,
 * or the count of messages. */
uint32_t chan_dir_missing(struct chan_dir *d, uint32_t from);
/* The first few stay. */
void chan_note(struct chan_tally *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Something is wrong, and why. */
void chan_wrong(struct chan_tally *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- buffers: mem.c ---- */

enum chan_mem {
	MEM_NONE,
	MEM_SLOT,   /* of the operation's place, short, used again */
	MEM_MALLOC,
	MEM_HEAP,   /* kedge_channel_alloc() */
	MEM_MAP,    /* pages of its own, with neighbours that come and go */
	MEM_FLUSH,  /* the same; its end is the end of what is mapped */
	MEM_BLOCK,  /* in a segment */
};

struct chan_rank;

/** struct chan_buf - a buffer with something round it to look at
 * @at, @cap: the buffer
 * @mark:     offset of further bytes that nobody may change, or @cap
 * @base, @base_len: what was taken
 * @slot:     MEM_SLOT's memory, which stays
 */
struct chan_buf {
	enum chan_mem mem;
	uint8_t *at;
	size_t cap;
	size_t mark;
	uint8_t *base;
	size_t base_len;
	uint8_t *slot;
};

int chan_buf_init(struct chan_buf *b);
void chan_buf_fini(struct chan_buf *b);
/* 0 or -ENOMEM. */
int chan_buf_get(struct chan_rank *r, struct chan_buf *b, size_t cap);
/* Nobody changes those, either. */
void chan_buf_mark(struct chan_buf *b, size_t off);
/* Change what is mapped beside it. */
void chan_buf_disturb(struct chan_rank *r, struct chan_buf *b);
/* NULL, or what has changed that must not. */
const char *chan_buf_check(const struct chan_buf *b, bool marked);
/* Give it back, one way or the other; what it was worth is looked at before. */
void chan_buf_put(struct chan_rank *r, struct chan_buf *b);
/* Without a channel. */
void chan_buf_drop(struct chan_buf *b);
/* Give back memory of the channel's that was kept to see whether somebody still
 * writes there; @all: at once. */
void chan_kept_look(struct chan_rank *r, bool all);
/* Memory that waits to be used again. */
void chan_spares_drop(struct chan_rank *r);

/* ---- buffers in segments: block.c ---- */

/* @need bytes of a segment of this rank's, or NULL. */
uint8_t *chan_block_get(struct chan_rank *r, size_t need);
void chan_block_put(struct chan_rank *r, const uint8_t *base);
void chan_blocks_drop(struct chan_rank *r);

/* ---- the order: order.c ---- */

/* A receive: pattern CHAN_CLASSES is any message, a class is that. */
struct chan_match {
	uint64_t post;
	uint32_t n;
};

#define ORDER_KEPT 64u

/** struct chan_order - receives that have got a message, by pattern
 * @kept: the latest
 * @past: the highest message of those that are no longer kept
 */
struct chan_order {
	struct chan_match kept[CHAN_CLASSES + 1][ORDER_KEPT];
	uint32_t cnt[CHAN_CLASSES + 1];
	struct chan_match past[CHAN_CLASSES + 1];
};

/* ---- a rank: rank.c, send.c, recv.c ---- */

struct chan_send {
	bool busy;
	uint32_t n;
	uint64_t op;
	struct chan_buf buf;
};

/* @below: a message that has overtaken this receive's, if it gets a later one. */
struct chan_recv {
	bool busy;
	uint32_t pattern; /* a class, CHAN_CLASSES for any, or PATTERN_ONE */
	uint32_t n;	  /* of PATTERN_ONE */
	uint64_t post;
	uint64_t op;
	uint64_t below;
	struct chan_buf buf;
};

#define PATTERN_ONE (CHAN_CLASSES + 1)

#define CHAN_SPARES   4
#define CHAN_KEPT     8
#define CHAN_CHILDREN 4
#define CHAN_BLOCKS   8

struct chan_spare {
	uint8_t *base;
	size_t len;
};

/* Memory of the channel's after its operation, until @until. */
struct chan_kept {
	uint8_t *base;
	size_t len;
	uint64_t until;
};

/* @filled: with bytes that nobody changes. */
struct chan_block {
	uint8_t *base;
	size_t len;
	struct kedge_segment *segment;
	bool used;
	bool filled;
};

struct chan_rank {
	struct chan_ledger *ledger;
	const char *transport;
	unsigned int me;
	int fd; /* to the supervisor */
	struct chan_tally *tally;
	struct util_rng rng;
	/* the session's */
	struct chan_go go;
	struct kedge_channel *ch;
	struct chan_dir *out, *in;
	uint32_t next_out; /* the next message sent */
	uint32_t next_in;  /* what the next receive is posted for */
	uint32_t missing;  /* all before are settled */
	uint64_t posts;
	uint64_t settled;  /* what was written to the ledger */
	uint32_t owed;	   /* messages whose receives were given up */
	uint32_t hold;	   /* polls in which no receive is posted */
	uint32_t sends, recvs; /* under way */
	struct chan_send send[CHAN_WINDOW];
	struct chan_recv recv[CHAN_WINDOW];
	struct chan_order order;
	struct chan_spare spare[CHAN_SPARES];
	struct chan_kept kept[CHAN_KEPT];
	struct chan_block block[CHAN_BLOCKS];
	pid_t child[CHAN_CHILDREN];
	uint32_t sessions;
	unsigned int maps; /* of this process after its first sessions */
};

/* A rank's main; @arg is its struct chan_rank with ledger and me set. */
void chan_rank_child(int fd, void *arg);

void chan_send_some(struct chan_rank *r);
void chan_send_over(struct chan_rank *r, const struct kedge_completion *c);
void chan_send_cancel(struct chan_rank *r);
void chan_recv_some(struct chan_rank *r);
void chan_recv_over(struct chan_rank *r, const struct kedge_completion *c);
void chan_recv_cancel(struct chan_rank *r);
/* Give up receives whose message does not come; @all: those for a class, too. */
void chan_recv_orphans(struct chan_rank *r, bool all);
/* The peer is gone: take what had come. */
void chan_recv_last(struct chan_rank *r);
/* When the peer of @r was killed, of clock_ns(), or 0. */
uint64_t chan_killed_at(const struct chan_rank *r);
/* An operation's error, which is counted; unheard-of ones are wrong. */
void chan_failed(struct chan_rank *r, const char *what, int status);
/* The receive got message @n of its class. */
void chan_order_add(struct chan_rank *r, const struct chan_recv *v,
		    uint32_t class, uint32_t n);

/* ---- leak.c: what a process has ---- */

/** struct chan_owned - what a process has
 * @fds:     descriptors
 * @threads: of it
 * @maps:    mappings that can be used
 * @areas:   of them, those of channels
 */
struct chan_owned {
	unsigned int fds, threads, maps, areas;
};

void chan_owned_read(struct chan_owned *o);
/* A sanitizer's own check, where there is one: what it found. */
int chan_leaks(void);

/* Once in @n times. */
static inline bool chan_once(struct chan_rank *r, uint64_t n)
{
	return !util_rng_below(&r->rng, n);
}

/* ---- the supervisor: supervisor.c, report.c ---- */

struct chan_opts {
	uint64_t messages; /* 0: as many as fit into the time */
	double seconds;	   /* 0: as long as it takes */
	uint64_t seed;
	uint32_t mix;
	const char *transport; /* "shm", or what net_pair() takes */
};

struct chan_result {
	uint64_t sessions, messages, deaths, stops;
	uint64_t lost, wrong, crashes, hangs, leaks;
	uint64_t elapsed_ns;
	struct chan_tally sum;
};

/* The whole test: an exit status, with the report printed. */
int chan_torture(const struct chan_opts *opts);
int chan_report(const struct chan_opts *opts, const struct chan_result *res);

#endif /* TORTURE_CHAN_H */
