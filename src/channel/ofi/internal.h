/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel over libfabric: what its files share.
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
 * order of a connection (FI_ORDER_SAW), or because each completes only when it
 * has landed (FI_DELIVERY_COMPLETE), as over reliable datagrams always.
 *
 * A flow is one bulk under way. The receiver names it; the sender names it as
 * the receiver did. To stop one the receiver sends HEAD_STOP, and the sender
 * answers HEAD_STOPPED when it has no write of that name under way and will
 * never have one. Until then registrations stay: a provider may be in the
 * middle of a write that it looked up before the registration ended.
 *
 * All of it is the channel's one thread's. Fabrics are shared by a listener and
 * its channels and are counted; each channel has a domain of its own.
 */
#ifndef CHANNEL_OFI_INTERNAL_H
#define CHANNEL_OFI_INTERNAL_H

/* First: libfabric defines container_of() itself unless it is defined. */
#include "base/base.h"

#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <kedge/cache.h>
#include <kedge/ofi.h>

#include "base/list.h"
#include "channel/ofi/desc.h"
#include "channel/transport.h"

#define OFI_API FI_VERSION(1, 17)

/* Buffers posted for packets, and those beyond them for HEAD_CREDIT. */
#define RX_CNT	 64u
#define RX_SPARE 4u
/* Buffers to send from, and those that reserve() leaves to the transport. */
#define TX_CNT	 64u
#define TX_SPARE 8u
#define OFI_EAGER_MAX  (32u * 1024)
#define OFI_PACKET_MAX (OFI_EAGER_MAX + 1024)
#define BUF_LEN	 (OFI_PACKET_MAX + 64u)
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
/* How long a peer may take to let go of a flow, and to take what was sent. */
#define STOP_NS	 (5 * 1000000000ull)
#define FLUSH_NS (2 * 1000000000ull)
#define BYE_NS	 (200 * 1000000ull)
/* Flows that were stopped before they began: as many as there can be CTS here
 * that we have not looked at, of 120 bytes at least. */
#define STOPPED_CNT 2048u
/* Questions under way: fewer than the answers that the peer keeps. */
#define STOPS_MAX 256u

enum ofi_kind {
	OFI_RX,
	OFI_TX,
	OFI_WRITE,
	OFI_READ,
};

/* The target of every completion's pointer. */
struct ofi_op {
	struct fi_context2 context;
	enum ofi_kind kind;
};

struct ofi_buf {
	struct ofi_op op;
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
struct ofi_head {
	uint8_t kind;
	uint8_t cnt;
	uint16_t credit; /* buffers posted anew: in the first of a buffer */
	uint32_t id;
};

struct ofi_fabric {
	struct fid_fabric *fid;
	unsigned int refs; /* atomic: channels may be of other threads */
};

/* A registration of ours: one fid, or one reference of the cache's. */
struct ofi_mr {
	struct fid_mr *fid;
	const struct kedge_mr *cached;
	uint64_t addr; /* as the peer names the first byte */
	uint64_t key;
};

/* Memory of ours that the peer may write to by its key: heap and windows. */
struct ofi_block {
	struct list node;
	char *at;
	size_t len;
	struct ofi_mr mr;
};

struct flow {
	struct list node; /* o->sending or o->landing */
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
	struct ofi_target *target;
	struct fid_mr *table_mr;
	struct ofi_op read_op; /* fetches the targets */
	struct ofi_target table;
	bool read_due, reading;
	uint32_t src, dst;	  /* the pieces at work */
	uint64_t src_off, dst_off; /* bytes done in them */
	uint64_t posted, landed;
	uint32_t in_flight;
	/* Streams: slots, counted since the beginning. */
	uint64_t slot_len;
	uint32_t slot_cnt;
	uint32_t filled, drained, told;
	struct ofi_block *window;
	/* Receiver: registrations of the pieces. */
	struct ofi_mr *mr;
	uint32_t mr_cnt;
};

/* Idle, staged until the poll ends, or under way. */
struct ofi_write {
	struct ofi_op op;
	struct list node; /* idle_writes, staged or written */
	struct flow *flow;
	uint64_t len;
	bool slot_end;
	bool tells; /* the flow's last */
	struct iovec from;
	struct fi_rma_iov to;
	void *desc;
	const struct kedge_mr *cached;
};

/* Ids that wait: a ring. */
struct ofi_ids {
	uint32_t head, tail;
	uint32_t id[STOPPED_CNT];
};

/*
 * @pins:    registering pins: it goes by the cache, and @local_desc is needed
 * @virt:    the peer names bytes by our addresses, else by their offset
 * @own_key: the provider wants keys of ours
 * @bind_mr: a registration is of the endpoint
 * @rdm:     the endpoint is not connected: @peer, in @av, is the one that it
 *           speaks to, and @ctl_fd the connection that ends with the peer, or -1
 * @tick_fd: in the place of a descriptor of the provider's, or -1
 * @err:     0, or why the endpoint is closed; told when all that came is taken
 * @owed:    buffers posted anew of which the peer has not been told
 * @open:    what is committed next goes there, if it has room
 * @polling: a poll is under way, and flush() comes
 * @tells:   a write can tell the peer that it has landed, by the flow's id
 * @batch:   writes complete in order, and only the last of a poll is asked to
 *           say so
 * @later:   what is committed next is an RTS or a CTS
 * @rts:     it is an RTS
 * @patient: all packets in @open are RTS
 * @say:     flows may have something to say
 */
struct ofi {
	struct ofi_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_eq *eq; /* of a connection */
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t peer;
	int fd, tick_fd, ctl_fd;
	pid_t pid;
	int err;
	bool pins, local_desc, virt, own_key, ordered, bind_mr, rdm, tells, batch;
	uint64_t key_mask;
	size_t inject_len;
	uint64_t chunk_len;

	char *slab;
	size_t slab_len;
	struct fid_mr *slab_mr;
	void *slab_desc;
	struct ofi_buf *bufs; /* RX first */
	uint32_t rx_cnt, buf_cnt;
	struct list free_tx, ready, posted, came, unposted;
	struct ofi_buf *open;
	bool polling, later, rts, patient, say;
	bool pause;	/* no more of them in this poll */
	uint32_t free_cnt, sent_cnt;
	uint32_t credit, credit_max, owed;

	struct list sending, landing;
	uint32_t sending_cnt;
	uint64_t sending_len; /* of them: what has not left */
	uint64_t flight_len;  /* of that: what has been posted */
	uint32_t next_id, stops_cnt;
	struct ofi_ids stopped, answers;
	struct ofi_write writes[WRITE_CNT];
	struct list idle_writes, staged, written;

	struct kedge_device *dev;
	struct kedge_cache *cache;
	struct list heap, spare_windows;
	uint32_t spare_cnt;
	uint64_t heap_used, heap_max;
	uint64_t keys[32];
	uint32_t key_cnt;
};

/* ---- ofi.c: packets ---- */

extern const struct transport_ops kedge__ofi_ops;

/* The connection is at an end: the endpoint is closed, @why is kept. */
void kedge__ofi_die(struct ofi *o, int why);
void kedge__ofi_progress(struct ofi *o);
/* Room for a head and @len bytes, or NULL; @spare buffers are left. */
void *kedge__ofi_append_at(struct ofi *o, size_t len, uint32_t spare);
/* The head where that said; @len bytes behind it are there already. */
void kedge__ofi_append(struct ofi *o, const struct ofi_head *h, size_t len,
		       bool rts);
/* Post a head that needs no credit. False: no buffer is free. */
bool kedge__ofi_post_free(struct ofi *o, enum head_kind kind);
/* A head for flow @id. False: no room now. */
bool kedge__ofi_signal(struct ofi *o, enum head_kind kind, uint32_t id,
		       uint8_t cnt);
/* Post what is ready. */
void kedge__ofi_pump(struct ofi *o);
int kedge__ofi_repost(struct ofi *o, struct ofi_buf *b);

/* ---- cq.c: completions ---- */

void kedge__ofi_cq_drain(struct ofi *o);
/* Behind the head at @at, where the next HEAD_PACKET is, or the end. What came
 * was checked. */
size_t kedge__ofi_packet_after(const struct ofi_buf *b, size_t at);

/* ---- bulk.c, put.c, land.c: flows ---- */

int kedge__ofi_offer(void *ctx, struct bulk *b, void *desc, size_t *len);
int kedge__ofi_bulk_accept(void *ctx, struct bulk *b, const void *rts,
			   size_t rts_len, void *cts, size_t *cts_len);
int kedge__ofi_start(void *ctx, struct bulk *b, const void *cts,
		     size_t cts_len);
int kedge__ofi_step(void *ctx, struct bulk *b);
int kedge__ofi_stop(void *ctx, struct bulk *b);
void kedge__ofi_end(void *ctx, struct bulk *b);
int kedge__ofi_send_step(struct ofi *o, struct flow *f);
int kedge__ofi_send_stop(struct ofi *o, struct flow *f);
void kedge__ofi_send_end(struct ofi *o, struct flow *f);
int kedge__ofi_land_step(struct ofi *o, struct flow *f);
int kedge__ofi_land_stop(struct ofi *o, struct flow *f);
void kedge__ofi_land_end(struct ofi *o, struct flow *f, bool fin);
void kedge__ofi_land_free(struct ofi *o, struct flow *f);
struct flow *kedge__ofi_flow_new(struct bulk *b, uint32_t id);
struct flow *kedge__ofi_flow_find(struct list *flows, uint32_t id);
void kedge__ofi_flow_free(struct flow *f);
/* The write is over, for better or worse. */
void kedge__ofi_write_idle(struct ofi *o, struct ofi_write *w);
bool kedge__ofi_stop_received(struct ofi *o, uint32_t id);
/* How long stop() waits for the peer. 0 where that is over. */
int kedge__ofi_stop_wait(struct ofi *o, struct flow *f);
static inline uint64_t flow_slots(const struct flow *f)
{
	return (f->len + f->slot_len - 1) / f->slot_len;
}
/* There is enough agreed on to go on with. */
static inline bool ofi_ahead(const struct ofi *o)
{
	return o->sending_cnt >= AHEAD_CNT && o->sending_len >= AHEAD_LEN;
}
/* True if a write of it can be posted now. */
bool kedge__ofi_may_write(const struct ofi *o, const struct flow *f);
void kedge__ofi_write_done(struct ofi *o, struct ofi_write *w);
/* Post what is staged. */
void kedge__ofi_writes_post(struct ofi *o);
void kedge__ofi_read_done(struct ofi *o, struct flow *f);
/* The peer says that all of flow @id has landed. False: nonsense. */
bool kedge__ofi_flow_landed(struct ofi *o, uint64_t id);
/* Take what a head says of a flow. False: nonsense. */
bool kedge__ofi_flow_head(struct ofi *o, const struct ofi_head *h);
/* Send what flows have to say and could not yet. */
void kedge__ofi_flow_signals(struct ofi *o);
/* True if step() would do something now. */
bool kedge__ofi_flow_work(const struct ofi *o);
void kedge__ofi_flows_free(struct ofi *o);

/* ---- mem.c: registrations ---- */

int kedge__ofi_reg(struct ofi *o, void *at, size_t len, uint64_t access,
		   struct fid_mr **mr);
/* For one flow: the peer may write [@addr, @addr + @len). */
int kedge__ofi_lend(struct ofi *o, uint64_t addr, uint64_t len,
		    struct ofi_mr *mr);
void kedge__ofi_lend_end(struct ofi *o, struct ofi_mr *mr);
/* Its first byte as a peer names it. */
static inline uint64_t ofi_addr(const struct ofi *o, const void *at)
{
	return o->virt ? (uintptr_t)at : 0;
}
/* The local descriptor for a source; *@cached to be put when it is written. */
int kedge__ofi_source(struct ofi *o, uint64_t addr, uint64_t len, void **desc,
		      const struct kedge_mr **cached);
/* -EFAULT where a part of it is not mapped at all. */
int kedge__ofi_mapped(uint64_t addr, uint64_t len);
/* Memory of ours, by a key of its own where @reg or the provider pins. */
struct ofi_block *kedge__ofi_block_open(struct ofi *o, size_t len, bool reg);
void kedge__ofi_block_close(struct ofi *o, struct ofi_block *b);
/* The heap's, that holds this range; or NULL. */
struct ofi_block *kedge__ofi_block_of(const struct ofi *o, uint64_t addr,
				      uint64_t len);
void *kedge__ofi_heap_alloc(void *ctx, size_t len);
void kedge__ofi_heap_free(void *ctx, void *p);
void kedge__ofi_mem_fini(struct ofi *o);

#include "channel/ofi/connect/conn.h"

#endif /* CHANNEL_OFI_INTERNAL_H */
