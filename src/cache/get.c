// SPDX-License-Identifier: BSD-2-Clause
/*
 * The hit, and the put of what is still good. This is the path that everything
 * else is arranged for: no lock, no system call, no atomic read-modify-write,
 * no store to a line that another thread writes.
 *
 * Why a hit is right. The generation is loaded before the index. If it equals
 * what this cache has handled (c->seen), every change that was visible to this
 * thread when it called has been taken out of the index: seen is stored, with
 * release, after the index was changed, and loaded here with acquire. A change
 * that becomes visible after the load is one that the application makes while
 * it asks for the memory, which the contract leaves to it.
 */
#include "cache/hit.h"

__thread struct last_rec last_rec;

void forget_last(void)
{
	last_rec.serial = 0;
	last_rec.rec = NULL;
}

struct thread_rec *switch_rec(struct kedge_cache *c)
{
	int saved = cancel_disable();
	struct thread_rec *rec = rec_of_thread(c);

	cancel_restore(saved);
	if (rec) {
		last_rec.serial = c->serial;
		last_rec.rec = rec;
	}
	return rec;
}

void own_rec_grow(struct kedge_cache *c)
{
	if (last_rec.serial == c->serial)
		rec_grow(c, last_rec.rec);
}

/* The region of a hit with a reference taken, or NULL. */
static inline struct region *lookup(struct kedge_cache *c,
				    struct thread_rec *rec, uint64_t addr,
				    uint64_t end, uint32_t access)
{
	struct region *r = NULL;
	uint32_t id, s = enter(rec, modes_of(c));

	if (unlikely(!caught_up(c)))
		goto leave;
	id = index_find(c, addr);
	if (unlikely(!id))
		goto leave;
	if (unlikely(id >= rec->refs_cnt))
		goto leave; /* look_again() makes room */
	if (likely(region_serves(c, &c->regions[id], addr, end, access))) {
		r = &c->regions[id];
		add_own(&rec->refs[id], 1);
	}
leave:
	leave(rec, s);
	return r;
}

int kedge_cache_get(struct kedge_cache *c, const void *ptr, size_t len,
		    uint32_t access, const struct kedge_mr **mr)
{
	uint64_t addr = (uintptr_t)ptr, end = addr + len;
	struct thread_rec *rec;
	struct region *r;

	if (unlikely(!c || !mr))
		return kedge_reason(-EINVAL, "the cache or the result pointer "
					     "is NULL");
	if (unlikely(end <= addr)) /* empty or wrapping */
		return get_slow(c, addr, len, access, mr);
	rec = own_rec(c);
	r = likely(rec) ? lookup(c, rec, addr, end, access) : NULL;
	if (unlikely(!r))
		return get_slow(c, addr, len, access, mr);
	mark_used(c, r);
	count_own(&rec->hits);
	if (unlikely(modes_of(c) & MODE_VERIFY))
		verify_hit(c, r, addr, end);
	*mr = &r->mr;
	return 0;
}

void kedge_cache_put(struct kedge_cache *c, const struct kedge_mr *mr)
{
	struct thread_rec *rec;
	struct region *r;
	uint32_t id;

	if (unlikely(!c || !mr))
		return;
	r = container_of(mr, struct region, mr);
	id = mr->reserved;
	rec = own_rec(c);
	if (unlikely(!rec || id >= rec->refs_cnt)) {
		region_put_slow(c, id, (uint32_t)-1);
		return;
	}
	add_own(&rec->refs[id], (uint32_t)-1);
	/*
	 * The store before the load, in the eyes of who makes the region
	 * unreachable: by membarrier() there, or by a fence here. He either
	 * counts this put, or we see that the region is dying. Partner:
	 * region_collect().
	 */
	compiler_fence();
	if (unlikely(modes_of(c) & MODE_FENCE))
		own_fence(rec);
	if (unlikely(state_of(r) >= REGION_MAKING))
		region_put_slow(c, id, 0);
}
