// SPDX-License-Identifier: BSD-2-Clause
/*
 * The sender's side of a flow: writes of at most a chunk, some at a time, each
 * within one piece of the source and one target.
 */
#include <stdlib.h>

#include "channel/ofi/internal.h"

int kedge__ofi_offer(void *ctx, struct bulk *b, void *desc, size_t *len)
{
	struct ofi *o = ctx;
	uint32_t i;
	int rc;

	for (i = 0; i < b->piece_cnt; i++) {
		rc = kedge__ofi_mapped(b->piece[i].addr, b->piece[i].len);
		if (rc)
			return rc;
	}
	b->priv[0] = 0;
	*len = 0;
	o->later = o->rts = !o->pins;
	return 0;
}

/* ---- stopping ---- */

static bool ids_add(struct ofi_ids *ids, uint32_t id)
{
	if (ids->tail - ids->head == STOPPED_CNT)
		return false;
	ids->id[ids->tail++ % STOPPED_CNT] = id;
	return true;
}

static bool was_stopped(const struct ofi_ids *ids, uint32_t id)
{
	uint32_t i;

	for (i = ids->head; i != ids->tail; i++)
		if (ids->id[i % STOPPED_CNT] == id)
			return true;
	return false;
}

/* The peer stops flow @id. False: it asks twice, or has too many questions open. */
bool kedge__ofi_stop_received(struct ofi *o, uint32_t id)
{
	struct flow *f = kedge__ofi_flow_find(&o->sending, id);

	if (f && f->answer)
		return false;
	if (f)
		f->stopped = true;
	if (f && (f->in_flight || f->reading)) {
		f->answer = true;
		return true;
	}
	if (!f) {
		/* It is over, or its CTS has not been looked at yet. */
		if (o->stopped.tail - o->stopped.head == STOPPED_CNT)
			o->stopped.head++;
		ids_add(&o->stopped, id);
	}
	o->say = true;
	return ids_add(&o->answers, id);
}

static void answer_if_due(struct ofi *o, struct flow *f)
{
	if (!f->answer || f->in_flight || f->reading)
		return;
	f->answer = false;
	o->say = true;
	if (!ids_add(&o->answers, f->id))
		kedge__ofi_die(o, -EPROTO);
}

int kedge__ofi_send_stop(struct ofi *o, struct flow *f)
{
	f->stopped = true;
	if (f->in_flight || f->reading)
		return kedge__ofi_stop_wait(o, f);
	return 0;
}

void kedge__ofi_send_end(struct ofi *o, struct flow *f)
{
	/* It was not stopped before: the connection is given up. */
	if (f->in_flight || f->reading)
		kedge__ofi_die(o, -ECONNRESET);
	/* First the program hears of it, and says what comes next: announced
	 * behind all the other data it would be answered too late. */
	o->sending_cnt--;
	o->sending_len -= f->len - f->landed;
	o->pause = o->polling && !ofi_ahead(o);
	answer_if_due(o, f);
	if (f->table_mr)
		fi_close(&f->table_mr->fid);
	kedge__ofi_flow_free(f);
}

/* ---- the table of targets, where there are too many for a descriptor ---- */

static int post_read(struct ofi *o, struct flow *f)
{
	const size_t len = f->target_cnt * sizeof(*f->target);
	const struct iovec to = { .iov_base = f->target, .iov_len = len };
	const struct fi_rma_iov from = { f->table.addr, len, f->table.key };
	void *desc = f->table_mr ? fi_mr_desc(f->table_mr) : NULL;
	const struct fi_msg_rma msg = {
		.msg_iov = &to, .desc = &desc, .iov_count = 1,
		.addr = o->peer,
		.rma_iov = &from, .rma_iov_count = 1,
		.context = &f->read_op,
	};
	ssize_t rc;

	rc = fi_readmsg(o->ep, &msg, FI_COMPLETION);
	if (rc == -FI_EAGAIN)
		return -EAGAIN;
	if (rc) {
		kedge__ofi_die(o, -ECONNRESET);
		return -EAGAIN;
	}
	f->read_due = false;
	f->reading = true;
	return 0;
}

void kedge__ofi_read_done(struct ofi *o, struct flow *f)
{
	f->reading = false;
	if (kedge__ofi_desc_targets(f->target, f->target_cnt, f->len))
		kedge__ofi_die(o, -EPROTO);
	answer_if_due(o, f);
}

/* ---- starting ---- */

static int take_targets(struct ofi *o, struct flow *f, const struct ofi_desc *d)
{
	f->target_cnt = d->cnt;
	f->stream = d->kind == DESC_STREAM;
	f->slot_len = d->slot_len;
	f->slot_cnt = d->slot_cnt;
	f->target = calloc(d->cnt, sizeof(*f->target));
	if (!f->target)
		return kedge_reason(-ENOMEM, "no memory for a message");
	if (d->kind != DESC_TABLE) {
		memcpy(f->target, d->target, d->cnt * sizeof(*f->target));
		return 0;
	}
	f->table = d->target[0];
	f->read_due = true;
	if (!o->local_desc)
		return 0;
	return kedge__ofi_reg(o, f->target, d->cnt * sizeof(*f->target),
			      FI_READ, &f->table_mr);
}

int kedge__ofi_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len)
{
	union ofi_desc_room d;
	struct ofi *o = ctx;
	struct flow *f;
	int rc;

	b->priv[0] = 0;
	rc = kedge__ofi_desc_parse(cts, cts_len, b->len, &d.desc);
	if (rc)
		return rc;
	if (kedge__ofi_flow_find(&o->sending, d.desc.id))
		return kedge_reason(-EPROTO, "the peer gives two transfers "
					     "one number: it is no kedge of "
					     "this version, or broken");
	f = kedge__ofi_flow_new(b, d.desc.id);
	if (!f)
		return kedge_reason(-ENOMEM, "no memory for a message");
	rc = take_targets(o, f, &d.desc);
	if (rc) {
		kedge__ofi_flow_free(f);
		return rc;
	}
	f->stopped = was_stopped(&o->stopped, f->id);
	list_add_tail(&o->sending, &f->node);
	o->sending_cnt++;
	o->sending_len += f->len;
	b->priv[0] = (uintptr_t)f;
	return 0;
}

/* ---- writing ---- */

/* Its last write goes with its name, and there is no FIN. */
static bool tells(const struct ofi *o, const struct flow *f)
{
	return o->tells && !f->stream;
}

static void one_done(struct ofi *o, struct ofi_write *w)
{
	struct flow *f = w->flow;

	f->landed += w->len;
	o->sending_len -= w->len;
	if (w->slot_end) {
		f->filled++;
		o->say = true;
	}
	kedge__ofi_write_idle(o, w);
	if (f->landed == f->len && f->bulk && tells(o, f))
		f->bulk->flags |= BULK_ACKED;
	answer_if_due(o, f);
}

void kedge__ofi_write_done(struct ofi *o, struct ofi_write *w)
{
	struct ofi_write *first = w;

	do {
		/* Those before it were not asked. */
		if (o->batch && !list_empty(&o->written))
			first = list_entry(o->written.next, struct ofi_write,
					   node);
		one_done(o, first);
	} while (first != w && !o->err);
}

/* How much can be written at once from here to there. */
static uint64_t room_for(const struct ofi *o, struct flow *f, uint64_t *to)
{
	const struct bulk_piece *src = &f->bulk->piece[f->src];
	uint64_t len = o->chunk_len, in_slot;
	const struct ofi_target *t;

	while (f->src_off == src->len) {
		src++;
		f->src++;
		f->src_off = 0;
	}
	if (len > src->len - f->src_off)
		len = src->len - f->src_off;
	if (len > f->len - f->posted)
		len = f->len - f->posted;
	if (f->stream) {
		in_slot = f->posted % f->slot_len;
		*to = f->target->addr + in_slot +
		      f->posted / f->slot_len % f->slot_cnt * f->slot_len;
		return len < f->slot_len - in_slot ? len
						   : f->slot_len - in_slot;
	}
	t = &f->target[f->dst];
	if (f->dst_off == t->len) {
		t++;
		f->dst++;
		f->dst_off = 0;
	}
	*to = t->addr + f->dst_off;
	return len < t->len - f->dst_off ? len : t->len - f->dst_off;
}

static void advance(struct ofi *o, struct flow *f, struct ofi_write *w)
{
	f->src_off += w->len;
	f->posted += w->len;
	f->in_flight++;
	o->flight_len += w->len;
	if (f->stream)
		w->slot_end = !(f->posted % f->slot_len) || f->posted == f->len;
	else
		f->dst_off += w->len;
}

/* Find source and target of the next write: 0, or a negative errno. */
static int prepare(struct ofi *o, struct flow *f, struct ofi_write *w)
{
	uint64_t addr;
	int rc;

	w->len = room_for(o, f, &w->to.addr);
	addr = f->bulk->piece[f->src].addr + f->src_off;
	rc = kedge__ofi_source(o, addr, w->len, &w->desc, &w->cached);
	if (rc)
		return rc;
	w->to.len = w->from.iov_len = w->len;
	w->to.key = f->target[f->stream ? 0 : f->dst].key;
	w->from.iov_base = (void *)(uintptr_t)addr;
	w->slot_end = false;
	w->tells = tells(o, f) && f->posted + w->len == f->len;
	w->flow = f;
	return 0;
}

/* False: the provider has no room now, or is closed. */
static bool post_write(struct ofi *o, struct ofi_write *w, uint64_t flags)
{
	const struct fi_msg_rma msg = {
		.msg_iov = &w->from, .desc = &w->desc, .iov_count = 1,
		.addr = o->peer,
		.rma_iov = &w->to, .rma_iov_count = 1,
		.context = &w->op,
		.data = w->flow->id,
	};
	ssize_t rc;

	if (w->tells)
		flags |= FI_REMOTE_CQ_DATA;
	if (!o->ordered)
		flags |= FI_DELIVERY_COMPLETE;
	rc = fi_writemsg(o->ep, &msg, flags);
	if (rc && rc != -FI_EAGAIN)
		kedge__ofi_die(o, -ECONNRESET);
	return !rc;
}

/*
 * Each completion that is asked for costs what a descriptor costs to be made
 * readable, and read: with TCP as much as a short message.
 */
void kedge__ofi_writes_post(struct ofi *o)
{
	struct list *l;
	uint64_t flags;

	while (!o->err && !list_empty(&o->staged)) {
		l = o->staged.next;
		flags = o->batch && l->next != &o->staged ? 0 : FI_COMPLETION;
		if (!post_write(o, list_entry(l, struct ofi_write, node),
				flags))
			return;
		list_remove(l);
		list_add_tail(&o->written, l);
	}
}

static bool has_room(const struct flow *f)
{
	return f->posted != f->len && !f->stopped && !f->reading &&
	       (!f->stream ||
		f->posted / f->slot_len - f->drained < f->slot_cnt);
}

/*
 * The first one goes ahead, the others move on by one write at a time: if all
 * were done at the same time, no data would be under way while the messages
 * after them are agreed on.
 */
static uint32_t writes_max(const struct ofi *o, const struct flow *f)
{
	const struct list *l;

	/* Without an order, one after the other: slots fill in order. */
	if (f->stream && !o->ordered)
		return 1;
	for (l = o->sending.next; l != &f->node; l = l->next)
		if (has_room(list_entry(l, struct flow, node)))
			return 1;
	return FLOW_WRITES;
}

bool kedge__ofi_may_write(const struct ofi *o, const struct flow *f)
{
	return has_room(f) && !list_empty(&o->idle_writes) && !o->pause &&
	       o->flight_len < FLIGHT_LEN &&
	       f->in_flight < writes_max(o, f);
}

int kedge__ofi_send_step(struct ofi *o, struct flow *f)
{
	struct ofi_write *w;
	int moved = -EAGAIN;
	int rc;

	if (o->err)
		return -EAGAIN;
	if (f->stopped || f->reading)
		return -EAGAIN;
	if (f->read_due)
		return post_read(o, f);
	while (kedge__ofi_may_write(o, f)) {
		w = list_entry(o->idle_writes.next, struct ofi_write, node);
		rc = prepare(o, f, w);
		if (rc)
			return rc;
		list_remove(&w->node);
		list_add_tail(&o->staged, &w->node);
		advance(o, f, w);
		moved = 0;
	}
	/* Outside of a poll no flush() follows. */
	if (!o->polling)
		kedge__ofi_writes_post(o);
	return f->landed == f->len && f->told == f->filled ? 1 : moved;
}
