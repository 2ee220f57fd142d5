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
#include "cache/internal.h"

/*
 * The calling thread's record of the cache that it used last. Both words are
 * this thread's own.
 */
static __thread struct {
	uint64_t serial;
	struct thread_rec *rec;
} last;

void forget_last(void)
{
	last.serial = 0;
	last.rec = NULL;
}

static struct thread_rec *switch_rec(struct kedge_cache *c)
{
	struct thread_rec *rec = rec_of_thread(c);

	if (rec) {
		last.serial = c->serial;
		last.rec = rec;
	}
	return rec;
}

static inline struct thread_rec *own_rec(struct kedge_cache *c)
{
	if (likely(last.serial == c->serial))
		return last.rec;
	return switch_rec(c);
}

/*
 * Enter and leave a section. The store must be visible before anything that is
 * read inside: the compiler is held here, the CPU by membarrier() in
 * readers_wait(), or by a fence of its own where there is no such call.
 */
static inline uint32_t enter(struct thread_rec *rec, uint32_t modes)
{
	uint32_t s = atomic_load_explicit(&rec->section, memory_order_relaxed);

	atomic_store_explicit(&rec->section, s + 1, memory_order_relaxed);
	compiler_fence();
	if (unlikely(modes & MODE_FENCE))
		full_fence();
	return s;
}

/* release: the reference that was taken is seen by who sees this. */
static inline void leave(struct thread_rec *rec, uint32_t s)
{
	atomic_store_explicit(&rec->section, s + 2, memory_order_release);
}

static inline void add_own(_Atomic uint32_t *n, uint32_t by)
{
	uint32_t v = atomic_load_explicit(n, memory_order_relaxed);

	/* release: what was done with the memory before a put stays before. */
	atomic_store_explicit(n, v + by, memory_order_release);
}

static inline void count_own(_Atomic uint64_t *n)
{
	uint64_t v = atomic_load_explicit(n, memory_order_relaxed);

	atomic_store_explicit(n, v + 1, memory_order_relaxed);
}

static inline void mark_used(struct kedge_cache *c, struct region *r)
{
	uint32_t now = atomic_load_explicit(&c->epoch, memory_order_relaxed);

	/* A store only once between two misses, so the line stays shared. */
	if (atomic_load_explicit(&r->used, memory_order_relaxed) != now)
		atomic_store_explicit(&r->used, now, memory_order_relaxed);
}

/* The region of a hit with a reference taken, or NULL. */
static inline struct region *lookup(struct kedge_cache *c,
				    struct thread_rec *rec, uint64_t addr,
				    uint64_t end, uint32_t access)
{
	struct region *r = NULL;
	uint32_t id, s = enter(rec, c->modes);

	if (unlikely(kedge_notifier_generation(c->nf) !=
		     atomic_load_explicit(&c->seen, memory_order_acquire)))
		goto leave;
	id = index_find(c, addr);
	if (unlikely(!id))
		goto leave;
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
	if (unlikely(c->modes & MODE_VERIFY))
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
	if (unlikely(!rec)) {
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
	if (unlikely(c->modes & MODE_FENCE))
		full_fence();
	if (unlikely(state_of(r) >= REGION_MAKING))
		region_put_slow(c, id, 0);
}
