// SPDX-License-Identifier: BSD-2-Clause
/*
 * Catching up with the notifier: read what happened, take just the pages it
 * names out of the index. What is in flight keeps its region until its put.
 */
#include "cache/internal.h"

#define BATCH 64

/* Below this a region goes whole: to keep the rest is not worth a hole. */
#define HOLE_MIN ((uint64_t)64 << 10)

static void spoil(struct region_cold *cold, const struct taken *t)
{
	if (cold->spoiled_start == cold->spoiled_end) {
		cold->spoiled_start = t->start;
		cold->spoiled_end = t->end;
	}
	if (t->start < cold->spoiled_start)
		cold->spoiled_start = t->start;
	if (t->end > cold->spoiled_end)
		cold->spoiled_end = t->end;
}

/*
 * An event took [t->start, t->end) of a region. While at least half of it is
 * good, the rest goes on serving; the pages that are gone stay pinned till the
 * region goes, so no more than as many as are good.
 */
static void invalidate(struct kedge_cache *c, struct region *r,
		       const struct taken *t, uint32_t *killed)
{
	struct region_cold *cold = cold_of(c, r);

	c->st.invalidations++;
	if (t->kind < ARRAY_SIZE(c->st.invalidated))
		c->st.invalidated[t->kind]++;
	lost_note(c, r, t->start, t->end);
	if (r->mr.len <= HOLE_MIN) {
		region_kill(c, r, WHY_CHANGED, killed);
		return;
	}
	/*
	 * The state first: a reader that sees the slots cleared only half
	 * must not take the region for whole. Readers that saw it whole
	 * loaded the generation before this event.
	 */
	set_state(c, r, REGION_HOLED, REGION_ASK | REGION_FREED);
	cold->bad += index_clear(c, t->start, t->end, region_id(c, r));
	if (cold->bad * 2 > r->mr.len)
		region_kill(c, r, WHY_CHANGED, killed);
}

static void handle(struct kedge_cache *c, const struct taken *t,
		   uint32_t *killed)
{
	struct region_cold *cold =
		container_of(t->watch, struct region_cold, watch);
	struct region *r = &c->regions[cold->id];

	/* An event that came while it was made may be of before it was asked for. */
	preserve_note(cold, t, state_of(r) != REGION_MAKING);
	if (state_of(r) == REGION_MAKING)
		spoil(cold, t);
	else if (is_whole(state_of(r)) || is_holed(state_of(r)))
		invalidate(c, r, t, killed);
}

/* The generation up to which all was read. */
static uint64_t drain(struct kedge_cache *c, uint32_t *killed)
{
	struct taken t[BATCH];
	uint64_t drained = 0;
	size_t n, i;

	/* The notifier's lock is taken for each event: the mask, once. */
	signals_block();
	while (!drained) {
		n = notify_take(c->nf, &c->queue, t, BATCH, &drained);
		for (i = 0; i < n; i++)
			handle(c, &t[i], killed);
	}
	signals_restore();
	return drained;
}

void cache_sync(struct kedge_cache *c, uint32_t *killed)
{
	uint64_t drained;

	if (all_handled(c))
		return;
	c->st.resyncs++;
	drained = drain(c, killed);
	/*
	 * release: after the index was changed. Partners: caught_up(),
	 * all_handled(). A thread that makes the notifier ask moves the
	 * generation afterwards: a value of before in seen equals no
	 * generation any more.
	 */
	atomic_store_explicit(&c->handled, drained, memory_order_release);
	atomic_store_explicit(&c->seen, nf_asks(c->nf) ? SEEN_NEVER : drained,
			      memory_order_release);
}
