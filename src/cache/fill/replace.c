// SPDX-License-Identifier: BSD-2-Clause
/*
 * A chunk's changed pages, swapped by the device under the chunk's own handle.
 *
 * The old region gives its handle to a new one, which is watched before the
 * device looks at the pages, as with any registration; so what happens from then
 * on is told to the new one. What happened before has been told to the old one
 * and is what its holes are: those pages are replaced, and the others have been
 * good all along.
 *
 * Only while the old region is not held: a transfer in flight would go on in the
 * new pages, which may have another owner by now.
 */
#include "cache/internal.h"

/* From the first page that @r has lost to the last. */
static void hull(const struct kedge_cache *c, const struct region *r,
		 uint64_t *from, uint64_t *to)
{
	uint64_t end = r->mr.addr + r->mr.len, at = r->mr.addr, run;
	uint32_t id = region_id(c, r);

	*from = end;
	*to = r->mr.addr;
	while (at < end) {
		run = index_run(c, at, end, id);
		if (run < end) {
			if (*from == end)
				*from = run;
			*to = run + (1u << PAGE_SHIFT);
		}
		at = run + (1u << PAGE_SHIFT);
	}
}

/* The region that is to take over from @id, or NULL. */
static struct region *successor(struct kedge_cache *c, uint32_t id,
				uint64_t start, uint64_t end)
{
	struct region *old = &c->regions[id], *r = NULL;

	pthread_mutex_lock(&c->lock);
	if (is_holed(state_of(old)) && old->mr.addr == start &&
	    old->mr.addr + old->mr.len == end)
		r = region_new(c);
	if (r) {
		set_mr(r, start, end - start);
		r->mr.access = old->mr.access;
		/* The same pages, but for a moment. */
		c->bytes += r->mr.len;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

/*
 * Take the old region out of the index for good and for ourselves. False: it is
 * held, or has gone, or the successor was hit by an event already, and it is not
 * known whether that event's pages have gone by now.
 */
static bool seize(struct kedge_cache *c, struct region *old, struct region *r,
		  uint64_t *from, uint64_t *to)
{
	const struct region_cold *cold = cold_of(c, r);
	uint32_t killed = 0, dead = 0, one = 0;
	bool mine = false;

	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	region_collect(c, &killed, &dead);
	if (is_holed(state_of(old)) && old->mr.addr == r->mr.addr &&
	    old->mr.len == r->mr.len &&
	    cold->spoiled_start == cold->spoiled_end &&
	    !is_held(c, region_id(c, old))) {
		hull(c, old, from, to);
		region_kill(c, old, WHY_CHANGED, &one);
		/* A lookup that took a reference in the last moment keeps it. */
		mine = region_seize(c, &one);
	}
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return mine;
}

/* The device has done it: @r is what @old was. */
static void take_over(struct kedge_cache *c, struct region *r,
		      struct region *old, const struct kedge_device_mr *dev)
{
	cold_of(c, r)->dev = *dev;
	r->mr.device_handle = dev->handle;
	r->mr.offset = dev->offset;
	verify_record(c, r);
	pthread_mutex_lock(&c->lock);
	c->bytes -= old->mr.len;
	region_unwatch(c, old);
	region_forget(c, old);
	pthread_mutex_unlock(&c->lock);
}

static int try_replace(struct kedge_cache *c, struct region *old,
		       struct region *r)
{
	struct own_range own = { r->mr.addr, r->mr.addr + r->mr.len };
	struct region_cold *cold = cold_of(c, r);
	struct kedge_device_mr dev;
	uint64_t from, to;
	int rc;

	rc = notify_watch_add(c->nf, &cold->watch, own.start, own.end, own);
	cold->watched = rc >= 0;
	if (rc)
		return -EBUSY;
	if (!seize(c, old, r, &from, &to))
		return -EBUSY;
	dev = cold_of(c, old)->dev;
	rc = device_replace(c->dev, &dev, (void *)(uintptr_t)own.start,
			    r->mr.len, (void *)(uintptr_t)from, to - from);
	if (rc) {
		region_reap(c, region_id(c, old));
		return rc;
	}
	take_over(c, r, old, &dev);
	return 0;
}

int region_replace(struct kedge_cache *c, uint32_t id, uint64_t start,
		   uint64_t end)
{
	struct region *r;
	int rc;

	if (!c->dev->ops.replace)
		return -EOPNOTSUPP;
	r = successor(c, id, start, end);
	if (!r)
		return -EBUSY;
	rc = try_replace(c, &c->regions[id], r);
	if (rc)
		region_drop_unmade(c, r);
	else
		region_finish(c, r, true);
	return rc;
}
