// SPDX-License-Identifier: BSD-2-Clause
/*
 * The sender's side of a flow: writes of at most a chunk, some at a time, each
 * within one piece of the source and one target.
 */
#include <stdlib.h>

#include "channel/rdma/internal.h"

int kedge__rdma_offer(void *ctx, struct bulk *b, void *desc, size_t *len)
{
	struct rdma *r = ctx;
	uint32_t i;
	int rc;

	for (i = 0; i < b->piece_cnt; i++) {
		rc = kedge__rdma_mapped(b->piece[i].addr, b->piece[i].len);
		if (rc)
			return rc;
	}
	b->priv[0] = 0;
	*len = 0;
	r->later = r->rts = !r->pins;
	return 0;
}

/* ---- stopping ---- */

static bool ids_add(struct rdma_ids *ids, uint32_t id)
{
	if (ids->tail - ids->head == STOPPED_CNT)
		return false;
	ids->id[ids->tail++ % STOPPED_CNT] = id;
	return true;
}

static bool was_stopped(const struct rdma_ids *ids, uint32_t id)
{
	uint32_t i;

	for (i = ids->head; i != ids->tail; i++)
		if (ids->id[i % STOPPED_CNT] == id)
			return true;
	return false;
}

/* The peer stops flow @id. False: it asks twice, or has too many questions open. */
bool kedge__rdma_stop_received(struct rdma *r, uint32_t id)
{
	struct flow *f = kedge__rdma_flow_find(&r->sending, id);

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
		if (r->stopped.tail - r->stopped.head == STOPPED_CNT)
			r->stopped.head++;
		ids_add(&r->stopped, id);
	}
	r->say = true;
	return ids_add(&r->answers, id);
}

static void answer_if_due(struct rdma *r, struct flow *f)
{
	if (!f->answer || f->in_flight || f->reading)
		return;
	f->answer = false;
	r->say = true;
	if (!ids_add(&r->answers, f->id))
		kedge__rdma_die(r, -EPROTO);
}

int kedge__rdma_send_stop(struct rdma *r, struct flow *f)
{
	f->stopped = true;
	if (f->in_flight || f->reading)
		return kedge__rdma_stop_wait(r, f);
	return 0;
}

void kedge__rdma_send_end(struct rdma *r, struct flow *f)
{
	/* It was not stopped before: the connection is given up. */
	if (f->in_flight || f->reading)
		kedge__rdma_die(r, -ECONNRESET);
	/* First the program hears of it, and says what comes next: announced
	 * behind all the other data it would be answered too late. */
	r->sending_cnt--;
	r->sending_len -= f->len - f->landed;
	r->pause = r->polling && !rdma_ahead(r);
	answer_if_due(r, f);
	if (f->table_reg)
		r->port->dereg(r, f->table_reg);
	kedge__rdma_flow_free(f);
}

/* ---- the table of targets, where there are too many for a descriptor ---- */

static int post_read(struct rdma *r, struct flow *f)
{
	int rc = r->port->read(r, f);

	if (rc == -EAGAIN)
		return -EAGAIN;
	if (rc) {
		kedge__rdma_die(r, -ECONNRESET);
		return -EAGAIN;
	}
	f->read_due = false;
	f->reading = true;
	return 0;
}

void kedge__rdma_read_done(struct rdma *r, struct flow *f)
{
	f->reading = false;
	if (kedge__rdma_desc_targets(f->target, f->target_cnt, f->len))
		kedge__rdma_die(r, -EPROTO);
	answer_if_due(r, f);
}

/* ---- starting ---- */

static int take_targets(struct rdma *r, struct flow *f, const struct rdma_desc *d)
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
	if (!r->local_desc)
		return 0;
	return r->port->reg(r, f->target, d->cnt * sizeof(*f->target),
			    KEDGE_ACCESS_LOCAL_WRITE, &f->table_reg);
}

int kedge__rdma_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len)
{
	union rdma_desc_room d;
	struct rdma *r = ctx;
	struct flow *f;
	int rc;

	b->priv[0] = 0;
	rc = kedge__rdma_desc_parse(cts, cts_len, b->len, &d.desc);
	if (rc)
		return rc;
	if (kedge__rdma_flow_find(&r->sending, d.desc.id))
		return kedge_reason(-EPROTO, "the peer gives two transfers "
					     "one number: it is no kedge of "
					     "this version, or broken");
	f = kedge__rdma_flow_new(b, d.desc.id);
	if (!f)
		return kedge_reason(-ENOMEM, "no memory for a message");
	rc = take_targets(r, f, &d.desc);
	if (rc) {
		kedge__rdma_flow_free(f);
		return rc;
	}
	f->stopped = was_stopped(&r->stopped, f->id);
	list_add_tail(&r->sending, &f->node);
	r->sending_cnt++;
	r->sending_len += f->len;
	b->priv[0] = (uintptr_t)f;
	return 0;
}

/* ---- writing ---- */

/* Its last write goes with its name, and there is no FIN. */
static bool tells(const struct rdma *r, const struct flow *f)
{
	return r->tells && !f->stream;
}

static void one_done(struct rdma *r, struct rdma_write *w)
{
	struct flow *f = w->flow;

	f->landed += w->len;
	r->sending_len -= w->len;
	if (w->slot_end) {
		f->filled++;
		r->say = true;
	}
	kedge__rdma_write_idle(r, w);
	if (f->landed == f->len && f->bulk && tells(r, f))
		f->bulk->flags |= BULK_ACKED;
	answer_if_due(r, f);
}

void kedge__rdma_write_done(struct rdma *r, struct rdma_write *w)
{
	struct rdma_write *first = w;

	do {
		/* Those before it were not asked. */
		if (r->batch && !list_empty(&r->written))
			first = list_entry(r->written.next, struct rdma_write,
					   node);
		one_done(r, first);
	} while (first != w && !r->err);
}

/* The bytes that can be written at once from here to there. */
static uint64_t room_for(const struct rdma *r, struct flow *f, uint64_t *to)
{
	const struct bulk_piece *src = &f->bulk->piece[f->src];
	uint64_t len = r->chunk_len, in_slot;
	const struct rdma_target *t;

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

static void advance(struct rdma *r, struct flow *f, struct rdma_write *w)
{
	f->src_off += w->len;
	f->posted += w->len;
	f->in_flight++;
	r->flight_len += w->len;
	if (f->stream)
		w->slot_end = !(f->posted % f->slot_len) || f->posted == f->len;
	else
		f->dst_off += w->len;
}

/* Find source and target of the next write: 0, or a negative errno. */
static int prepare(struct rdma *r, struct flow *f, struct rdma_write *w)
{
	uint64_t addr;
	int rc;

	w->len = room_for(r, f, &w->to.addr);
	addr = f->bulk->piece[f->src].addr + f->src_off;
	do {
		rc = kedge__rdma_source(r, &addr, w->len, &w->desc,
					&w->cached);
	} while (rc == -ENOMEM && kedge__rdma_areas_trim(r));
	if (rc)
		return rc;
	w->to.len = w->from.iov_len = w->len;
	w->to.key = f->target[f->stream ? 0 : f->dst].key;
	w->from.iov_base = (void *)(uintptr_t)addr;
	w->slot_end = false;
	w->tells = tells(r, f) && f->posted + w->len == f->len;
	w->flow = f;
	return 0;
}

/* False: the port has no room now, or is closed. */
static bool post_write(struct rdma *r, struct rdma_write *w, bool asked)
{
	bool takes = w->tells && r->tells_takes;
	int rc = takes && !r->credit ? -EAGAIN : r->port->write(r, w, asked);

	if (rc && rc != -EAGAIN)
		kedge__rdma_die(r, -ECONNRESET);
	if (!rc)
		r->credit -= takes;
	return !rc;
}

/*
 * Each completion that is asked for costs what a descriptor costs to be made
 * readable, and read: with TCP as much as a short message.
 */
void kedge__rdma_writes_post(struct rdma *r)
{
	struct list *l;
	bool asked;

	while (!r->err && !list_empty(&r->staged)) {
		l = r->staged.next;
		asked = !r->batch || l->next == &r->staged;
		if (!post_write(r, list_entry(l, struct rdma_write, node),
				asked))
			return;
		list_remove(l);
		list_add_tail(&r->written, l);
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
static uint32_t writes_max(const struct rdma *r, const struct flow *f)
{
	const struct list *l;

	/* Without an order, one after the other: slots fill in order. */
	if (f->stream && !r->ordered)
		return 1;
	for (l = r->sending.next; l != &f->node; l = l->next)
		if (has_room(list_entry(l, struct flow, node)))
			return 1;
	return FLOW_WRITES;
}

bool kedge__rdma_may_write(const struct rdma *r, const struct flow *f)
{
	return has_room(f) && !list_empty(&r->idle_writes) && !r->pause &&
	       r->flight_len < FLIGHT_LEN &&
	       f->in_flight < writes_max(r, f);
}

int kedge__rdma_send_step(struct rdma *r, struct flow *f)
{
	struct rdma_write *w;
	int moved = -EAGAIN;
	int rc;

	if (r->err)
		return -EAGAIN;
	if (f->stopped || f->reading)
		return -EAGAIN;
	if (f->read_due)
		return post_read(r, f);
	while (kedge__rdma_may_write(r, f)) {
		w = list_entry(r->idle_writes.next, struct rdma_write, node);
		rc = prepare(r, f, w);
		if (rc)
			return rc;
		list_remove(&w->node);
		list_add_tail(&r->staged, &w->node);
		advance(r, f, w);
		moved = 0;
	}
	/* Outside of a poll no flush() follows. */
	if (!r->polling)
		kedge__rdma_writes_post(r);
	return f->landed == f->len && f->told == f->filled ? 1 : moved;
}
