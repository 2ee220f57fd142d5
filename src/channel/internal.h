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
#include "base/process/cancel.h"
#include "base/process/clofork.h"
#include "channel/access.h"
#include "channel/protocol/packet.h"
#include "channel/ring.h"
#include "channel/transport.h"
#include "pages/landing.h"
#include "stats/stats.h"

enum op_state {
	OP_FREE,
	OP_QUEUED, /* waits for credit or room, behind earlier sends */
	OP_RTS,	   /* the RTS is sent, no CTS came */
	OP_PUT,	   /* the data is on its way */
	OP_SENT,   /* all is said; whether it has come is not known yet */
	OP_FIN,	   /* it has landed; the FIN waits for room */
	OP_POSTED, /* waits for a message */
	OP_ARRIVING, /* an eager one, of which not all is there */
	OP_MATCHED, /* waits for something to land with */
	OP_CTS,	   /* the CTS waits for room */
	OP_LAND,   /* the CTS is sent, the data lands */
	OP_REFUSE, /* it does not fit, or has come: the REFUSE, which says which,
		    * waits for room */
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
	struct list timed; /* ch->timed, or ch->lingering */
	struct op_name peer;
	uint32_t index;
	uint32_t gen;
	uint8_t state;
	bool is_recv;
	bool reported; /* its completion is out; what is left is ours */
	bool bulk_open;
	bool offered; /* a short send that the receiver fetches */
	bool lingers; /* in ch->lingering */
	uint32_t way;
	int32_t status;
	char *buf;
	uint64_t len;	  /* of the buffer */
	uint64_t msg_len; /* of the message */
	uint64_t tag;
	uint64_t mask;
	uint64_t user;
	uint64_t seq;
	uint64_t deadline; /* of ch->timed: its own; lingering: the peer's */
	struct packed *packed; /* what @buf is of, if it is no caller's; or NULL */
	uint64_t since; /* when it could be answered by a CTS */
	struct bulk bulk;
	struct bulk_piece whole; /* the buffer as a piece */
	struct op_range make[2]; /* of the buffer: to get pages while it lands */
	struct landing landing; /* unused while its cnt is 0 */
	void *area; /* of the transport's, in the place of the pool's blocks */
	bool asked; /* with an area: @writable is what pages_writable() said */
	int32_t writable;
	uint32_t desc_len; /* MATCHED: the RTS's, then what the CTS says */
	uint8_t desc[DESC_MAX];
};

/*
 * A message that came before its receive. Many may wait: each takes at most
 * ENVELOPE_LEN bytes beside eager data and a large descriptor.
 */
struct unexpected {
	struct list node; /* ch->unexpected, in the order of arrival */
	struct list by_tag; /* ch->unexpected_by_tag */
	struct list by_sender; /* ch->unexpected_by_sender, if it is an RTS */
	uint64_t tag;
	uint64_t len;
	uint64_t since;
	bool is_rts;
	struct op_name sender;
	uint32_t desc_len;
	bool arriving; /* not all of @data is there */
	uint8_t data[]; /* the message, or the RTS's descriptor */
};

/* An answer for an operation that is no more. */
struct reply {
	struct list node;
	struct packet_op body;
};

/*
 * Lists by a hash of a key, in the order in which they were added to. It grows
 * with what is in it, so that a key is found whatever else waits.
 */
#define MATCH_SMALL 64u

struct match_table {
	struct list *bucket; /* @small, or allocated */
	uint64_t factor;     /* times it, a key is its hash: odd */
	uint32_t shift;	     /* the top bits of the hash choose a bucket */
	struct list small[MATCH_SMALL];
};

/* The eager message that next() gives, if not all of it is there: it goes on at
 * @have, to a receive or to where it waits for one; or it is dropped. */
struct arriving {
	bool is;
	uint64_t tag;
	uint64_t len;
	uint64_t have;
	struct op *op;		       /* or NULL */
	uint64_t op_tag;	       /* as it was posted */
	struct unexpected *unexpected; /* or NULL */
};

struct completions {
	struct kedge_completion *v;
	uint32_t cap; /* a power of two */
	uint32_t head;
	uint32_t tail;
};

struct kedge_channel {
	const struct transport_ops *t;
	void *ctx;
	struct ring *ring;    /* the transport's, or NULL */
	const uint32_t *ours; /* zero in a forked child */
	int dead;	      /* 0, or what every new operation is told */
	bool bye;
	bool busy;	      /* polls have to do with more than new packets */
	uint32_t quick;	      /* polls that looked at new packets alone, */
	uint32_t quick_max;   /* of so many; 1: every poll looks at all */
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct kedge_channel_stats st; /* written by the channel's thread, by count() */
	struct stats_object published;

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
	struct list lingering; /* what the peer has not answered, by deadline */
	uint32_t lingering_cnt;
	struct list posted_any;
	struct match_table posted;
	uint32_t queued_cnt;
	bool answers; /* no packet was sent since the latest one came */

	struct list unexpected;
	struct match_table unexpected_by_tag;
	struct match_table unexpected_by_sender;
	uint32_t unexpected_cnt;
	uint64_t unexpected_bytes;
	struct list replies;
	uint32_t replies_cnt;
	struct arriving arriving;

	struct access access; /* its last words are what each message looks at */
	/* Messages and eager bytes sent, and those that the peer has matched. */
	uint32_t sent_cnt, sent_bytes;
	uint32_t credit_cnt, credit_bytes;
	/* Received, matched, and advertised to the peer as room for more. */
	uint32_t received_cnt, received_bytes;
	uint32_t matched_cnt, matched_bytes;
	uint32_t advertised_cnt, advertised_bytes;

	int fd;
	struct clofork timer, epoll; /* where operations can time out */
	uint32_t idle_polls; /* since something moved */
	uint32_t left_polls; /* that left a message where it was */
	bool leaves;	     /* see stays() */
	uint32_t timer_polls;
	uint64_t looked; /* at all there is to do, by the coarse clock */
	struct landing_member *pool;
	char why[256]; /* it is @dead, in words */
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

static inline uint32_t op_timed(const struct op *op)
{
	return list_empty(&op->timed) ? 0 : BULK_TIMED;
}

/* ---- match.c ---- */

void match_init(struct kedge_channel *ch);
void match_fini(struct kedge_channel *ch);
/* So many receives may be posted soon. Without memory they are found slower. */
void match_expect(struct kedge_channel *ch, uint32_t cnt);
static inline uint32_t match_buckets(const struct match_table *t)
{
	return (uint32_t)((uint64_t)1 << (64 - t->shift));
}
/* Among receives for any tag, too. @exact: the earliest for this one. */
struct op *match_posted_slow(struct kedge_channel *ch, uint64_t tag,
			     struct op *exact);
/* The earliest message for a receive; it stays. */
struct unexpected *match_unexpected(struct kedge_channel *ch, uint64_t tag,
				    uint64_t mask);
/* -EPROTO: beyond what the peer was allowed; -ENOMEM. */
int unexpected_add(struct kedge_channel *ch, const struct packet *p);
/* An eager one, before any byte of it is copied. */
int unexpected_add_arriving(struct kedge_channel *ch,
			    const struct packet_head *h,
			    struct unexpected **unexpected);
void unexpected_drop(struct kedge_channel *ch, struct unexpected *e);
struct unexpected *unexpected_find(struct kedge_channel *ch,
				   struct op_name sender);
void unexpected_drop_rts(struct kedge_channel *ch);

/* Shorter ones are there when they are seen: two copies by turns are faster. */
#define ARRIVE_MIN 12288u

/* ---- arrive.c: long eager messages, taken while they are being written ---- */

/* -EAGAIN: more of it is to come, and the packet stays. */
int arrive_begin(struct kedge_channel *ch, const struct packet_head *h,
		 const void *data);
int arrive_more(struct kedge_channel *ch, const void *raw);
/* A receive takes over the message that waits for it, as far as it is there. */
void arrive_matched(struct kedge_channel *ch, struct op *op,
		    struct unexpected *e);
/* The receive that it goes to is given up; or not, if there is no memory to keep
 * the message in. */
void arrive_leave(struct kedge_channel *ch, struct op *op, int status);
/* The rest of the message will not come. */
void arrive_dies(struct kedge_channel *ch);

/* ---- send.c ---- */

void send_queue(struct kedge_channel *ch);
int send_control(struct kedge_channel *ch, uint8_t type, const void *body,
		 size_t len);
/* FIN, REFUSE, ABORT or ABORTED to the other end of an operation. */
int send_op(struct kedge_channel *ch, uint8_t type, const struct op *op,
	    int status);
/* DATA: the message of an operation, where the CTS asked for it so. */
int send_data(struct kedge_channel *ch, const struct op *op);
void send_credit(struct kedge_channel *ch);

/* ---- progress.c ---- */

#define TIMER_POLLS 64u /* between looks at the exact clock */

/* True if something moved. No more packets are taken once @max completions
 * wait. A poll in which all stood still looks at the peer, too, if @look or the
 * coarse clock has moved. */
bool channel_progress(struct kedge_channel *ch, size_t max, bool look);

/* A message has been matched, or has come and been dropped. */
void matched(struct kedge_channel *ch, uint64_t eager_bytes);

/* With the message in one piece, @p of ours or NULL; it is the operation's if the
 * return is 0. */
int send_message(struct kedge_channel *ch, const void *buf,
		 const struct kedge_message *m, size_t len, struct packed *p,
		 uint64_t *name);
int recv_message(struct kedge_channel *ch, void *buf,
		 const struct kedge_message *m, size_t len, struct packed *p,
		 uint64_t *name);

/* ---- pieces.c: messages of several pieces, in one ---- */

struct packed {
	size_t cnt;
	struct iovec *piece; /* where a receive goes; NULL of a send */
	char *data;
};

void packed_free(struct packed *p);
/* The first @len bytes to where they go. */
int packed_scatter(struct kedge_channel *ch, const struct packed *p, size_t len);
/* The other way: what is in @v, of as many pieces as @p has, into its data. */
int packed_gather(struct kedge_channel *ch, const struct packed *p,
		  const struct iovec *v);

/* ---- rndv.c: rendezvous, from CTS on ---- */

void rndv_matched(struct kedge_channel *ch, struct op *op, uint64_t len,
		  struct op_name sender, const void *desc, size_t desc_len);
int rndv_cts(struct kedge_channel *ch, const struct packet *p);
int rndv_fin(struct kedge_channel *ch, const struct packet *p);
int rndv_refuse(struct kedge_channel *ch, const struct packet *p);
int rndv_data(struct kedge_channel *ch, const struct packet *p);
/* A piece of work for an active operation. True if something moved. */
bool rndv_step(struct kedge_channel *ch, struct op *op);

/* ---- abort.c ---- */

void give_up(struct kedge_channel *ch, struct op *op, int status);
int abort_received(struct kedge_channel *ch, const struct packet *p);
int aborted_received(struct kedge_channel *ch, const struct packet *p);
bool abort_step(struct kedge_channel *ch, struct op *op);
void send_replies(struct kedge_channel *ch);
void bulk_close(struct kedge_channel *ch, struct op *op);
/* Called before a word of the peer's ends an operation that was given up here. */
void linger_no_more(struct kedge_channel *ch, struct op *op);
/* -ETIMEDOUT: too many ABORTs wait for the peer's answer, or one for too long. */
int check_lingering(const struct kedge_channel *ch, uint64_t now);
/* No packet will come any more: everything is over. */
void channel_ends(struct kedge_channel *ch, int why);
/* The same, and not by this side: later calls are told why in words. */
void channel_dies(struct kedge_channel *ch, int why);

/* ---- way.c ---- */

/* Sets op->way and prepares op->bulk; -errno: no way works. */
int way_accept(struct kedge_channel *ch, struct op *op, const void *rts,
	       size_t rts_len);
/* Something to do while it lands: true if that was done. */
bool way_meanwhile(struct kedge_channel *ch, struct op *op);
/* All has landed: put it where it belongs. */
int way_finish(struct kedge_channel *ch, struct op *op); /* 0, or -EFAULT */
/* Give landing pages back. @quiet: the peer writes there no more. */
void way_drop(struct kedge_channel *ch, struct op *op, bool quiet);

/* ---- channel.c ---- */

int channel_gone(const struct kedge_channel *ch); /* -ECHILD, dead, or 0 */
/* -EINVAL, with what is wrong; a call without a reason would be explained by that
 * of an earlier one. */
int channel_invalid(const char *what) __attribute__((cold));
#define NO_CHANNEL "the channel is NULL"

static inline bool is_ours(const struct kedge_channel *ch)
{
	return *(const volatile uint32_t *)ch->ours;
}

/* counters.c */
extern const struct stats_kind channel_counters;

/* Of ch->st, by the channel's own thread: that of KEDGE_STATS may read it meanwhile, and finds the
 * value of before or after, which is all it wants (relaxed). One thread writes, so the load needs
 * no atomicity. */
static inline void count(uint64_t *counter, uint64_t more)
{
	__atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

#include "channel/fast.h"

#endif /* CHANNEL_INTERNAL_H */
