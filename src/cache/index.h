/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The index's readers, for internal.h, which has the structures. index.c has the
 * data model.
 */
#ifndef CACHE_INDEX_H
#define CACHE_INDEX_H

/* index.c. Stores with the lock held; the others by any thread. */
int index_set(struct kedge_cache *c, uint32_t id); /* where its mr is */
/* Returns how many bytes named @id until now. */
uint64_t index_clear(struct kedge_cache *c, uint64_t start, uint64_t end,
		     uint32_t id);
/* The end of the run of pages from @start on that name @id; @end at most. */
uint64_t index_run(const struct kedge_cache *c, uint64_t start, uint64_t end,
		   uint32_t id);
void index_free(struct kedge_cache *c);

static inline struct leaf *index_leaf(const struct kedge_cache *c,
				      uint64_t addr)
{
	struct mid *mid;

	if (unlikely(addr >> ADDR_BITS))
		return NULL;
	/* acquire, here and below: partner is the release in index.c. */
	mid = atomic_load_explicit(&c->root[addr >> (LEAF_SHIFT + LEVEL_BITS)],
				   memory_order_acquire);
	if (unlikely(!mid))
		return NULL;
	return atomic_load_explicit(
		&mid->leaf[(addr >> LEAF_SHIFT) & (LEVEL_CNT - 1)],
		memory_order_acquire);
}

static inline _Atomic uint32_t *block_of(struct leaf *leaf, uint64_t addr)
{
	return &leaf->block[(addr >> BLOCK_SHIFT) & (LEAF_BLOCKS - 1)];
}

static inline _Atomic uint32_t *page_of(struct leaf *leaf, uint64_t addr)
{
	struct pages *pages =
		atomic_load_explicit(&leaf->pages, memory_order_acquire);

	return &pages->id[(addr >> PAGE_SHIFT) & (LEAF_PAGES - 1)];
}

/*
 * The region to ask for @addr, or 0. It may not have @addr: the other end of
 * its block may be all that it has there.
 */
static inline uint32_t index_find(const struct kedge_cache *c, uint64_t addr)
{
	struct leaf *leaf = index_leaf(c, addr);
	uint32_t id;

	if (unlikely(!leaf))
		return 0;
	id = atomic_load_explicit(block_of(leaf, addr), memory_order_acquire);
	if (id == BLOCK_SPLIT)
		id = atomic_load_explicit(page_of(leaf, addr),
					  memory_order_acquire);
	return id;
}

/* The id that is named at @at, up to @next: by any thread. */
static inline uint32_t index_step(const struct kedge_cache *c, uint64_t at,
				  uint64_t *next)
{
	struct leaf *leaf = index_leaf(c, at);
	uint64_t step = leaf ? (uint64_t)1 << BLOCK_SHIFT : (uint64_t)1 << LEAF_SHIFT;
	uint32_t id = 0;

	if (leaf)
		id = atomic_load_explicit(block_of(leaf, at),
					  memory_order_acquire);
	if (id == BLOCK_SPLIT) {
		step = (uint64_t)1 << PAGE_SHIFT;
		id = atomic_load_explicit(page_of(leaf, at),
					  memory_order_acquire);
	}
	*next = round_down(at, step) + step;
	return id;
}

/*
 * True if a region serves [addr, end) with @access; by any thread. @trust: what
 * the caller found out before it looked.
 */
static inline bool region_serves(const struct kedge_cache *c,
				 const struct region *r, uint64_t addr,
				 uint64_t end, uint32_t access,
				 enum trust trust)
{
	uint32_t state = state_of(r);

	if (addr < r->mr.addr || end > r->mr.addr + r->mr.len ||
	    access & ~r->mr.access || trust < trust_for(state))
		return false;
	return likely(is_whole(state)) ||
	       (is_holed(state) &&
		index_run(c, addr, end, region_id(c, r)) >= end);
}

/* The end of the range that a region serves from @at on; @at if it is empty. */
static inline uint64_t region_run(const struct kedge_cache *c,
				  const struct region *r, uint64_t at,
				  uint64_t end, uint32_t access,
				  enum trust trust)
{
	uint64_t stop = r->mr.addr + r->mr.len;
	uint32_t state = state_of(r);

	if (end < stop)
		stop = end;
	if (at < r->mr.addr || at >= stop || access & ~r->mr.access ||
	    trust < trust_for(state))
		return at;
	if (is_whole(state))
		return stop;
	return is_holed(state) ? index_run(c, at, stop, region_id(c, r)) : at;
}

#endif /* CACHE_INDEX_H */
