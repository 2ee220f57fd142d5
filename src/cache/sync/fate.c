// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region's fate: what has happened to it since its device pinned it, as far as
 * preserve.c has to know; and the watch of its range, which lasts until preserve.c
 * is done.
 */
#include "cache/internal.h"

#define ACCESS_WRITES                                           \
	((uint32_t)(KEDGE_ACCESS_LOCAL_WRITE |                  \
		    KEDGE_ACCESS_REMOTE_WRITE | KEDGE_ACCESS_REMOTE_ATOMIC))

static bool is_due(const struct kedge_cache *c, const struct region *r)
{
	const struct region_cold *cold = cold_of(c, r);

	return c->dev->ops.preserve && r->mr.access & ACCESS_WRITES &&
	       cold->watched && !cold->safe;
}

void region_unwatch(struct kedge_cache *c, struct region *r)
{
	struct region_cold *cold = cold_of(c, r);

	if (cold->watched)
		notify_watch_remove(c->nf, &cold->watch, cold->rearm);
	cold->watched = false;
}

void preserve_or_unwatch(struct kedge_cache *c, struct region *r, bool rearm)
{
	cold_of(c, r)->rearm = rearm;
	if (!is_due(c, r))
		region_unwatch(c, r);
}

/* Make of [*start, *end) the smallest range that holds [from, to), too. */
static void widen(uint64_t *start, uint64_t *end, uint64_t from, uint64_t to)
{
	if (*start == *end) {
		*start = from;
		*end = to;
	}
	if (from < *start)
		*start = from;
	if (to > *end)
		*end = to;
}

void preserve_note(struct region_cold *cold, const struct taken *t, bool given)
{
	struct fate *f = &cold->fate;
	bool first = f->given_start == f->given_end;

	cold->hit = true;
	if (given && t->kinds == 1u << KEDGE_EVENT_REMOVE && !t->gaps &&
	    (first ||
	     (t->start <= f->given_end && t->end >= f->given_start))) {
		widen(&f->given_start, &f->given_end, t->start, t->end);
		return;
	}
	widen(&f->unsure_start, &f->unsure_end, t->start, t->end);
	f->moved |= !!(t->kinds & ~(1u << KEDGE_EVENT_UNMAP |
				    1u << KEDGE_EVENT_REMOVE));
}

void preserve_covered(struct kedge_cache *c, struct region *old,
		      const struct region *by)
{
	struct region_cold *cold = cold_of(c, old);

	if (old->mr.access & ACCESS_WRITES & ~by->mr.access)
		return;
	cold_of(c, by)->heir = true;
	cold->covered = true;
	cold->safe = cold->fate.unsure_start == cold->fate.unsure_end;
}

bool preserve_needs_all(const struct kedge_cache *c)
{
	return c->nf->ops->take;
}

void preserve_unwatched(struct kedge_cache *c, struct region *r)
{
	struct region_cold *cold = cold_of(c, r);

	cold->safe = true;
	if (c->dev->ops.preserve && r->mr.access & ACCESS_WRITES)
		device_preserve(c->dev, &cold->dev, r->mr.addr,
				r->mr.addr + r->mr.len, 0);
}

void preserve_begin(struct kedge_cache *c, struct region *r)
{
	cold_of(c, r)->due = is_due(c, r);
}
