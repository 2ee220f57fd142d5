// SPDX-License-Identifier: BSD-2-Clause
/*
 * Flows: the bulks under way, what the peers say of them, and the ops that
 * either side has its own way of.
 */
#include <stdlib.h>

#include "channel/ofi/internal.h"

struct flow *kedge__ofi_flow_new(struct bulk *b, uint32_t id)
{
	struct flow *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	list_init(&f->node);
	f->bulk = b;
	f->id = id;
	f->len = b->len;
	f->read_op.kind = OFI_READ;
	return f;
}

void kedge__ofi_flow_free(struct flow *f)
{
	list_remove(&f->node);
	free(f->target);
	free(f->mr);
	free(f);
}

struct flow *kedge__ofi_flow_find(struct list *flows, uint32_t id)
{
	struct list *l, *tmp;
	struct flow *f;

	list_for_each_safe(l, tmp, flows) {
		f = list_entry(l, struct flow, node);
		if (f->id == id)
			return f;
	}
	return NULL;
}

static struct flow *flow_of(const struct bulk *b)
{
	return (struct flow *)(uintptr_t)b->priv[0];
}

/* ---- what the peer says ---- */

static bool filled_came(struct ofi *o, const struct ofi_head *h)
{
	struct flow *f = kedge__ofi_flow_find(&o->landing, h->id);

	if (!f || !f->stream || !h->cnt ||
	    h->cnt > f->slot_cnt - (f->filled - f->drained) ||
	    h->cnt > flow_slots(f) - f->filled)
		return false;
	f->filled += h->cnt;
	return true;
}

static bool drained_came(struct ofi *o, const struct ofi_head *h)
{
	struct flow *f = kedge__ofi_flow_find(&o->sending, h->id);

	if (!f) /* it had no need to wait for that */
		return true;
	if (!f->stream || h->cnt > f->told - f->drained)
		return false;
	f->drained += h->cnt;
	return true;
}

static bool stopped_came(struct ofi *o, uint32_t id)
{
	struct flow *f = kedge__ofi_flow_find(&o->landing, id);

	if (!o->stops_cnt)
		return false;
	o->stops_cnt--;
	o->say = true;
	if (!f) /* what was asked about has ended otherwise */
		return id && id - 1 < o->next_id;
	if (!f->stop_sent || f->answered)
		return false;
	f->answered = f->quiet = true;
	if (!f->bulk)
		kedge__ofi_land_free(o, f);
	return true;
}

bool kedge__ofi_flow_landed(struct ofi *o, uint64_t id)
{
	struct flow *f = id <= o->next_id
				 ? kedge__ofi_flow_find(&o->landing,
							(uint32_t)id)
				 : NULL;

	/* Elsewhere nobody is to say so: it would cost a posted buffer. */
	if (!o->tells)
		return false;
	if (!f) /* it was stopped, and is forgotten */
		return id && id <= o->next_id;
	if (f->stream)
		return false;
	if (f->bulk)
		f->bulk->flags |= BULK_FIN;
	return true;
}

bool kedge__ofi_flow_head(struct ofi *o, const struct ofi_head *h)
{
	switch (h->kind) {
	case HEAD_STOP:
		return kedge__ofi_stop_came(o, h->id);
	case HEAD_STOPPED:
		return stopped_came(o, h->id);
	case HEAD_FILLED:
		return filled_came(o, h);
	case HEAD_DRAINED:
		return drained_came(o, h);
	}
	return false;
}

/* ---- what we have to say ---- */

static bool say_slots(struct ofi *o, struct flow *f)
{
	enum head_kind kind = f->recv ? HEAD_DRAINED : HEAD_FILLED;
	uint32_t now = f->recv ? f->drained : f->filled;
	uint32_t cnt = now - f->told;

	if (!cnt)
		return true;
	if (cnt > UINT8_MAX)
		cnt = UINT8_MAX;
	if (!kedge__ofi_signal(o, kind, f->id, (uint8_t)cnt))
		return false;
	f->told += cnt;
	return true;
}

static bool say_answers(struct ofi *o)
{
	struct ofi_ids *a = &o->answers;

	while (a->head != a->tail) {
		/* Here they are counted, in a buffer they are not. */
		if (!o->credit)
			return false;
		if (!kedge__ofi_signal(o, HEAD_STOPPED,
				       a->id[a->head % STOPPED_CNT], 0))
			return false;
		a->head++;
	}
	return true;
}

static bool say_all(struct ofi *o)
{
	struct list *l, *tmp;
	struct flow *f;

	list_for_each_safe(l, tmp, &o->sending)
		if (!say_slots(o, list_entry(l, struct flow, node)))
			return false;
	list_for_each_safe(l, tmp, &o->landing) {
		f = list_entry(l, struct flow, node);
		if (!say_slots(o, f))
			return false;
		if (!f->stop_due || f->stop_sent)
			continue;
		if (o->stops_cnt == STOPS_MAX ||
		    !kedge__ofi_signal(o, HEAD_STOP, f->id, 0))
			return false;
		f->stop_sent = true;
		o->stops_cnt++;
	}
	return say_answers(o);
}

void kedge__ofi_flow_signals(struct ofi *o)
{
	if (o->say)
		o->say = !say_all(o);
}

static bool send_work(const struct ofi *o, const struct flow *f)
{
	if (f->stopped || f->reading)
		return false;
	return f->read_due || f->landed == f->len || kedge__ofi_may_write(o, f);
}

bool kedge__ofi_flow_work(const struct ofi *o)
{
	const struct list *l;
	const struct flow *f;

	for (l = o->sending.next; l != &o->sending; l = l->next)
		if (send_work(o, list_entry(l, struct flow, node)))
			return true;
	for (l = o->landing.next; l != &o->landing; l = l->next) {
		f = list_entry(l, struct flow, node);
		if (f->bulk && f->stream && f->filled != f->drained)
			return true;
	}
	return false;
}

/* ---- ops of both sides ---- */

int kedge__ofi_stop_wait(struct ofi *o, struct flow *f)
{
	if (!f->deadline)
		f->deadline = clock_ns() + STOP_NS;
	if (clock_ns() < f->deadline)
		return -EBUSY;
	/* The one way left to be sure. */
	kedge__log(KEDGE_LOG_WARN, "the peer did not let go of a message in "
				   "time: the connection is closed");
	kedge__ofi_die(o, -ECONNRESET);
	return 0;
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

void kedge__ofi_flows_free(struct ofi *o)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &o->sending)
		kedge__ofi_flow_free(list_entry(l, struct flow, node));
	list_for_each_safe(l, tmp, &o->landing)
		kedge__ofi_land_free(o, list_entry(l, struct flow, node));
}
