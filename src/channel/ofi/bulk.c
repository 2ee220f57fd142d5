// SPDX-License-Identifier: BSD-2-Clause
/*
 * Flows: the bulks under way, what the peers say of them, and the ops that
 * either side has its own way of.
 */
#include <stdlib.h>

#include "channel/ofi/internal.h"

/* ---- what the peer says ---- */

static bool filled_received(struct ofi *o, const struct ofi_head *h)
{
	struct flow *f = kedge__ofi_flow_find(&o->landing, h->id);

	if (!f || !f->stream || !h->cnt ||
	    h->cnt > f->slot_cnt - (f->filled - f->drained) ||
	    h->cnt > flow_slots(f) - f->filled)
		return false;
	f->filled += h->cnt;
	return true;
}

static bool drained_received(struct ofi *o, const struct ofi_head *h)
{
	struct flow *f = kedge__ofi_flow_find(&o->sending, h->id);

	if (!f) /* it had no need to wait for that */
		return true;
	if (!f->stream || h->cnt > f->told - f->drained)
		return false;
	f->drained += h->cnt;
	return true;
}

static bool stopped_received(struct ofi *o, uint32_t id)
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

	/* Otherwise it must not say so: that would cost a posted buffer. */
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
		return kedge__ofi_stop_received(o, h->id);
	case HEAD_STOPPED:
		return stopped_received(o, h->id);
	case HEAD_FILLED:
		return filled_received(o, h);
	case HEAD_DRAINED:
		return drained_received(o, h);
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

void kedge__ofi_flows_free(struct ofi *o)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &o->sending)
		kedge__ofi_flow_free(list_entry(l, struct flow, node));
	list_for_each_safe(l, tmp, &o->landing)
		kedge__ofi_land_free(o, list_entry(l, struct flow, node));
}
