// SPDX-License-Identifier: BSD-2-Clause
/*
 * Flows: the bulks under way, what the peers say of them, and the ops that
 * either side has its own way of.
 */
#include <stdlib.h>

#include "channel/rdma/internal.h"

/* ---- what the peer says ---- */

static bool filled_received(struct rdma *r, const struct rdma_head *h)
{
	struct flow *f = kedge__rdma_flow_find(&r->landing, h->id);

	if (!f || !f->stream || !h->cnt ||
	    h->cnt > f->slot_cnt - (f->filled - f->drained) ||
	    h->cnt > flow_slots(f) - f->filled)
		return false;
	f->filled += h->cnt;
	return true;
}

static bool drained_received(struct rdma *r, const struct rdma_head *h)
{
	struct flow *f = kedge__rdma_flow_find(&r->sending, h->id);

	if (!f) /* it had no need to wait for that */
		return true;
	if (!f->stream || h->cnt > f->told - f->drained)
		return false;
	f->drained += h->cnt;
	return true;
}

static bool stopped_received(struct rdma *r, uint32_t id)
{
	struct flow *f = kedge__rdma_flow_find(&r->landing, id);

	if (!r->stops_cnt)
		return false;
	r->stops_cnt--;
	r->say = true;
	if (!f) /* what was asked about has ended otherwise */
		return id && id - 1 < r->next_id;
	if (!f->stop_sent || f->answered)
		return false;
	f->answered = f->quiet = true;
	if (!f->bulk)
		kedge__rdma_land_free(r, f);
	return true;
}

bool kedge__rdma_flow_landed(struct rdma *r, uint64_t id)
{
	struct flow *f = id <= r->next_id
				 ? kedge__rdma_flow_find(&r->landing,
							(uint32_t)id)
				 : NULL;

	/* Otherwise it must not say so: that would cost a posted buffer. */
	if (!r->tells)
		return false;
	if (!f) /* it was stopped, and is forgotten */
		return id && id <= r->next_id;
	if (f->stream)
		return false;
	if (f->bulk)
		f->bulk->flags |= BULK_FIN;
	return true;
}

bool kedge__rdma_flow_head(struct rdma *r, const struct rdma_head *h)
{
	switch (h->kind) {
	case HEAD_STOP:
		return kedge__rdma_stop_received(r, h->id);
	case HEAD_STOPPED:
		return stopped_received(r, h->id);
	case HEAD_FILLED:
		return filled_received(r, h);
	case HEAD_DRAINED:
		return drained_received(r, h);
	}
	return false;
}

/* ---- what we have to say ---- */

static bool say_slots(struct rdma *r, struct flow *f)
{
	enum head_kind kind = f->recv ? HEAD_DRAINED : HEAD_FILLED;
	uint32_t now = f->recv ? f->drained : f->filled;
	uint32_t cnt = now - f->told;

	if (!cnt)
		return true;
	if (cnt > UINT8_MAX)
		cnt = UINT8_MAX;
	if (!kedge__rdma_signal(r, kind, f->id, (uint8_t)cnt))
		return false;
	f->told += cnt;
	return true;
}

static bool say_answers(struct rdma *r)
{
	struct rdma_ids *a = &r->answers;

	while (a->head != a->tail) {
		/* Here they are counted, in a buffer they are not. */
		if (!r->credit)
			return false;
		if (!kedge__rdma_signal(r, HEAD_STOPPED,
				       a->id[a->head % STOPPED_CNT], 0))
			return false;
		a->head++;
	}
	return true;
}

static bool say_all(struct rdma *r)
{
	struct list *l, *tmp;
	struct flow *f;

	list_for_each_safe(l, tmp, &r->sending)
		if (!say_slots(r, list_entry(l, struct flow, node)))
			return false;
	list_for_each_safe(l, tmp, &r->landing) {
		f = list_entry(l, struct flow, node);
		if (!say_slots(r, f))
			return false;
		if (!f->stop_due || f->stop_sent)
			continue;
		if (r->stops_cnt == STOPS_MAX ||
		    !kedge__rdma_signal(r, HEAD_STOP, f->id, 0))
			return false;
		f->stop_sent = true;
		r->stops_cnt++;
	}
	return say_answers(r);
}

void kedge__rdma_flow_signals(struct rdma *r)
{
	if (r->say)
		r->say = !say_all(r);
}

static bool send_work(const struct rdma *r, const struct flow *f)
{
	if (f->stopped || f->reading)
		return false;
	return f->read_due || f->landed == f->len || kedge__rdma_may_write(r, f);
}

bool kedge__rdma_flow_work(const struct rdma *r)
{
	const struct list *l;
	const struct flow *f;

	for (l = r->sending.next; l != &r->sending; l = l->next)
		if (send_work(r, list_entry(l, struct flow, node)))
			return true;
	for (l = r->landing.next; l != &r->landing; l = l->next) {
		f = list_entry(l, struct flow, node);
		if (f->bulk && f->stream && f->filled != f->drained)
			return true;
	}
	return false;
}

/* ---- ops of both sides ---- */

void kedge__rdma_flows_free(struct rdma *r)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &r->sending)
		kedge__rdma_flow_free(list_entry(l, struct flow, node));
	list_for_each_safe(l, tmp, &r->landing)
		kedge__rdma_land_free(r, list_entry(l, struct flow, node));
}
