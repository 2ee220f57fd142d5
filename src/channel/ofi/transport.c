// SPDX-License-Identifier: BSD-2-Clause
/*
 * The transport over libfabric: packets, waiting, and the end.
 *
 * A buffer to send from is free, reserved, ready (in the order of commit) or
 * posted. A buffer to receive into is in @posted, in the order in which messages
 * take them; or in @came, also while the channel looks at it; or in @unposted
 * until the provider takes it again.
 */
#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "channel/ofi/internal.h"

#define TICK_NS 1000000

static struct ofi_buf *buf_of(struct ofi *o, const void *packet)
{
	return &o->bufs[(size_t)((const char *)packet - o->slab) / BUF_LEN];
}

/* ---- the end ---- */

/* ---- sending ---- */

static void *ofi_reserve(void *ctx, size_t len)
{
	struct ofi *o = ctx;
	char *at;

	if (len > OFI_PACKET_MAX || o->err)
		return NULL;
	at = kedge__ofi_append_at(o, len, TX_SPARE);
	if (!at) {
		kedge__ofi_progress(o);
		at = o->err ? NULL : kedge__ofi_append_at(o, len, TX_SPARE);
	}
	o->later = o->later && at;
	o->rts = o->rts && at;
	return at ? at + sizeof(struct ofi_head) : NULL;
}

static void ofi_commit(void *ctx, void *packet, size_t len)
{
	const struct ofi_head h = { .kind = HEAD_PACKET, .id = (uint32_t)len };
	struct ofi *o = ctx;
	bool wait = o->polling || o->later, rts = o->rts;

	o->later = o->rts = false;
	if (o->err)
		return;
	assert((char *)packet == o->open->data + o->open->len + sizeof(h));
	kedge__ofi_append(o, &h, len, rts);
	/* If data move in polls alone, an RTS and a CTS wait for one: they
	 * go with others. */
	if (!wait)
		kedge__ofi_pump(o);
}

static void ofi_flush(void *ctx)
{
	struct ofi *o = ctx;

	o->polling = o->pause = false;
	if (o->err)
		return;
	kedge__ofi_flow_signals(o);
	kedge__ofi_pump(o);
	kedge__ofi_writes_post(o);
}

/* ---- receiving ---- */

static void post_again(struct ofi *o)
{
	struct list *l, *tmp;
	struct list again;

	if (list_empty(&o->unposted))
		return;
	list_init(&again);
	list_for_each_safe(l, tmp, &o->unposted) {
		list_remove(l);
		list_add_tail(&again, l);
	}
	list_for_each_safe(l, tmp, &again) {
		list_remove(l);
		if (kedge__ofi_repost(o, list_entry(l, struct ofi_buf, node)))
			kedge__ofi_die(o, -ECONNRESET);
		if (o->err)
			return;
	}
}

void kedge__ofi_progress(struct ofi *o)
{
	if (o->err)
		return;
	o->pause = false;
	kedge__ofi_pump(o);
	kedge__ofi_writes_post(o);
	kedge__ofi_cq_drain(o);
	if (o->err)
		return;
	post_again(o);
	kedge__ofi_flow_signals(o);
	kedge__ofi_pump(o);
}

static const void *ofi_next(void *ctx, size_t *len)
{
	const struct ofi_head *h;
	struct ofi *o = ctx;
	struct ofi_buf *b;

	o->polling = true;
	if (list_empty(&o->came))
		kedge__ofi_progress(o);
	if (list_empty(&o->came))
		return NULL;
	b = list_entry(o->came.next, struct ofi_buf, node);
	h = (const struct ofi_head *)(b->data + b->at);
	*len = h->id;
	return h + 1;
}

static void ofi_release(void *ctx, const void *packet)
{
	struct ofi *o = ctx;
	struct ofi_buf *b = buf_of(o, packet);

	b->at = kedge__ofi_packet_after(b, b->at);
	if (b->at < b->len)
		return;
	list_remove(&b->node);
	if (o->err)
		return;
	if (kedge__ofi_repost(o, b)) {
		kedge__ofi_die(o, -ECONNRESET);
		return;
	}
	o->owed++;
	if (o->owed >= RX_CNT / 2)
		kedge__ofi_pump(o);
}

/* ---- waiting ---- */

static bool is_over(struct ofi *o)
{
	struct ofi_hello ignored;
	struct fi_info *info;
	uint32_t event;

	if (o->rdm)
		return kedge__ofi_ctl_check(o);
	return kedge__ofi_eq_read(o->eq, &event, &info, &ignored) != -EAGAIN;
}

static int ofi_check(void *ctx)
{
	struct ofi *o = ctx;

	/* A provider may see the end only where it looks for data. */
	kedge__ofi_progress(o);
	if (!o->err && is_over(o)) {
		/* Packets that came before the end are still received. */
		kedge__ofi_cq_drain(o);
		kedge__ofi_die(o, -ECONNRESET);
	}
	if (!o->err || !list_empty(&o->came))
		return 0;
	if (o->err == -ECONNRESET)
		return kedge_reason(o->err, "the peer is gone");
	return kedge_reason(o->err, "the peer broke the protocol of the "
				    "transport, the connection is closed");
}

static int ofi_fd(void *ctx)
{
	return ((struct ofi *)ctx)->fd;
}

static int arm_fds(struct ofi *o)
{
	const struct itimerspec soon = { .it_value = { .tv_nsec = TICK_NS } };
	struct fid *fids[2];
	int cnt = 0;

	if (o->tick_fd >= 0) {
		timerfd_settime(o->tick_fd, 0, &soon, NULL);
		return 0;
	}
	fids[cnt++] = &o->cq->fid;
	if (o->eq)
		fids[cnt++] = &o->eq->fid;
	return fi_trywait(o->fabric->fid, fids, cnt) ? 1 : 0;
}

static int ofi_arm(void *ctx)
{
	struct ofi *o = ctx;

	if (!list_empty(&o->came))
		return 1;
	/* check() will tell. */
	if (o->err)
		return 0;
	if (!list_empty(&o->unposted) || kedge__ofi_flow_work(o))
		return 1;
	kedge__ofi_flow_signals(o);
	kedge__ofi_pump(o);
	kedge__ofi_writes_post(o);
	if (!o->err && o->rdm && kedge__ofi_ctl_check(o))
		ofi_check(o);
	return o->err ? 0 : arm_fds(o);
}

/* ---- closing ---- */

static void drop_all(struct ofi *o)
{
	const void *p;
	size_t len;

	while ((p = ofi_next(o, &len)) != NULL)
		ofi_release(o, p);
	ofi_check(o);
}

/* True when every packet of ours has left. */
static bool flushed(struct ofi *o, uint64_t ns)
{
	uint64_t deadline = clock_ns() + ns;

	for (;;) {
		drop_all(o);
		if (o->err)
			return false;
		if (list_empty(&o->ready) && !o->sent_cnt)
			return true;
		if (kedge__ofi_wait(o->fd, deadline))
			return false;
	}
}

/*
 * Committed packets reach a peer that lives. A socket that is closed while there
 * is something unread in it forgets what it has not sent; so the peer is told that
 * no packet follows, and what it sends is read until it has closed its end, or for
 * a while if it is busy with other things.
 */
static void say_bye(struct ofi *o)
{
	uint64_t deadline;

	if (!flushed(o, FLUSH_NS) || !kedge__ofi_post_free(o, HEAD_BYE))
		return;
	if (!flushed(o, FLUSH_NS))
		return;
	deadline = clock_ns() + BYE_NS;
	while (!o->err && !kedge__ofi_wait(o->fd, deadline))
		drop_all(o);
}

static void ofi_close(void *ctx)
{
	struct ofi *o = ctx;

	if (o->pid == getpid() && !o->err)
		say_bye(o);
	kedge__ofi_free(o);
}

/* ---- the table ---- */

static uint32_t ofi_ready(void *ctx, const void *buf, size_t len)
{
	struct ofi *o = ctx;

	if (!o->pins)
		return READY_DIRECT | READY_REGISTER | READY_ANYWHERE;
	if (kedge__ofi_block_of(o, (uintptr_t)buf, len))
		return READY_DIRECT | READY_HEAP | READY_REGISTER;
	return READY_REGISTER;
}

static const char *ofi_explain(void *ctx)
{
	const struct ofi *o = ctx;

	return o->pins ? "what a peer may write is registered for each message "
			 "and for it alone: only memory of "
			 "kedge_channel_alloc() is direct at once"
		       : "";
}

const struct transport_ops kedge__ofi_ops = {
	.name = "ofi",
	.ways = 1u << KEDGE_WAY_EAGER | 1u << KEDGE_WAY_DIRECT |
		1u << KEDGE_WAY_SWAP | 1u << KEDGE_WAY_COPY |
		1u << KEDGE_WAY_REGISTER,
	.posts = true,
	.blind = true,
	.reserve = ofi_reserve,
	.commit = ofi_commit,
	.next = ofi_next,
	.release = ofi_release,
	.flush = ofi_flush,
	.check = ofi_check,
	.fd = ofi_fd,
	.arm = ofi_arm,
	.ready = ofi_ready,
	.offer = kedge__ofi_offer,
	.accept = kedge__ofi_bulk_accept,
	.start = kedge__ofi_start,
	.step = kedge__ofi_step,
	.stop = kedge__ofi_stop,
	.end = kedge__ofi_end,
	.heap_alloc = kedge__ofi_heap_alloc,
	.heap_free = kedge__ofi_heap_free,
	.explain = ofi_explain,
	.close = ofi_close,
};

static struct flow *flow_of(const struct bulk *b)
{
	return (struct flow *)(uintptr_t)b->priv[0];
}

int kedge__ofi_step(void *ctx, struct bulk *b)
{
	struct flow *f = flow_of(b);
	struct ofi *o = ctx;

	return f->recv ? kedge__ofi_land_step(o, f)
		       : kedge__ofi_send_step(o, f);
}

int kedge__ofi_stop(void *ctx, struct bulk *b)
{
	struct flow *f = flow_of(b);
	struct ofi *o = ctx;
	int rc;

	if (!f)
		return 0;
	/* The peer's answer may be what is waited for. */
	kedge__ofi_progress(o);
	if (o->err)
		return 0;
	rc = f->recv ? kedge__ofi_land_stop(o, f) : kedge__ofi_send_stop(o, f);
	if (!o->err) {
		kedge__ofi_flow_signals(o);
		kedge__ofi_pump(o);
	}
	return rc;
}

void kedge__ofi_end(void *ctx, struct bulk *b)
{
	struct flow *f = flow_of(b);

	b->priv[0] = 0;
	if (!f)
		return;
	f->bulk = NULL;
	if (f->recv)
		kedge__ofi_land_end(ctx, f, b->flags & BULK_FIN);
	else
		kedge__ofi_send_end(ctx, f);
}
