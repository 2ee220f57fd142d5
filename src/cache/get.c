// SPDX-License-Identifier: BSD-2-Clause
/*
 * The hit, and the put of what is still good. This is the path that everything
 * else is arranged for: no lock, no system call, no atomic read-modify-write,
 * no store to a line that another thread writes; and no call, so that no register
 * is saved and restored. Rare cases go on elsewhere, from the beginning.
 *
 * Why a hit is right. The generation is loaded before the index. If it equals
 * what this cache has handled (c->seen), every change that was visible to this
 * thread when it called has been taken out of the index: seen is stored, with
 * release, after the index was changed, and loaded here with acquire. A change
 * that becomes visible after the load is one that the application makes while
 * it asks for the memory, which the contract leaves to it.
 *
 * Where the generation alone does not show a change in time, seen equals no
 * generation, or the region has REGION_ASK if it is so only there; then
 * get_any() asks first (notify/settle.c).
 *
 * Before the index, the region of the last hit is tried. It serves as well if it
 * is WHOLE: then it is in the index, whatever else is. Its state is loaded first:
 * a region that is WHOLE within a section is what it says until the section ends,
 * as readers_wait() comes between its death and its next life.
 *
 * A cache with a single thread (MODE_SINGLE) has no records and no sections. The
 * thread frees no region while it looks one up; so it counts in the region, as
 * threads that hold the lock do elsewhere.
 */
#include "cache/hit.h"

/* Two calls have the hit, and neither is to call a function for it. */
#define in_hit inline __attribute__((always_inline))

/*
 * acquire: what a region says of itself was said before it was WHOLE. By the
 * offset, as one comparison, and a branch that goes the same way for each region
 * but the one wanted: on which side of it the others are cannot be predicted.
 */
static in_hit bool serves_whole(const struct region *r, uint64_t addr,
				uint64_t len, uint32_t access)
{
	uint64_t off;

	if ((atomic_load_explicit(&r->state, memory_order_acquire) &
	     REGION_BYTE) != REGION_WHOLE)
		return false;
	off = addr - r->mr.addr;
	/* No region serves a length of 0, which is for get_slow() to refuse. */
	return off < r->mr.len && len - 1 < r->mr.len - off &&
	       !(access & ~r->mr.access);
}

/* A region that is WHOLE and has an id below @cnt, or NULL. */
static in_hit struct region *find_whole(struct kedge_cache *c,
					struct region **last, uint32_t cnt,
					uint64_t addr, uint64_t len,
					uint32_t access)
{
	struct region *r = *last;
	uint32_t id;

	if (serves_whole(r, addr, len, access))
		return r;
	id = index_find(c, addr);
	r = &c->regions[id]; /* that of 0 is always FREE */
	if (unlikely(id >= cnt || !serves_whole(r, addr, len, access)))
		return NULL;
	*last = r;
	return r;
}

static in_hit struct region *hit(struct kedge_cache *c, uint64_t addr,
				 uint64_t len, uint32_t access)
{
	struct thread_rec *rec = last_rec.rec;
	uint64_t s = enter(rec, 0);
	struct region *r = NULL;

	if (likely(caught_up(c)))
		r = find_whole(c, &rec->last, rec->refs_cnt, addr, len, access);
	if (likely(r))
		add_own(&rec->refs[r->mr.reserved], 1);
	leave(rec, s);
	if (unlikely(!r))
		count_own(&rec->missed);
	return r;
}

static in_hit struct region *hit_single(struct kedge_cache *c, uint64_t addr,
					uint64_t len, uint32_t access)
{
	struct region *r;

	if (unlikely(!is_owner(c)) || unlikely(!caught_up(c)))
		return NULL;
	r = find_whole(c, &c->last, UINT32_MAX, addr, len, access);
	if (unlikely(!r))
		return NULL;
	r->refs++;
	count_own(&c->hits);
	return r;
}

/*
 * The same for regions with holes and in every mode, or NULL. The caller has
 * asked whether a change is under way: what it let pass shows in the generation
 * that is loaded here.
 */
static struct region *lookup(struct kedge_cache *c, struct thread_rec *rec,
			     uint64_t addr, uint64_t end, uint32_t access,
			     enum trust trust)
{
	uint64_t s = enter(rec, modes_of(c));
	struct region *r = NULL;
	uint32_t id = 0;

	if (all_handled(c))
		id = index_find(c, addr);
	/* If the record has no room for the id, begin() makes some. */
	if (id && id < rec->refs_cnt &&
	    region_serves(c, &c->regions[id], addr, end, access, trust)) {
		r = &c->regions[id];
		add_own(&rec->refs[id], 1);
	}
	leave(rec, s);
	if (!r)
		count_own(&rec->missed);
	return r;
}

static struct region *lookup_single(struct kedge_cache *c, uint64_t addr,
				    uint64_t end, uint32_t access,
				    enum trust trust)
{
	uint32_t id = all_handled(c) ? index_find(c, addr) : 0;
	struct region *r = &c->regions[id];

	if (!id || !region_serves(c, r, addr, end, access, trust))
		return NULL;
	r->refs++;
	count_own(&c->hits);
	return r;
}

/*
 * A hit in every mode, or NULL. @rec is the calling thread's record, or NULL. @trust is
 * set in any case: what the kernel was asked is not asked again.
 */
static inline struct region *find_any(struct kedge_cache *c,
				      struct thread_rec *rec, uint64_t addr,
				      uint64_t len, uint32_t access,
				      enum trust *trust)
{
	uint64_t end = addr + len;
	struct region *r = NULL;

	*trust = trust_at(c, addr, notify_settle_now(c->nf));
	if (end <= addr || *trust == TRUST_NONE) /* empty, or wrapping */
		return NULL;
	if (rec)
		r = lookup(c, rec, addr, end, access, *trust);
	else if (modes_of(c) & MODE_SINGLE)
		r = lookup_single(c, addr, end, access, *trust);
	if (!r)
		return NULL;
	mark_used(c, r);
	if (modes_of(c) & MODE_VERIFY)
		verify_hit(c, r, addr, end);
	return r;
}

/* @site: where the library was called, which ticket.c names. */
static int give(struct kedge_cache *c, struct region *r, const void *site,
		const struct kedge_mr **mr)
{
	int rc = 0;

	if (modes_of(c) & MODE_TICKETS)
		rc = ticket_give(c, r, site, mr);
	else
		*mr = &r->mr;
	if (rc)
		put_region(c, r);
	return rc;
}

static __attribute__((noinline)) int get_any(struct kedge_cache *c,
					     const void *ptr, size_t len,
					     uint32_t access,
					     const struct kedge_mr **mr,
					     const void *site)
{
	uint64_t addr = (uintptr_t)ptr;
	struct region *r;
	enum trust trust;
	int rc;

	if (!c || !mr)
		return kedge_reason(-EINVAL, "the cache or the result pointer "
					     "is NULL");
	rc = check_thread(c);
	if (rc)
		return rc;
	r = find_any(c, own_rec(c), addr, len, access, &trust);
	if (!r)
		rc = get_slow(c, addr, len, access, trust, &r);
	return rc ? rc : give(c, r, site, mr);
}

/*
 * Without the lock, which another thread may have for long: a record that is not
 * there is made by kedge_cache_get(), as are claims of a cache with one thread.
 */
static __attribute__((noinline)) int tryget_any(struct kedge_cache *c,
						const void *ptr, size_t len,
						uint32_t access,
						const struct kedge_mr **mr,
						const void *site)
{
	struct thread_rec *rec;
	struct region *r;
	enum trust trust;

	if (!c || !mr)
		return kedge_reason(-EINVAL, "the cache or the result pointer "
					     "is NULL");
	rec = made_rec(c);
	if (!rec && !(modes_of(c) & MODE_SINGLE && is_owner(c)))
		return -EAGAIN;
	r = find_any(c, rec, (uintptr_t)ptr, len, access, &trust);
	return r ? give(c, r, site, mr) : -EAGAIN;
}

/* The common hit: with the record of this cache at hand, or in one with a single thread. */
static in_hit struct region *find_at_hand(struct kedge_cache *c, uint64_t addr,
					  uint64_t len, uint32_t access)
{
	uint32_t modes = modes_of(c);

	if (likely(!modes) && has_last_rec(c))
		return hit(c, addr, len, access);
	if (modes == MODE_SINGLE)
		return hit_single(c, addr, len, access);
	return NULL;
}

int kedge_cache_get(struct kedge_cache *c, const void *ptr, size_t len,
		    uint32_t access, const struct kedge_mr **mr)
{
	struct region *r;

	if (unlikely(!c || !mr))
		return get_any(c, ptr, len, access, mr, CALL_SITE);
	r = find_at_hand(c, (uintptr_t)ptr, len, access);
	if (unlikely(!r))
		return get_any(c, ptr, len, access, mr, CALL_SITE);
	mark_used(c, r);
	*mr = &r->mr;
	return 0;
}

int kedge_cache_tryget(struct kedge_cache *c, const void *ptr, size_t len,
		       uint32_t access, const struct kedge_mr **mr)
{
	struct region *r;

	if (unlikely(!c || !mr))
		return tryget_any(c, ptr, len, access, mr, CALL_SITE);
	r = find_at_hand(c, (uintptr_t)ptr, len, access);
	if (unlikely(!r))
		return tryget_any(c, ptr, len, access, mr, CALL_SITE);
	mark_used(c, r);
	*mr = &r->mr;
	return 0;
}

/*
 * The store of the count comes before the load of the state, as seen by the
 * thread that makes the region unreachable: by membarrier() there, or by a fence
 * here. That thread either counts this put, or we see that the region is dying.
 * Partner: region_collect(). The region may be another's by now, so only its
 * state is read. @left: the count, by which a put too many is suspected.
 */
static inline void put_counted(struct kedge_cache *c, struct region *r,
			       uint32_t id, uint32_t left)
{
	compiler_fence();
	if (unlikely(phase_of(state_of(r)) >= REGION_MAKING))
		region_put_slow(c, id, 0);
	else if (unlikely((int32_t)left < 0))
		overput_suspect(c, id);
}

void put_region(struct kedge_cache *c, struct region *r)
{
	uint32_t id = r->mr.reserved, left;
	struct thread_rec *rec = own_rec(c);

	if (!rec || id >= rec->refs_cnt) {
		region_put_slow(c, id, (uint32_t)-1);
		return;
	}
	left = add_own(&rec->refs[id], (uint32_t)-1);
	if (modes_of(c) & MODE_FENCE)
		own_fence(rec);
	put_counted(c, r, id, left);
}

static __attribute__((noinline)) void put_any(struct kedge_cache *c,
					      const struct kedge_mr *mr,
					      const void *site)
{
	struct region *r;

	if (check_thread(c)) {
		kedge__log(KEDGE_LOG_ERROR, "kedge_cache_put() by a second "
			   "thread, of a cache with KEDGE_CACHE_SINGLE_THREAD: "
			   "the registration stays");
		return;
	}
	if (modes_of(c) & MODE_TICKETS)
		r = ticket_take(c, mr, site);
	else
		r = container_of(mr, struct region, mr);
	if (r)
		put_region(c, r);
}

void kedge_cache_put(struct kedge_cache *c, const struct kedge_mr *mr)
{
	uint32_t modes, id, left;
	struct region *r;

	if (unlikely(!c || !mr))
		return;
	r = container_of(mr, struct region, mr);
	id = mr->reserved;
	modes = modes_of(c);
	if (likely(!modes) && has_last_rec(c) &&
	    likely(id < last_rec.rec->refs_cnt))
		left = add_own(&last_rec.rec->refs[id], (uint32_t)-1);
	else if (modes == MODE_SINGLE && is_owner(c))
		left = --r->refs;
	else {
		put_any(c, mr, CALL_SITE);
		return;
	}
	put_counted(c, r, id, left);
}

/*
 * The region is good when the section has begun: whichever thread makes it
 * unreachable later waits for the section's end before it adds up, and counts this
 * put. So no second look at the state is needed, by which a put that has been
 * counted may find that it has to go on.
 */
int kedge_cache_tryput(struct kedge_cache *c, const struct kedge_mr *mr)
{
	struct thread_rec *rec;
	bool good = false;
	uint64_t s;

	if (unlikely(!c || !mr))
		return kedge_reason(-EINVAL, "the cache or the registration is NULL");
	if (unlikely(modes_of(c)))
		return -EAGAIN;
	rec = made_rec(c);
	if (unlikely(!rec || mr->reserved >= rec->refs_cnt))
		return -EAGAIN;
	s = enter(rec, 0);
	if (likely(phase_of(state_of(container_of(mr, struct region, mr))) <
		   REGION_MAKING) && !overput_looks(rec, mr->reserved)) {
		add_own(&rec->refs[mr->reserved], (uint32_t)-1);
		good = true;
	}
	leave(rec, s);
	count_own(&rec->missed); /* the section was no hit */
	return good ? 0 : -EAGAIN;
}
