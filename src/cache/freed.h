/* SPDX-License-Identifier: BSD-2-Clause */
/* Registrations of memory that an allocator has taken back. Part of internal.h. */
#ifndef CACHE_FREED_H
#define CACHE_FREED_H

void freed_init(struct kedge_cache *c, uint64_t max_bytes);
void freed_fini(struct kedge_cache *c);
/* A region has come into the index with REGION_ASK: does it have to? */
void freed_settle(struct kedge_cache *c, struct region *r);
/* The trust of a lookup at @r, where trust_for() wants all of it; asks the kernel if need be. */
enum trust freed_look(struct kedge_cache *c, struct region *r, enum trust trust);
/* With the lock held: the oldest that is not held, for the caller to kill; or NULL. */
struct region *freed_take(struct kedge_cache *c);
/* Bytes of regions with freed memory; freed_too_much(): more than is to be kept. */
uint64_t freed_now(const struct kedge_cache *c);
bool freed_too_much(const struct kedge_cache *c);
/* For tests, which have their own; empty. The kernel has answered a lookup. */
void freed_asked(void);

/* A region's range: relaxed, as freed.c reads that of one which may become another meanwhile. */
static inline void set_mr(struct region *r, uint64_t start, uint64_t len)
{
	__atomic_store_n(&r->mr.addr, start, __ATOMIC_RELAXED);
	__atomic_store_n(&r->mr.len, len, __ATOMIC_RELAXED);
}

#endif /* CACHE_FREED_H */
