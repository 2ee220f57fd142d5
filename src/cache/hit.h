/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps that a hit is made of; refs.c has the proof. */
#ifndef CACHE_HIT_H
#define CACHE_HIT_H

#include "cache/internal.h"

/*
 * The calling thread's record of the cache that it used last. Both words are
 * this thread's own.
 */
struct last_rec {
	uint64_t serial;
	struct thread_rec *rec;
};

extern __thread struct last_rec last_rec;

struct thread_rec *switch_rec(struct kedge_cache *c);
/* The same, but NULL where it would have to be made. Takes no lock. */
struct thread_rec *made_rec(struct kedge_cache *c);

static inline bool has_last_rec(const struct kedge_cache *c)
{
	return likely(last_rec.serial == c->serial);
}

/* NULL: it cannot be had, or the cache has a single thread and needs no record. */
static inline struct thread_rec *own_rec(struct kedge_cache *c)
{
	if (has_last_rec(c))
		return last_rec.rec;
	return modes_of(c) & MODE_SINGLE ? NULL : switch_rec(c);
}

/* A number that no other thread has as long as this one lives. */
static inline uintptr_t self(void)
{
#if defined(__x86_64__) && defined(__LP64__)
	uintptr_t p;

	/* The thread's own address is the first word of its block. */
	__asm__("mov %%fs:0, %0" : "=r"(p));
	return p;
#else
	return (uintptr_t)&last_rec;
#endif
}

/* True if the calling thread is the one of a KEDGE_CACHE_SINGLE_THREAD. */
static inline bool is_owner(const struct kedge_cache *c)
{
	return likely(atomic_load_explicit(&c->owner, memory_order_relaxed) ==
		      self());
}

/* The fence of MODE_FENCE, and the promise of more; refs.c has the proof. */
static inline void own_fence(struct thread_rec *rec)
{
	full_fence();
	if (!atomic_load_explicit(&rec->fences, memory_order_relaxed))
		/* release: what this thread did without a fence came before. */
		atomic_store_explicit(&rec->fences, 1, memory_order_release);
}

/*
 * Enter and leave a section. The store must be visible before anything that is
 * read inside: the compiler is held here, the CPU by membarrier() in
 * readers_wait(), or by a fence of its own where there is no such call.
 */
static inline uint64_t enter(struct thread_rec *rec, uint32_t modes)
{
	uint64_t s = atomic_load_explicit(&rec->section, memory_order_relaxed);

	atomic_store_explicit(&rec->section, s + 1, memory_order_relaxed);
	compiler_fence();
	if (unlikely(modes & MODE_FENCE))
		own_fence(rec);
	return s;
}

/* release: a thread that sees this sees the reference that was taken. */
static inline void leave(struct thread_rec *rec, uint64_t s)
{
	atomic_store_explicit(&rec->section, s + 2, memory_order_release);
}

/*
 * Ask the kernel where a lookup at @at will want it. The answer goes for what is
 * found afterwards: a region that is there only then is served if it may be.
 */
static inline enum trust trust_at(struct kedge_cache *c, uint64_t at,
				  enum trust trust)
{
	struct region *r = &c->regions[index_find(c, at)];

	return unlikely(trust_for(state_of(r)) == TRUST_ALL) ? freed_look(c, r, trust) : trust;
}

/* The count that comes of it. */
static inline uint32_t add_own(_Atomic uint32_t *n, uint32_t by)
{
	uint32_t v = atomic_load_explicit(n, memory_order_relaxed) + by;

	/* release: what was done with the memory before a put stays before. */
	atomic_store_explicit(n, v, memory_order_release);
	return v;
}

/* release: a lookup that is counted as missed has left its section. */
static inline void count_own(_Atomic uint64_t *n)
{
	uint64_t v = atomic_load_explicit(n, memory_order_relaxed);

	atomic_store_explicit(n, v + 1, memory_order_release);
}

static inline void mark_used(struct kedge_cache *c, struct region *r)
{
	uint32_t now = atomic_load_explicit(&c->epoch, memory_order_relaxed);

	/* A store only once between two misses, so the line stays shared. */
	if (atomic_load_explicit(&r->used, memory_order_relaxed) != now)
		atomic_store_explicit(&r->used, now, memory_order_relaxed);
}

#endif /* CACHE_HIT_H */
