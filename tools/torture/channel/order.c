// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages are matched in the order in which they were sent, receives in the
 * order in which they were posted. So of two receives that got messages, the
 * one that was posted first got the earlier one, unless it would not have taken
 * the other at all. Completions may come in any order: what a receive got is
 * compared with what those before it got, and told to those that still wait.
 */
#include "tools/torture/channel/chan.h"

static bool takes(const struct chan_recv *v, uint32_t class, uint32_t n)
{
	if (v->pattern == PATTERN_ONE)
		return v->n == n;
	return v->pattern == CHAN_CLASSES || v->pattern == class;
}

/* A receive posted before this one, for what this one got, has got a later
 * message. */
static const struct chan_match *overtaken(const struct chan_order *o,
					  uint32_t pattern, uint64_t post,
					  uint32_t n)
{
	const struct chan_match *m;
	uint32_t i, cnt = o->cnt[pattern];

	m = &o->past[pattern];
	if (cnt > ORDER_KEPT && m->post < post && m->n > n)
		return m;
	for (i = 0; i < cnt && i < ORDER_KEPT; i++) {
		m = &o->kept[pattern][i];
		if (m->post < post && m->n > n)
			return m;
	}
	return NULL;
}

static void keep(struct chan_order *o, uint32_t pattern, uint64_t post,
		 uint32_t n)
{
	struct chan_match *m = &o->kept[pattern][o->cnt[pattern] % ORDER_KEPT];

	if (o->cnt[pattern]++ >= ORDER_KEPT && m->n > o->past[pattern].n)
		o->past[pattern] = *m;
	*m = (struct chan_match){ post, n };
}

void chan_order_add(struct chan_rank *r, const struct chan_recv *v,
		    uint32_t class, uint32_t n)
{
	const struct chan_match *m = overtaken(&r->order, class, v->post, n);
	struct chan_recv *w;
	size_t i;

	if (!m)
		m = overtaken(&r->order, CHAN_CLASSES, v->post, n);
	if (m)
		chan_wrong(r->tally, "message %u came after message %u, to a "
			   "receive that was posted later", n, m->n);
	if (n > v->below)
		chan_wrong(r->tally, "message %u came to a receive that would "
			   "have taken message %llu", n,
			   (unsigned long long)v->below);
	for (i = 0; i < CHAN_WINDOW; i++) {
		w = &r->recv[i];
		if (w->busy && w->post < v->post && takes(w, class, n) &&
		    n < w->below)
			w->below = n;
	}
	if (v->pattern <= CHAN_CLASSES)
		keep(&r->order, v->pattern, v->post, n);
}
