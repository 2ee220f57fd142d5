// SPDX-License-Identifier: BSD-2-Clause
/*
 * The transport over RDMA: packets, waiting, and the end.
 *
 * A buffer to send from is free, reserved, ready (in the order of commit) or
 * posted. A buffer to receive into is in @posted, in the order in which messages
 * take them; or in @came, also while the channel looks at it; or in @unposted
 * until the provider takes it again.
 */
#include <assert.h>
#include <unistd.h>

#include "channel/rdma/internal.h"

static struct rdma_buf *buf_of(struct rdma *r, const void *packet)
{
	return &r->bufs[(size_t)((const char *)packet - r->slab) / BUF_LEN];
}

/* ---- sending ---- */

static void *rdma_reserve(void *ctx, size_t len)
{
	struct rdma *r = ctx;
	char *at;

	if (len > RDMA_PACKET_MAX || r->err)
		return NULL;
	at = kedge__rdma_append_at(r, len, TX_SPARE);
	if (!at) {
		kedge__rdma_progress(r);
		at = r->err ? NULL : kedge__rdma_append_at(r, len, TX_SPARE);
	}
	r->later = r->later && at;
	r->rts = r->rts && at;
	return at ? at + sizeof(struct rdma_head) : NULL;
}

static void rdma_commit(void *ctx, void *packet, size_t len)
{
	const struct rdma_head h = { .kind = HEAD_PACKET, .id = (uint32_t)len };
	struct rdma *r = ctx;
	bool wait = r->polling || r->later, rts = r->rts;

	r->later = r->rts = false;
	if (r->err)
		return;
	assert((char *)packet == r->open->data + r->open->len + sizeof(h));
	kedge__rdma_append(r, &h, len, rts);
	/* If data move in polls alone, an RTS and a CTS wait for one: they
	 * go with others. */
	if (!wait)
		kedge__rdma_pump(r);
}

static void rdma_flush(void *ctx)
{
	struct rdma *r = ctx;

	r->polling = r->pause = false;
	if (r->err)
		return;
	kedge__rdma_flow_signals(r);
	kedge__rdma_pump(r);
	kedge__rdma_writes_post(r);
}

/* ---- receiving ---- */

static void post_again(struct rdma *r)
{
	struct list *l, *tmp;
	struct list again;

	if (list_empty(&r->unposted))
		return;
	list_init(&again);
	list_for_each_safe(l, tmp, &r->unposted) {
		list_remove(l);
		list_add_tail(&again, l);
	}
	list_for_each_safe(l, tmp, &again) {
		list_remove(l);
		if (kedge__rdma_repost(r, list_entry(l, struct rdma_buf, node)))
			kedge__rdma_die(r, -ECONNRESET);
		if (r->err)
			return;
	}
}

void kedge__rdma_progress(struct rdma *r)
{
	if (r->err)
		return;
	r->pause = false;
	kedge__rdma_pump(r);
	kedge__rdma_writes_post(r);
	r->port->poll(r);
	if (r->err)
		return;
	post_again(r);
	kedge__rdma_flow_signals(r);
	kedge__rdma_pump(r);
}

static const void *rdma_next(void *ctx, size_t *len)
{
	const struct rdma_head *h;
	struct rdma *r = ctx;
	struct rdma_buf *b;

	r->polling = true;
	if (list_empty(&r->came))
		kedge__rdma_progress(r);
	if (list_empty(&r->came))
		return NULL;
	b = list_entry(r->came.next, struct rdma_buf, node);
	h = (const struct rdma_head *)(b->data + b->at);
	*len = h->id;
	return h + 1;
}

static void rdma_release(void *ctx, const void *packet)
{
	struct rdma *r = ctx;
	struct rdma_buf *b = buf_of(r, packet);

	b->at = kedge__rdma_packet_after(b, b->at);
	if (b->at < b->len)
		return;
	list_remove(&b->node);
	if (r->err)
		return;
	if (kedge__rdma_repost(r, b)) {
		kedge__rdma_die(r, -ECONNRESET);
		return;
	}
	r->owed++;
	if (r->owed >= RX_CNT / 2)
		kedge__rdma_pump(r);
}

/* ---- waiting ---- */

static int rdma_check(void *ctx)
{
	struct rdma *r = ctx;

	/* A provider may see the end only where it looks for data. */
	kedge__rdma_progress(r);
	if (!r->err && r->port->over(r)) {
		/* Packets that came before the end are still received. */
		r->port->poll(r);
		kedge__rdma_die(r, -ECONNRESET);
	}
	if (!r->err || !list_empty(&r->came))
		return 0;
	if (r->err == -ECONNRESET)
		return kedge_reason(r->err, "the peer is gone");
	return kedge_reason(r->err, "the peer broke the protocol of the "
				    "transport, the connection is closed");
}

static int rdma_fd(void *ctx)
{
	return ((struct rdma *)ctx)->fd;
}

static int rdma_arm(void *ctx)
{
	struct rdma *r = ctx;

	if (!list_empty(&r->came))
		return 1;
	/* check() will tell. */
	if (r->err)
		return 0;
	if (!list_empty(&r->unposted) || kedge__rdma_flow_work(r))
		return 1;
	kedge__rdma_flow_signals(r);
	kedge__rdma_pump(r);
	kedge__rdma_writes_post(r);
	if (!r->err && r->torn && r->port->over(r))
		rdma_check(r);
	return r->err ? 0 : r->port->arm(r);
}

/* ---- closing ---- */

static void drop_all(struct rdma *r)
{
	const void *p;
	size_t len;

	while ((p = rdma_next(r, &len)) != NULL)
		rdma_release(r, p);
	rdma_check(r);
}

/* True when every packet of ours has left; false after FLUSH_NS in which the peer has taken
 * none of them. Buffers that become free count, and only beyond the most that were: what
 * the peer sends costs some for its credit, so it cannot keep this from ending by that. */
static bool flushed(struct rdma *r)
{
	uint64_t deadline = clock_after_ns(FLUSH_NS);
	uint32_t most = r->free_cnt;

	for (;;) {
		drop_all(r);
		if (r->err)
			return false;
		if (list_empty(&r->ready) && !r->sent_cnt)
			return true;
		if (r->free_cnt > most) {
			most = r->free_cnt;
			deadline = clock_after_ns(FLUSH_NS);
		}
		if (kedge__rdma_wait(r->fd, deadline))
			return false;
	}
}

/*
 * Committed packets reach a peer that lives. A socket that is closed while there
 * is something unread in it forgets what it has not sent; so the peer is told that
 * no packet follows, and what it sends is read until it has closed its end, or for
 * a while if it is busy with other things. To take packets shows that it is not: a
 * slow machine is no reason to lose what a peer is about to receive.
 */
static void say_bye(struct rdma *r)
{
	uint64_t deadline;

	if (!flushed(r) || !kedge__rdma_post_free(r, HEAD_BYE))
		return;
	if (!flushed(r))
		return;
	/* A provider without connections may have it still. */
	deadline = clock_after_ns(r->torn ? FLUSH_NS : BYE_NS);
	while (!r->err && !kedge__rdma_wait(r->fd, deadline))
		drop_all(r);
}

static void rdma_close(void *ctx)
{
	struct rdma *r = ctx;

	if (r->pid == getpid() && !r->err)
		say_bye(r);
	kedge__rdma_free(r);
}

/* ---- the table ---- */

static uint32_t rdma_ready(void *ctx, const void *buf, size_t len, const void *rts,
			   size_t rts_len)
{
	struct rdma *r = ctx;

	(void)rts;
	(void)rts_len;
	if (!r->pins)
		return READY_DIRECT | READY_REGISTER | READY_ANYWHERE;
	if (kedge__rdma_block_of(r, (uintptr_t)buf, len))
		return READY_DIRECT | READY_HEAP | READY_REGISTER;
	if (kedge__rdma_registered(r, (uintptr_t)buf, len))
		return READY_DIRECT | READY_REGISTER;
	return READY_REGISTER;
}

static const char *rdma_explain(void *ctx)
{
	const struct rdma *r = ctx;

	if (!r->pins || r->windows)
		return "";
	return "what a peer may write is registered for each message and for "
	       "it alone, as there are no memory windows: only memory of "
	       "kedge_channel_alloc() is direct at once";
}

static bool rdma_areas(void *ctx)
{
	const struct rdma *r = ctx;

	return r->windows;
}

const struct transport_ops kedge__rdma_ops = {
	.name = "rdma",
	.ways = 1u << KEDGE_WAY_EAGER | 1u << KEDGE_WAY_DIRECT |
		1u << KEDGE_WAY_SWAP | 1u << KEDGE_WAY_COPY |
		1u << KEDGE_WAY_REGISTER,
	.posts = true,
	.blind = true,
	.reserve = rdma_reserve,
	.commit = rdma_commit,
	.next = rdma_next,
	.release = rdma_release,
	.flush = rdma_flush,
	.check = rdma_check,
	.fd = rdma_fd,
	.arm = rdma_arm,
	.ready = rdma_ready,
	.offer = kedge__rdma_offer,
	.accept = kedge__rdma_bulk_accept,
	.start = kedge__rdma_start,
	.step = kedge__rdma_step,
	.stop = kedge__rdma_stop,
	.end = kedge__rdma_end,
	.heap_alloc = kedge__rdma_heap_alloc,
	.heap_free = kedge__rdma_heap_free,
	.explain = rdma_explain,
	.cost = kedge__rdma_cost,
	.areas = rdma_areas,
	.area_take = kedge__rdma_area_take,
	.area_meanwhile = kedge__rdma_area_meanwhile,
	.area_move = kedge__rdma_area_move,
	.area_give = kedge__rdma_area_give,
	.close = rdma_close,
};

static struct flow *flow_of(const struct bulk *b)
{
	return (struct flow *)(uintptr_t)b->priv[0];
}

int kedge__rdma_step(void *ctx, struct bulk *b)
{
	struct flow *f = flow_of(b);
	struct rdma *r = ctx;

	return f->recv ? kedge__rdma_land_step(r, f)
		       : kedge__rdma_send_step(r, f);
}

int kedge__rdma_stop(void *ctx, struct bulk *b)
{
	struct flow *f = flow_of(b);
	struct rdma *r = ctx;
	int rc;

	if (!f)
		return 0;
	/* The peer's answer may be what is waited for. */
	kedge__rdma_progress(r);
	if (r->err)
		return 0;
	rc = f->recv ? kedge__rdma_land_stop(r, f) : kedge__rdma_send_stop(r, f);
	if (!r->err) {
		kedge__rdma_flow_signals(r);
		kedge__rdma_pump(r);
	}
	return rc;
}

void kedge__rdma_end(void *ctx, struct bulk *b)
{
	struct flow *f = flow_of(b);

	b->priv[0] = 0;
	if (!f)
		return;
	f->bulk = NULL;
	if (f->recv)
		kedge__rdma_land_end(ctx, f, b->flags & BULK_FIN);
	else
		kedge__rdma_send_end(ctx, f);
}
