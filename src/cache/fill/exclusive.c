// SPDX-License-Identifier: BSD-2-Clause
/*
 * A device that takes no byte twice: it says KEDGE_DEVICE_EXCLUSIVE, or its reg has answered
 * -EEXIST. Before a range is registered, each registration that overlaps it has to end. If that is
 * not held, it goes, and the range grows to cover it where that is cheap, so that two ranges which
 * overlap do not drive each other out in turn. If it is held, the get fails with -EBUSY. If another
 * thread is making or ending it, the get waits for that thread, which waits for no other meanwhile.
 *
 * All regions are looked at, because the index names neither those that are dying nor the pages
 * that a region has lost, and the device has both still.
 */
#include "cache/internal.h"

struct obstacles {
	bool held;
	bool busy;  /* being made, or ended, by another thread */
	bool stuck; /* the device has failed to end it */
	uint64_t start; /* of all, and of the range that was looked at */
	uint64_t end;
	uint32_t access;
};

static bool overlaps(const struct kedge_cache *c, const struct region *r,
		     uint64_t start, uint64_t end)
{
	uint32_t phase = phase_of(state_of(r));

	if (phase == REGION_FREE || cold_of(c, r)->base) /* a window */
		return false;
	return r->mr.addr < end && start < r->mr.addr + r->mr.len;
}

static void add(struct obstacles *o, const struct region *r)
{
	if (r->mr.addr < o->start)
		o->start = r->mr.addr;
	if (r->mr.addr + r->mr.len > o->end)
		o->end = r->mr.addr + r->mr.len;
	o->access |= r->mr.access;
}

static void look(struct kedge_cache *c, uint64_t start, uint64_t end,
		 struct obstacles *o)
{
	uint32_t id;

	*o = (struct obstacles){ .start = start, .end = end };
	for (id = 1; id < c->ids_used; id++) {
		struct region *r = &c->regions[id];
		uint32_t state = state_of(r);

		if (!overlaps(c, r, start, end))
			continue;
		add(o, r);
		if (cold_of(c, r)->stuck)
			o->stuck = true;
		else if (phase_of(state) == REGION_MAKING ||
			 phase_of(state) == REGION_DEAD)
			o->busy = true;
		else if (phase_of(state) == REGION_DYING || is_held(c, id))
			o->held = true;
	}
}

static bool clear(const struct obstacles *o)
{
	return !o->held && !o->busy && !o->stuck;
}

/* Let the plan cover all that it makes go, if that is not much and can be. */
static void widen(struct kedge_cache *c, const struct want *w, struct plan *p,
		  const struct obstacles *o)
{
	uint64_t most = 2 * (p->end - p->start);
	struct obstacles wider;

	if (most < c->chunk_bytes)
		most = c->chunk_bytes;
	if (!w->merge || o->end - o->start > most ||
	    (c->attr.max_len && o->end - o->start > c->attr.max_len))
		return;
	look(c, o->start, o->end, &wider);
	/* Regions that overlap the wider range alone would have to go, too. */
	if (!clear(&wider) || wider.start != o->start || wider.end != o->end)
		return;
	p->merged |= o->start < p->start || o->end > p->end;
	p->start = o->start;
	p->end = o->end;
	p->access |= o->access;
}

static void kill_all(struct kedge_cache *c, const struct plan *p, uint32_t *killed)
{
	uint32_t id;

	for (id = 1; id < c->ids_used; id++) {
		struct region *r = &c->regions[id];

		if ((is_whole(state_of(r)) || is_holed(state_of(r))) &&
		    overlaps(c, r, p->start, p->end))
			region_kill(c, r, WHY_CHANGED, killed);
	}
}

static int held(const struct kedge_cache *c, const struct want *w)
{
	return kedge_reason(-EBUSY,
			    "a part of 0x%llx + %llu is registered and in use, and %s takes no "
			    "byte twice: put it first, or use kedge_cache_getv()",
			    (unsigned long long)w->start,
			    (unsigned long long)(w->end - w->start), c->dev->ops.name);
}

int make_way(struct kedge_cache *c, const struct want *w, struct plan *p,
	     uint32_t *killed, uint32_t *dead)
{
	struct obstacles o;

	p->exclusive = true;
	/* Catching up has killed regions: those that are not held end first. */
	region_collect(c, killed, dead);
	look(c, p->start, p->end, &o);
	if (!clear(&o) && p->merged) {
		/* Without the neighbours. */
		p->start = w->start;
		p->end = w->end;
		p->merged = p->joined = false;
		look(c, p->start, p->end, &o);
	}
	if (o.held)
		return held(c, w);
	if (o.busy)
		return WAY_BUSY;
	if (o.stuck)
		return WAY_STUCK;
	widen(c, w, p, &o);
	kill_all(c, p, killed);
	region_collect(c, killed, dead);
	/* A lookup may have taken a reference in the last moment. */
	look(c, p->start, p->end, &o);
	return o.held ? held(c, w) : 0;
}

bool way_is_clear(struct kedge_cache *c, const struct region *r)
{
	uint32_t id;

	for (id = 1; id < c->ids_used; id++)
		if (&c->regions[id] != r &&
		    overlaps(c, &c->regions[id], r->mr.addr, r->mr.addr + r->mr.len))
			return false;
	return true;
}

bool exclusive_learn(struct kedge_cache *c, const struct plan *p)
{
	if (p->exclusive)
		return false;
	pthread_mutex_lock(&c->lock);
	c->exclusive = true;
	pthread_mutex_unlock(&c->lock);
	return true;
}
