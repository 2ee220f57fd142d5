/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel over something that sends messages into posted buffers and writes into
 * registered memory: all of it that does not depend on the port (port.h).
 *
 * Packets are sends into buffers that the peer has posted. A buffer holds one or
 * several, each with a head of ours before the channel's: what a poll commits
 * goes together. A buffer is only sent for a credit, which the peer gives for
 * each one that it has posted: so no packet waits in the network for a buffer,
 * and no RMA write behind it. HEAD_CREDIT alone needs no credit; at most two of
 * them are under way, and there are buffers for them.
 *
 * Bulk data are RMA writes of the sender. What the channel sends after the last
 * one has completed here is received after all of them have landed: by the
 * order of a connection, or because each completes only when it
 * has landed, as over reliable datagrams always.
 *
 * A flow is one bulk under way. The receiver names it; the sender names it as
 * the receiver did. To stop one the receiver sends HEAD_STOP, and the sender
 * answers HEAD_STOPPED when it has no write of that name under way and will
 * never have one. Until then registrations stay: a port may be in the
 * middle of a write that it looked up before the registration ended.
 *
 * All of it is the channel's one thread's.
 */
#ifndef CHANNEL_RDMA_INTERNAL_H
#define CHANNEL_RDMA_INTERNAL_H

#include "base/base.h"

#include <sys/uio.h>

#include <kedge/cache.h>

#include "base/list.h"
#include "channel/cost.h"
#include "channel/rdma/desc.h"
#include "channel/transport.h"

/* Buffers posted for packets, and those beyond them for HEAD_CREDIT. */
#define RX_CNT	 64u
#define RX_SPARE 4u
/* Buffers to send from, and those that reserve() leaves to the transport. */
#define TX_CNT	 64u
#define TX_SPARE 8u
#define RDMA_EAGER_MAX  (32u * 1024)
#define RDMA_PACKET_MAX (RDMA_EAGER_MAX + 1024)
#define BUF_LEN	 (RDMA_PACKET_MAX + 64u)
/* Packets share a buffer up to here. */
#define BATCH_LEN 2048u
/* Writes under way in all, and of one flow. */
#define WRITE_CNT 16u
#define FLOW_WRITES 8u
#define CHUNK_LEN ((uint64_t)512 * 1024)
/* Posted and not done: a packet waits behind all of it. */
#define FLIGHT_LEN ((uint64_t)1024 * 1024)
/* So much agreed on is enough to go on with while more is. */
#define AHEAD_CNT 8u
#define AHEAD_LEN ((uint64_t)512 * 1024)
/* The window of a flow that is copied out: what the peer writes ahead. */
#define SLOT_LEN ((uint64_t)256 * 1024)
#define SLOT_CNT 8u
/* Shorter pieces are not worth a window. */
#define WINDOW_MIN ((uint64_t)64 * 1024)
/* Pages of ours for what lands at the ends of pieces. */
#define EDGE_CNT 64u
/* The time that a peer may take to let go of a flow, and to take messages. */
#define STOP_NS	 (5 * 1000000000ull)
#define FLUSH_NS (2 * 1000000000ull)
#define BYE_NS	 (200 * 1000000ull)
/* Flows that were stopped before they began: as many as there can be CTS here
 * that we have not looked at, of 120 bytes at least. */
#define STOPPED_CNT 2048u
/* Questions under way: fewer than the answers that the peer keeps. */
#define STOPS_MAX 256u

enum rdma_kind {
	RDMA_RX,
	RDMA_TX,
	RDMA_WRITE,
	RDMA_READ,
	RDMA_OWN, /* the port's own */
};

/* The target of every completion's pointer. */
struct rdma_op {
	void *room[8]; /* the port's */
	enum rdma_kind kind;
};

struct rdma_buf {
	struct rdma_op op;
	struct list node; /* free_tx, ready, posted or came; or being sent */
	size_t len; /* posted: 0, or it has come, after one that has not */
	size_t at; /* came: of the head of the next packet */
	char *data;
};

enum head_kind {
	HEAD_PACKET = 1, /* the channel's packet of @id bytes follows */
	HEAD_CREDIT,	 /* credit alone */
	HEAD_STOP,	 /* receiver: no more writes of flow @id */
	HEAD_STOPPED,	 /* sender: no write is under way or will be */
	HEAD_FILLED,	 /* sender: @cnt more slots of @id hold data */
	HEAD_DRAINED,	 /* receiver: @cnt more slots of @id are free */
	HEAD_BYE,	 /* no packet follows */
};

/* At a multiple of 8. HEAD_CREDIT and HEAD_BYE have a buffer of their own. */
struct rdma_head {
	uint8_t kind;
	uint8_t cnt;
	uint16_t credit; /* buffers posted anew: in the first of a buffer */
	uint32_t id;
};

/* A registration of ours: one of the port's, or one reference of the cache's. */
struct rdma_mr {
	void *reg;
	void *window; /* granted over it */
	const struct kedge_mr *cached;
	uint64_t addr; /* as the peer names the first byte */
	uint64_t key;
};

/* Memory of ours that the peer may write to by its key: heap and windows. */
struct rdma_block {
	struct list node;
	char *at;
	size_t len;
	struct rdma_mr mr;
};

/* A part of a page at an end of a piece, which lands in a page of ours. */
struct rdma_edge {
	void *to;
	uint32_t len;
	uint32_t slot;
};

struct flow {
	struct list node; /* r->sending or r->landing */
	struct bulk *bulk; /* NULL: its owner has forgotten it */
	uint32_t id;
	bool recv, stream;
	/* Sender: the peer wants it no more. */
	bool stopped;
	bool answer; /* HEAD_STOPPED is due when the last write is done */
	/* Receiver: HEAD_STOP is due, has been sent, is answered; the peer
	 * writes no more. */
	bool stop_due, stop_sent, answered, quiet;
	uint64_t deadline; /* of stop(), once it was called */
	uint64_t len;
	/* Sender: where it goes to, and how far it is. */
	uint32_t target_cnt;
	struct rdma_target *target;
	void *table_reg;
	struct rdma_op read_op; /* fetches the targets */
	struct rdma_target table;
	bool read_due, reading;
	uint32_t src, dst;	  /* the pieces at work */
	uint64_t src_off, dst_off; /* bytes done in them */
	uint64_t posted, landed;
	uint32_t in_flight;
	/* Streams: slots, counted since the beginning. */
	uint64_t slot_len;
	uint32_t slot_cnt;
	uint32_t filled, drained, told;
	struct rdma_block *window;
	/* Receiver: registrations of the pieces. */
	struct rdma_mr *mr;
	uint32_t mr_cnt;
	uint64_t since; /* it was accepted, alone; or 0 */
	struct rdma_edge *edge;
	uint32_t edge_cnt;
};

/* Idle, staged until the poll ends, or under way. */
struct rdma_write {
	struct rdma_op op;
	struct list node; /* idle_writes, staged or written */
	struct flow *flow;
	uint64_t len;
	bool slot_end;
	bool tells; /* the flow's last */
	struct iovec from;
	struct rdma_target to;
	void *desc;
	const struct kedge_mr *cached;
};

/* Ids that wait: a ring. */
struct rdma_ids {
	uint32_t head, tail;
	uint32_t id[STOPPED_CNT];
};

/*
 * @pins:    registering pins: it goes by the cache, and @local_desc is needed
 * @windows: the port grants windows over registrations
 * @virt:    the peer names bytes by our addresses, else by their offset
 * @ordered: what is sent behind a write is received when that has landed
 * @torn:    a dead peer's last bytes may look like a broken protocol
 * @fd:      readable when there may be something to do
 * @err:     0, or why the connection is closed; told when all that came is taken
 * @owed:    buffers posted anew of which the peer has not been told
 * @open:    what is committed next goes there, if it has room
 * @polling: a poll is under way, and flush() comes
 * @tells:   a write can tell the peer that it has landed, by the flow's id
 * @tells_takes: that takes one of the buffers that the peer has posted
 * @batch:   writes complete in order, and only the last of a poll is asked to
 *           say so
 * @later:   what is committed next is an RTS or a CTS
 * @rts:     it is an RTS
 * @patient: all packets in @open are RTS
 * @say:     flows may have something to say
 */
struct rdma {
	const struct rdma_port *port;
	int fd;
	pid_t pid;
	int err;
	bool pins, windows, local_desc, virt, ordered, torn, tells;
	bool tells_takes, batch;
	size_t inject_len;
	uint64_t chunk_len;

	char *slab;
	size_t slab_len;
	void *slab_reg;
	void *slab_desc;
	struct rdma_buf *bufs; /* RX first */
	uint32_t rx_cnt, buf_cnt;
	struct list free_tx, ready, posted, came, unposted;
	struct rdma_buf *open;
	bool polling, later, rts, patient, say;
	bool pause;	/* no more of them in this poll */
	uint32_t free_cnt, sent_cnt;
	uint32_t credit, credit_max, owed;

	struct list sending, landing;
	uint32_t sending_cnt;
	uint64_t sending_len; /* of them: what has not left */
	uint64_t flight_len;  /* of that: what has been posted */
	uint32_t next_id, stops_cnt;
	struct rdma_ids stopped, answers;
	struct rdma_write writes[WRITE_CNT];
	struct list idle_writes, staged, written;

	struct kedge_device *dev;
	struct kedge_cache *cache;
	struct list heap, spare_windows;
	uint32_t spare_cnt;
	struct rdma_block *edges; /* EDGE_CNT pages */
	uint64_t edges_used; /* a bit for each */
	uint64_t heap_used, heap_max;
	struct list areas;
	uint64_t areas_len, areas_max; /* bytes */
	size_t area_off, area_need; /* the last message's place, and its length */
	size_t area_len; /* of an area for it */
	bool area_whole; /* areas have pages everywhere */
	size_t area_unit; /* of a huge page, or 0: not asked yet */
	const struct rdma_costs *costs; /* NULL: not measured */
	bool costs_asked;
	double wire; /* nanoseconds a byte, of late; 0: not known */
};

#include "channel/rdma/port.h"

/* ---- open.c ---- */

/* The port has set what is the port's to tell. */
void kedge__rdma_init(struct rdma *r, const struct rdma_port *port);
/* Buffers for packets, registered where the port needs that. */
int kedge__rdma_bufs(struct rdma *r);
/* Post those to receive into. */
int kedge__rdma_post_all(struct rdma *r);
/* Free it, and send no packet. */
void kedge__rdma_free(struct rdma *r);
/* Wait for the descriptor until @deadline, a while at most. 0; else as
 * kedge__wait_for(). */
int kedge__rdma_wait(int fd, uint64_t deadline);

/* ---- end.c ---- */

/* The connection is at an end: the port is halted, @why is kept. */
void kedge__rdma_die(struct rdma *r, int why);
/* The write is over, for better or worse. */
void kedge__rdma_write_idle(struct rdma *r, struct rdma_write *w);

/* ---- transport.c, packets.c: packets ---- */

extern const struct transport_ops kedge__rdma_ops;

void kedge__rdma_progress(struct rdma *r);
/* Room for a head and @len bytes, or NULL; @spare buffers are left. */
void *kedge__rdma_append_at(struct rdma *r, size_t len, uint32_t spare);
/* The head where that said; @len bytes behind it are there already. */
void kedge__rdma_append(struct rdma *r, const struct rdma_head *h, size_t len,
		       bool rts);
/* Post a head that needs no credit. False: no buffer is free. */
bool kedge__rdma_post_free(struct rdma *r, enum head_kind kind);
/* A head for flow @id. False: no room now. */
bool kedge__rdma_signal(struct rdma *r, enum head_kind kind, uint32_t id,
		       uint8_t cnt);
/* Post what is ready. */
void kedge__rdma_pump(struct rdma *r);
int kedge__rdma_repost(struct rdma *r, struct rdma_buf *b);

/* ---- heads.c: what came ---- */

/* Of a port's poll: a message of @len bytes in a posted buffer; a buffer that was sent;
 * a write or a read of ours that is done. And a write of the peer's that said so, with
 * the posted buffer that it took, or NULL. */
void kedge__rdma_op_done(struct rdma *r, struct rdma_op *op, size_t len);
void kedge__rdma_landed(struct rdma *r, struct rdma_op *op, uint64_t id);
/* Behind the head at @at, where the next HEAD_PACKET is, or the end. What came
 * was checked. */
size_t kedge__rdma_packet_after(const struct rdma_buf *b, size_t at);

/* ---- bulk.c, put.c, land.c: flows ---- */

int kedge__rdma_offer(void *ctx, struct bulk *b, void *desc, size_t *len);
int kedge__rdma_bulk_accept(void *ctx, struct bulk *b, const void *rts,
			   size_t rts_len, void *cts, size_t *cts_len);
int kedge__rdma_start(void *ctx, struct bulk *b, const void *cts,
		     size_t cts_len);
int kedge__rdma_step(void *ctx, struct bulk *b);
int kedge__rdma_stop(void *ctx, struct bulk *b);
void kedge__rdma_end(void *ctx, struct bulk *b);
int kedge__rdma_send_step(struct rdma *r, struct flow *f);
int kedge__rdma_send_stop(struct rdma *r, struct flow *f);
void kedge__rdma_send_end(struct rdma *r, struct flow *f);
int kedge__rdma_land_step(struct rdma *r, struct flow *f);
int kedge__rdma_land_stop(struct rdma *r, struct flow *f);
void kedge__rdma_land_end(struct rdma *r, struct flow *f, bool fin);
void kedge__rdma_land_free(struct rdma *r, struct flow *f);
struct flow *kedge__rdma_flow_new(struct bulk *b, uint32_t id);
struct flow *kedge__rdma_flow_find(struct list *flows, uint32_t id);
void kedge__rdma_flow_free(struct flow *f);
bool kedge__rdma_stop_received(struct rdma *r, uint32_t id);
/* The time that stop() waits for the peer; 0 where that is over. */
int kedge__rdma_stop_wait(struct rdma *r, struct flow *f);
static inline uint64_t flow_slots(const struct flow *f)
{
	return (f->len + f->slot_len - 1) / f->slot_len;
}
/* There is enough agreed on to go on with. */
static inline bool rdma_ahead(const struct rdma *r)
{
	return r->sending_cnt >= AHEAD_CNT && r->sending_len >= AHEAD_LEN;
}
/* True if a write of it can be posted now. */
bool kedge__rdma_may_write(const struct rdma *r, const struct flow *f);
void kedge__rdma_write_done(struct rdma *r, struct rdma_write *w);
/* Post what is staged. */
void kedge__rdma_writes_post(struct rdma *r);
void kedge__rdma_read_done(struct rdma *r, struct flow *f);
/* The peer says that all of flow @id has landed. False: nonsense. */
bool kedge__rdma_flow_landed(struct rdma *r, uint64_t id);
/* Take what a head says of a flow. False: nonsense. */
bool kedge__rdma_flow_head(struct rdma *r, const struct rdma_head *h);
/* Send what flows have to say and could not yet. */
void kedge__rdma_flow_signals(struct rdma *r);
/* True if step() would do something now. */
bool kedge__rdma_flow_work(const struct rdma *r);
void kedge__rdma_flows_free(struct rdma *r);

/* ---- cost.c ---- */

uint64_t kedge__rdma_cost(void *ctx, uint32_t way, const struct cost_case *q);
/* So long the @len bytes of a message were on their way. */
void kedge__rdma_cost_learn(struct rdma *r, uint64_t len, uint64_t ns);

#include "channel/rdma/mem.h"
#include "channel/rdma/hello.h"

#endif /* CHANNEL_RDMA_INTERNAL_H */
