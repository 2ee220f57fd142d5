/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside a channel. It is one thread's at a time, so there are no locks here.
 *
 * An operation is in one list by its state:
 *
 *   send   QUEUED -> (eager) done
 *          QUEUED -> RTS -> PUT -> FIN -> done
 *   recv   POSTED -> (eager) done
 *          POSTED -> MATCHED -> CTS -> LAND -> done
 *                    MATCHED -> REFUSE -> done
 *   either, given up here:        STOP -> LINGER -> done
 *   either, given up by the peer: ANSWER -> done
 *
 * docs/channel.md draws it; tests/model/channel.pml is checked for what it
 * promises.
 */
#ifndef CHANNEL_INTERNAL_H
#define CHANNEL_INTERNAL_H

#include <sys/types.h>

#include <kedge/channel_info.h>

#include "base/copy.h"
#include "base/list.h"
#include "channel/packet.h"
#include "channel/pool.h"
#include "channel/transport.h"

enum op_state {
	OP_FREE,
	OP_QUEUED, /* waits for credit or room, behind earlier sends */
	OP_RTS,	   /* the RTS is sent, no CTS came */
	OP_PUT,	   /* the data is on its way */
	OP_FIN,	   /* it has landed; the FIN waits for room */
	OP_POSTED, /* waits for a message */
	OP_MATCHED, /* waits for something to land with */
	OP_CTS,	   /* the CTS waits for room */
	OP_LAND,   /* the CTS is sent, the data lands */
	OP_REFUSE, /* it does not fit; the REFUSE waits for room */
	OP_STOP,   /* given up: the transport lets go, then the ABORT is sent */
	OP_LINGER, /* the ABORT is sent; its answer ends it */
	OP_ANSWER, /* given up by the peer: the transport lets go, then ABORTED */
};

struct op_range {
	uint64_t from;
	uint64_t to;
};

struct op {
	struct list node;  /* ch->queued, posted_any, a bucket, active or idle */
	struct list timed; /* ch->timed */
	struct op_name peer;
	uint32_t index;
	uint32_t gen;
	uint8_t state;
	bool is_recv;
	bool reported; /* its completion is out; what is left is ours */
	bool bulk_open;
	uint32_t way;
	int32_t status;
	char *buf;
	uint64_t len;	  /* of the buffer */
	uint64_t msg_len; /* of the message */
	uint64_t tag;
	uint64_t mask;
	uint64_t user;
	uint64_t seq;
	uint64_t deadline;
	uint64_t since; /* when it could be answered by a CTS */
	struct bulk bulk;
	struct bulk_piece whole; /* the buffer as a piece */
	struct op_range make[2]; /* of the buffer: to get pages while it lands */
	struct landing landing; /* its cnt is 0 if there is none */
	uint32_t desc_len; /* MATCHED: the RTS's, then what the CTS says */
	uint8_t desc[DESC_MAX];
};

/* A message that came before its receive. */
struct early {
	struct list node; /* ch->early, in the order of arrival */
	struct list hash; /* ch->early_by_tag */
	uint64_t tag;
	uint64_t len;
	uint64_t since;
	bool is_rts;
	struct op_name sender;
	uint32_t desc_len;
	uint8_t data[]; /* the message, or the RTS's descriptor */
};

/* An answer for an operation that is no more. */
struct reply {
	struct list node;
	struct packet_op body;
};

#define BUCKETS 64u

struct completions {
	struct kedge_completion *v;
	uint32_t cap; /* a power of two */
	uint32_t head;
	uint32_t tail;
};

struct kedge_channel {
	const struct transport_ops *t;
	void *ctx;
	const uint32_t *ours; /* zero in a forked child */
	int dead;	      /* 0, or what every new operation is told */
	bool bye;
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct kedge_channel_stats st;

	struct op **slab; /* operations, OPS_SLAB each */
	uint32_t slab_cnt;
	struct list free_ops;
	uint32_t live_ops;
	uint64_t seq;
	struct completions done;

	struct list queued;
	struct list active;
	struct list idle;
	struct list timed;
	struct list posted_any;
	struct list posted[BUCKETS];
	uint32_t posted_any_cnt;

	struct list early;
	struct list early_by_tag[BUCKETS];
	uint32_t early_cnt;
	uint64_t early_bytes;
	struct list replies;
	uint32_t replies_cnt;

	/* What we sent and what of it the peer has matched. */
	uint32_t sent_cnt, sent_bytes;
	uint32_t credit_cnt, credit_bytes;
	/* What came, what of it is matched, and what we told the peer. */
	uint32_t came_cnt, came_bytes;
	uint32_t matched_cnt, matched_bytes;
	uint32_t told_cnt, told_bytes;

	int fd;
	int timer_fd; /* or -1 */
	uint32_t idle_polls;
	uint32_t timer_polls;
	struct pool_landing *pool;
};

/* ---- ops.c: operations and completions ---- */

int ops_init(struct kedge_channel *ch);
void ops_fini(struct kedge_channel *ch);
/* Room for one more operation and its completion. */
int ops_room(struct kedge_channel *ch);
struct op *op_find(struct kedge_channel *ch, struct op_name name);
static inline struct op_name op_name(const struct op *op)
{
	return (struct op_name){ op->index, op->gen };
}
void op_move(struct kedge_channel *ch, struct op *op, struct list *list,
	     enum op_state state);

/* ---- match.c ---- */

void match_init(struct kedge_channel *ch);
void match_fini(struct kedge_channel *ch);
/* Among receives for any tag, too. @exact: the earliest for this one. */
struct op *match_posted_slow(struct kedge_channel *ch, uint64_t tag,
			     struct op *exact);
/* The earliest message for a receive; it stays. */
struct early *match_early(struct kedge_channel *ch, uint64_t tag,
			  uint64_t mask);
/* -EPROTO: beyond what the peer was allowed; -ENOMEM. */
int early_add(struct kedge_channel *ch, const struct packet *p);
void early_drop(struct kedge_channel *ch, struct early *e);
struct early *early_find(struct kedge_channel *ch, struct op_name sender);
void early_drop_rts(struct kedge_channel *ch);

/* ---- send.c ---- */

void send_queue(struct kedge_channel *ch);
int send_control(struct kedge_channel *ch, uint8_t type, const void *body,
		 size_t len);
/* FIN, REFUSE, ABORT or ABORTED to the other end of an operation. */
int send_op(struct kedge_channel *ch, uint8_t type, const struct op *op,
	    int status);
void send_credit(struct kedge_channel *ch);

/* ---- progress.c ---- */

#define TIMER_POLLS 64u /* between looks at the clock */

/* True if something moved. No more packets are taken once @max completions
 * wait; the peer is looked at after @idle_max of them in which nothing moved. */
bool channel_progress(struct kedge_channel *ch, size_t max, uint32_t idle_max);

/* A message has been matched, or has come and been dropped. */
void matched(struct kedge_channel *ch, uint64_t eager_bytes);

/* ---- rndv.c: rendezvous, from CTS on ---- */

void rndv_matched(struct kedge_channel *ch, struct op *op, uint64_t len,
		  struct op_name sender, const void *desc, size_t desc_len);
int rndv_cts(struct kedge_channel *ch, const struct packet *p);
int rndv_fin(struct kedge_channel *ch, const struct packet *p);
int rndv_refuse(struct kedge_channel *ch, const struct packet *p);
/* A piece of work for an active operation. True if something moved. */
bool rndv_step(struct kedge_channel *ch, struct op *op);

/* ---- abort.c ---- */

void give_up(struct kedge_channel *ch, struct op *op, int status);
int abort_came(struct kedge_channel *ch, const struct packet *p);
int aborted_came(struct kedge_channel *ch, const struct packet *p);
bool abort_step(struct kedge_channel *ch, struct op *op);
void send_replies(struct kedge_channel *ch);
void bulk_close(struct kedge_channel *ch, struct op *op);
/* No packet will come any more: everything is over. */
void channel_dies(struct kedge_channel *ch, int why);

/* ---- way.c ---- */

/* Sets op->way and prepares op->bulk; -errno: none works. */
int way_accept(struct kedge_channel *ch, struct op *op, const void *rts,
	       size_t rts_len);
/* Something to do while it lands: true if that was done. */
bool way_meanwhile(struct kedge_channel *ch, struct op *op);
/* All has landed: put it where it belongs. */
void way_finish(struct kedge_channel *ch, struct op *op);
/* Landing pages back. @quiet: nobody writes there any more. */
void way_drop(struct kedge_channel *ch, struct op *op, bool quiet);

/* ---- channel.c ---- */

int channel_gone(const struct kedge_channel *ch); /* -ECHILD, dead, or 0 */

static inline bool is_ours(const struct kedge_channel *ch)
{
	return *(const volatile uint32_t *)ch->ours;
}

#include "channel/fast.h"

#endif /* CHANNEL_INTERNAL_H */
