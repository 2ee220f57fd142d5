// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registering a range that no lookup found: catch up with the notifier, look
 * again, then have the device do it.
 *
 * The order within cache_register() is the contract's other half: the range is
 * watched first, then the device pins its pages, then the events are read. If no
 * event names the range, the pages that the device has are those that are mapped.
 * If one does, the registration is not kept, and where it names what was asked
 * for, made again.
 */
#include "cache/internal.h"
#include "cache/priv.h"

#define SPOILED_TRIES 4

static struct region *find(struct kedge_cache *c, const struct want *w)
{
	uint32_t id = index_find(c, w->start);
	struct region *r = &c->regions[id];

	return id && region_serves(c, r, w->start, w->end, w->access, w->trust)
		       ? r
		       : NULL;
}

/* Room for the plan, at others' cost if that is wanted. */
static int make_room(struct kedge_cache *c, const struct want *w,
		     struct plan *p, uint32_t *killed)
{
	if (!over_limit(c, p->end - p->start))
		return 0;
	if (!w->evict)
		return kedge_reason(-ENOSPC, "the cache's limits are reached: "
					     "%u registrations, %llu bytes",
				    c->live, (unsigned long long)c->bytes);
	if (!evict(c, ROOM_LIMITS, p->end - p->start, killed)) {
		p->keep = false;
		p->why = KEDGE_UNCACHED_LIMIT;
	}
	return 0;
}

static void set_range(struct region *r, const struct plan *p)
{
	set_mr(r, p->start, p->end - p->start);
	r->mr.access = p->access;
}

/* Look up again, now that the cache has caught up: with a reference, or NULL. */
static struct region *found(struct kedge_cache *c, const struct want *w)
{
	struct region *r = w->look ? find(c, w) : NULL;

	if (!r)
		return NULL;
	ref_own(c, region_id(c, r));
	c->st.hits++;
	return r;
}

/* A region in the state MAKING, or NULL and *rc. In one go: or two threads would
 * take the same room. */
static struct region *plan_region(struct kedge_cache *c, const struct want *w,
				  struct plan *p, uint32_t *killed, uint32_t *dead,
				  int *rc)
{
	struct region *r;

	make_plan(c, w, p);
	*rc = unlikely(c->exclusive) ? make_way(c, w, p, killed, dead) : 0;
	if (!*rc)
		*rc = make_room(c, w, p, killed);
	r = *rc ? NULL : region_new(c);
	if (r) {
		set_range(r, p);
		c->bytes += r->mr.len;
	} else if (!*rc) {
		*rc = no_region(c);
	}
	return r;
}

/*
 * Catch up, look once more, and plan, with the lock taken once. 0 with a region
 * in the state MAKING; FOUND with the one that there is.
 */
#define FOUND 1

static int begin_once(struct kedge_cache *c, const struct want *w, struct plan *p,
		      struct region **out, uint32_t *dead)
{
	uint32_t killed = 0;
	int rc = FOUND;

	cache_sync(c, &killed);
	*out = found(c, w);
	if (!*out && unlikely(freed_too_much(c)))
		evict_freed(c, &killed);
	if (!*out)
		*out = plan_region(c, w, p, &killed, dead, &rc);
	region_collect(c, &killed, dead);
	return rc;
}

/* Others may wait for what is @dead, so that ends first. */
static void wait_or_reap(struct kedge_cache *c, uint32_t *dead)
{
	if (!*dead) {
		pthread_cond_wait(&c->moved, &c->lock);
		return;
	}
	pthread_mutex_unlock(&c->lock);
	region_reap(c, *dead);
	*dead = 0;
	pthread_mutex_lock(&c->lock);
}

/* The device may have failed to end what was in the way of @r. */
static int check_way(struct kedge_cache *c, struct region *r)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (!way_is_clear(c, r)) {
		rc = stuck_reason(c);
		c->bytes -= r->mr.len;
		region_forget(c, r);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static int begin(struct kedge_cache *c, const struct want *w, struct plan *p,
		 struct region **out)
{
	uint32_t dead;
	bool tried = false;
	int rc;

	pthread_mutex_lock(&c->lock);
	dead = stuck_due(c);
	while ((rc = begin_once(c, w, p, out, &dead)) == WAY_BUSY ||
	       rc == WAY_STUCK) {
		if (rc == WAY_STUCK && tried) {
			rc = stuck_reason(c);
			break;
		}
		if (rc == WAY_STUCK) {
			tried = true;
			stuck_take(c, &dead);
		}
		wait_or_reap(c, &dead);
	}
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return !rc && unlikely(p->exclusive) ? check_way(c, *out) : rc;
}

/* Back to what was asked for: the neighbours can't be had. */
static void unmerge(struct kedge_cache *c, const struct want *w,
		    struct plan *p, struct region *r)
{
	p->start = w->start;
	p->end = w->end;
	p->merged = false;
	pthread_mutex_lock(&c->lock);
	c->bytes -= r->mr.len;
	set_range(r, p);
	c->bytes += r->mr.len;
	pthread_mutex_unlock(&c->lock);
}

static int try_watch(struct kedge_cache *c, const struct want *w,
		     const struct plan *p, struct region *r)
{
	struct region_cold *cold = cold_of(c, r);
	struct own_range own = { w->start, w->end };
	int rc = notify_watch_add(c->nf, &cold->watch, p->start, p->end, own);

	cold->watched = rc >= 0;
	return rc;
}

/* The reason in @rc of a watch. */
static enum kedge_uncached unwatched_by(int rc)
{
	switch (rc) {
	case KEDGE_WATCH_PROVISIONAL:
		return KEDGE_UNCACHED_LEAVING;
	case -EBUSY:
		return KEDGE_UNCACHED_BUSY;
	case -EOPNOTSUPP:
		return KEDGE_UNCACHED_KIND;
	case -ENOSPC:
		return KEDGE_UNCACHED_MAPPINGS;
	}
	return KEDGE_UNCACHED_OTHER;
}

/* Watch the region's range. An error only where the memory isn't there. */
static int watch(struct kedge_cache *c, const struct want *w, struct plan *p,
		 struct region *r)
{
	int rc = p->keep ? try_watch(c, w, p, r) : -ENOSPC;
	struct region_cold *cold = cold_of(c, r);

	if (rc < 0 && p->merged) {
		unmerge(c, w, p, r);
		rc = p->keep ? try_watch(c, w, p, r) : rc;
	}
	if (rc < 0 && rc != -EFAULT && p->keep && vouch_region(c, r)) {
		cold->watched = notify_watch_announced(c->nf, &cold->watch,
						       p->start, p->end);
		return 0;
	}
	if (rc && p->keep) {
		p->keep = false;
		p->why = unwatched_by(rc);
	}
	return rc == -EFAULT ? rc : 0;
}

static bool pressure(int rc)
{
	return rc == -ENOSPC || rc == -ENOMEM || rc == -EAGAIN;
}

bool kedge__cache_relieve(struct kedge_cache *c, uint64_t bytes)
{
	uint32_t killed = 0, dead = 0;
	bool some;

	pthread_mutex_lock(&c->lock);
	some = evict(c, ROOM_DEVICE, bytes, &killed) || killed;
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return some && dead;
}

/*
 * Let others go for @r, which the device refused with @rc: one where its table
 * is full, as many bytes where memory is short. False: no region could go.
 */
static bool relieve(struct kedge_cache *c, const struct region *r, int rc)
{
	return kedge__cache_relieve(c, rc == -ENOSPC ? 0 : r->mr.len);
}

static int call_device(struct kedge_cache *c, const struct want *w,
		       struct plan *p, struct region *r)
{
	struct region_cold *cold = cold_of(c, r);
	uint64_t t0 = clock_ns();
	int rc;

	do {
		error_forget();
		rc = device_reg(c->dev, (void *)(uintptr_t)r->mr.addr,
				r->mr.len, r->mr.access, &cold->dev);
	} while (pressure(rc) && w->evict && !p->joined && relieve(c, r, rc));
	p->device_ns = clock_ns() - t0;
	p->made = !rc;
	if (rc)
		return rc;
	r->mr.device_handle = cold->dev.handle;
	r->mr.offset = cold->dev.offset;
	verify_record(c, r);
	if (!p->keep || cold->vouched || preserve_needs_all(c) ||
	    !notify_can_tell(c->nf, p->start, p->end))
		preserve_unwatched(c, r);
	return 0;
}

/* Count a round: its time, registration and miss. With the lock held. */
static void count_round(struct kedge_cache *c, const struct want *w,
			const struct plan *p, int rc)
{
	c->st.register_ns += p->device_ns;
	c->st.registrations += p->made;
	c->st.misses += !rc && w->hold;
}

/* The device has failed, or what it made is of no use. */
static void drop_failed(struct kedge_cache *c, const struct want *w,
			const struct plan *p, struct region *r, int rc)
{
	struct region_cold *cold = cold_of(c, r);

	if (cold->watched)
		notify_watch_remove(c->nf, &cold->watch, true);
	cold->watched = false;
	pthread_mutex_lock(&c->lock);
	count_round(c, w, p, rc);
	c->bytes -= r->mr.len;
	region_forget(c, r);
	pthread_mutex_unlock(&c->lock);
}

void region_drop_unmade(struct kedge_cache *c, struct region *r)
{
	struct plan p = { .made = false };
	struct want w = { .hold = false };

	drop_failed(c, &w, &p, r, -EIO);
}

/* Kill regions wholly inside the new one: no lookup would find them any more. */
static void kill_covered(struct kedge_cache *c, const struct region *r,
			 uint32_t *killed)
{
	uint64_t at = r->mr.addr, end = at + r->mr.len;

	while (at < end) {
		uint32_t id = index_find(c, at);
		struct region *old = &c->regions[id];
		uint64_t stop = old->mr.addr + old->mr.len;

		if (id && old->mr.addr >= r->mr.addr && stop <= end) {
			preserve_covered(c, old, r);
			region_kill(c, old, WHY_CHANGED, killed);
			at = stop;
		} else {
			/* Its pages up to where it ends, or another's. */
			at += 1u << PAGE_SHIFT;
		}
	}
}

/* False, and why: a region that is made cannot be kept. */
static bool may_keep(struct kedge_cache *c, struct plan *p, const struct region *r)
{
	const struct region_cold *cold = cold_of(c, r);

	if (!p->keep)
		return false;
	if (cold->spoiled_start != cold->spoiled_end)
		p->why = KEDGE_UNCACHED_CHANGED;
	else if (!cold->vouched && !notify_can_tell(c->nf, p->start, p->end))
		p->why = KEDGE_UNCACHED_UNSURE;
	else
		return true;
	return false;
}

/* Put a made region where others find it. False: it can't be kept. */
static bool publish(struct kedge_cache *c, struct plan *p,
		    struct region *r, uint32_t *killed)
{
	bool vouch = cold_of(c, r)->vouched;

	if (!may_keep(c, p, r))
		return false;
	kill_covered(c, r, killed);
	set_state(c, r, REGION_WHOLE | (vouch ? 0 : REGION_ASK), 0);
	if (index_set(c, region_id(c, r))) {
		set_state(c, r, REGION_MAKING, 0);
		p->why = KEDGE_UNCACHED_OTHER;
		return false;
	}
	freed_settle(c, r);
	c->st.vouched += vouch;
	atomic_store_explicit(
		&r->used,
		atomic_fetch_add_explicit(&c->epoch, 1, memory_order_relaxed) +
			1,
		memory_order_relaxed);
	lru_add(c, r);
	if (p->merged)
		c->st.merges++;
	if (c->bytes > c->st.bytes_peak)
		c->st.bytes_peak = c->bytes;
	return true;
}

/*
 * A made region that is not kept: it lives until its put, if it is held. It was
 * in no index, so there is no lookup to wait for.
 */
static void not_kept(struct kedge_cache *c, struct region *r, bool held,
		     uint32_t *dead)
{
	/* No get had it, and no covered region relies on it: no data to preserve. */
	if (!held && !cold_of(c, r)->heir)
		cold_of(c, r)->safe = true;
	preserve_or_unwatch(c, r, true);
	set_state(c, r, REGION_DYING, 0);
	if (!held)
		region_die(c, r, dead);
}

static bool spoils(const struct region_cold *cold, const struct want *w)
{
	return cold->spoiled_start < w->end && cold->spoiled_end > w->start;
}

/*
 * The device has made @r: read what happened meanwhile and decide. Returns 0
 * with *out set; -EAGAIN if what was asked for changed while it was registered.
 */
static int finish(struct kedge_cache *c, const struct want *w,
		  struct plan *p, struct region *r, bool last_try,
		  struct region **out)
{
	uint32_t killed = 0, dead = 0;
	struct region *old;
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	old = w->trust == TRUST_NONE ? NULL : find(c, w);
	if (old || (spoils(cold_of(c, r), w) && !last_try)) {
		/* Another thread was faster, or the pages have changed. */
		not_kept(c, r, false, &dead);
		r = old;
		rc = old ? 0 : -EAGAIN;
	} else if (!publish(c, p, r, &killed)) {
		not_kept(c, r, w->hold, &dead);
		c->st.uncached += w->hold;
		c->st.uncached_why[p->why] += w->hold;
	}
	if (!rc && w->hold)
		ref_own(c, region_id(c, r));
	count_round(c, w, p, rc);
	region_collect(c, &killed, &dead);
	if (unlikely(c->exclusive))
		pthread_cond_broadcast(&c->moved);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	*out = r;
	return rc;
}

int region_plan(struct kedge_cache *c, uint64_t start, uint64_t end,
		uint32_t access, struct region **out)
{
	struct want w = { .start = start, .end = end, .access = access,
			  .evict = true };
	struct plan p;
	int rc = begin(c, &w, &p, out);

	if (rc)
		return rc;
	(*out)->mr.access = access;
	if (p.keep)
		return 0;
	region_drop_unmade(c, *out);
	return -ENOSPC;
}

/* It counts as made, as its end is going to count. */
void region_place(struct kedge_cache *c, struct region *r, uint64_t start,
		  uint64_t len)
{
	pthread_mutex_lock(&c->lock);
	c->bytes -= r->mr.len;
	set_mr(r, start, len);
	c->bytes += len;
	c->st.registrations++;
	pthread_mutex_unlock(&c->lock);
}

void region_finish(struct kedge_cache *c, struct region *r, bool keep)
{
	struct plan p = { .start = r->mr.addr,
			  .end = r->mr.addr + r->mr.len,
			  .keep = keep };
	struct want w = { .start = r->mr.addr,
			  .end = r->mr.addr + r->mr.len,
			  .access = r->mr.access,
			  .trust = TRUST_ALL };
	struct region *unused;

	finish(c, &w, &p, r, true, &unused);
}

static void lend_made(struct kedge_cache *c, const struct want *w,
		      const struct plan *p, struct region *r)
{
	pthread_mutex_lock(&c->lock);
	lend_begin(c, r);
	count_round(c, w, p, 0);
	if (unlikely(c->exclusive))
		pthread_cond_broadcast(&c->moved);
	pthread_mutex_unlock(&c->lock);
}

/*
 * One round. 0 or FOUND with *out; -EAGAIN: what was asked for changed meanwhile.
 */
static int register_once(struct kedge_cache *c, const struct want *w,
			 bool last_try, bool *merged, struct region **out)
{
	struct region *r;
	struct plan p = { .merged = false };
	int rc = begin(c, w, &p, out);

	*merged = p.merged;
	if (rc)
		return rc;
	r = *out;
	rc = watch(c, w, &p, r);
	if (!rc)
		rc = call_device(c, w, &p, r);
	*merged = p.merged;
	if (rc) {
		drop_failed(c, w, &p, r, rc);
		if (rc != -EEXIST || !exclusive_learn(c, &p))
			return rc;
		*merged = false; /* the neighbours are not why */
		return -EAGAIN;
	}
	if (!w->lend)
		return finish(c, w, &p, r, last_try, out);
	lend_made(c, w, &p, r);
	return 0;
}

int cache_register(struct kedge_cache *c, const struct want *want,
		   struct region **out)
{
	struct want w = *want;
	int rc = -EAGAIN, tries;

	if (c->attr.max_len && w.end - w.start > c->attr.max_len)
		return kedge_reason(-E2BIG,
				    "%llu bytes at once: %s takes %llu; "
				    "kedge_cache_getv() takes any number",
				    (unsigned long long)(w.end - w.start),
				    c->dev->ops.name,
				    (unsigned long long)c->attr.max_len);
	for (tries = 1; rc == -EAGAIN && tries <= SPOILED_TRIES; tries++) {
		bool merged = false;

		rc = register_once(c, &w, tries == SPOILED_TRIES, &merged, out);
		if (rc < 0 && merged) {
			/*
			 * It may be the neighbour that fails: its user may
			 * have unmapped or protected it. Never the caller's
			 * affair.
			 */
			w.merge = false;
			rc = register_once(c, &w, tries == SPOILED_TRIES,
					   &merged, out);
		}
	}
	return rc == FOUND ? 0 : rc;
}

void count_failure(struct kedge_cache *c)
{
	pthread_mutex_lock(&c->lock);
	c->st.failures++;
	pthread_mutex_unlock(&c->lock);
}

/* True if a region would serve the range, were its find believed. */
static bool is_there(struct kedge_cache *c, const struct want *w)
{
	uint32_t killed = 0, dead = 0;
	struct want all = *w;
	bool there;

	all.trust = TRUST_ALL;
	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	there = find(c, &all);
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return there;
}

int get_kept(struct kedge_cache *c, uint64_t addr, size_t len, uint32_t access,
	     enum trust trust, struct region **out)
{
	size_t page = kedge__page_size();
	struct want w = { .start = round_down(addr, page),
			  .end = round_up(addr + len, page),
			  .access = access,
			  .hold = true,
			  .merge = true,
			  .evict = true };

	/* A miss need not wait. */
	if (trust == TRUST_NONE && is_there(c, &w))
		trust = notify_settle(c->nf);
	w.trust = trust;
	w.look = trust != TRUST_NONE;
	return cache_register(c, &w, out);
}
