// SPDX-License-Identifier: BSD-2-Clause
/*
 * The index: a radix tree, as page tables are, from address to region id. Its
 * leaves have a slot for each block of 64 KiB, so that those of many regions
 * share a cache line. Where a block must name more than one region, or one of
 * which an event took pages, it is split: its pages have slots of their own, as
 * if a huge page were split. It stays split, so no reader looks at a slot that
 * has come to stand for something else.
 *
 * Readers walk it without a lock. Tables are added, never taken away while the
 * cache is open, and filled before they are linked. 1 KiB of leaf serves 16 MiB
 * of address space, or 17 KiB where blocks of it are split.
 */
#include <sys/mman.h>

#include "cache/internal.h"

#define HUGE	    ((size_t)2 << 20)
#define FIRST_CHUNK ((size_t)1 << 20)
#define NEXT_CHUNK  (16 * HUGE)

struct chunk {
	void *before;
	size_t len;
};

/*
 * A small cache takes a small chunk. One that outgrows it is looked up all over
 * the place, and huge pages save it a TLB miss a lookup.
 */
static int add_chunk(struct arena *a)
{
	size_t len = a->chunks ? NEXT_CHUNK : FIRST_CHUNK;
	struct chunk *chunk = mmap(NULL, len, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				   -1, 0);

	if (chunk == MAP_FAILED)
		return -ENOMEM;
	if (a->chunks)
		madvise(chunk, len, MADV_HUGEPAGE);
	chunk->before = a->chunks;
	chunk->len = len;
	a->chunks = chunk;
	a->next = (char *)chunk + 64;
	a->end = (char *)chunk + len;
	return 0;
}

/* Zeroed memory of @len bytes, 64-aligned; never freed singly. */
static void *arena_get(struct arena *a, size_t len)
{
	void *p;

	len = round_up(len, 64);
	if ((size_t)(a->end - a->next) < len && add_chunk(a))
		return NULL;
	p = a->next;
	a->next += len;
	return p;
}

void index_free(struct kedge_cache *c)
{
	struct chunk *chunk = c->arena.chunks, *before;

	for (; chunk; chunk = before) {
		before = chunk->before;
		munmap(chunk, chunk->len);
	}
}

#define PAGE_LEN  ((uint64_t)1 << PAGE_SHIFT)
#define BLOCK_LEN ((uint64_t)1 << BLOCK_SHIFT)
#define LEAF_LEN  ((uint64_t)1 << LEAF_SHIFT)

/* A part of a region's range, within one block. */
struct piece {
	uint64_t start;
	uint64_t end;
};

/* The part of [start, end) that is in the block of @at. */
static struct piece piece_at(uint64_t at, uint64_t start, uint64_t end)
{
	uint64_t low = round_down(at, BLOCK_LEN), high = low + BLOCK_LEN;

	return (struct piece){ start > low ? start : low,
			       end < high ? end : high };
}

/* The part of region @id that is in the block of @at. */
static struct piece piece_of(const struct kedge_cache *c, uint64_t at,
			     uint32_t id)
{
	const struct kedge_mr *mr = &c->regions[id].mr;

	return piece_at(at, mr->addr, mr->addr + mr->len);
}

static bool within(struct piece in, struct piece out)
{
	return in.start >= out.start && in.end <= out.end;
}

static uint32_t load(const _Atomic uint32_t *slot)
{
	return atomic_load_explicit(slot, memory_order_relaxed);
}

/* release: what the id or BLOCK_SPLIT leads to is made. */
static void store(_Atomic uint32_t *slot, uint32_t id)
{
	atomic_store_explicit(slot, id, memory_order_release);
}

static struct leaf *leaf_make(struct kedge_cache *c, uint64_t addr)
{
	_Atomic(struct mid *) *root = &c->root[addr >> (LEAF_SHIFT + LEVEL_BITS)];
	struct mid *mid = atomic_load_explicit(root, memory_order_relaxed);
	_Atomic(struct leaf *) *link;
	struct leaf *leaf;

	if (!mid) {
		mid = arena_get(&c->arena, sizeof(*mid));
		if (!mid)
			return NULL;
		/* release: linked when it is zero. Partner: index_leaf(). */
		atomic_store_explicit(root, mid, memory_order_release);
	}
	link = &mid->leaf[(addr >> LEAF_SHIFT) & (LEVEL_CNT - 1)];
	leaf = atomic_load_explicit(link, memory_order_relaxed);
	if (leaf)
		return leaf;
	leaf = arena_get(&c->arena, sizeof(*leaf));
	if (leaf)
		atomic_store_explicit(link, leaf, memory_order_release);
	return leaf;
}

static bool pages_make(struct kedge_cache *c, struct leaf *leaf)
{
	struct pages *pages =
		atomic_load_explicit(&leaf->pages, memory_order_relaxed);

	if (pages)
		return true;
	pages = arena_get(&c->arena, sizeof(*pages));
	if (pages)
		atomic_store_explicit(&leaf->pages, pages,
				      memory_order_release);
	return pages;
}

static void fill(struct leaf *leaf, struct piece p, uint32_t id)
{
	for (; p.start < p.end; p.start += PAGE_LEN)
		store(page_of(leaf, p.start), id);
}

/* Split the block of @at, which names region @id. Its pages exist. */
static void split(struct kedge_cache *c, struct leaf *leaf, uint64_t at,
		  uint32_t id)
{
	fill(leaf, piece_of(c, at, id), id);
	store(block_of(leaf, at), BLOCK_SPLIT);
}

/* True if a block that names @old must be split to name @p another's, too. */
static bool shares(const struct kedge_cache *c, struct piece p, uint32_t old)
{
	return old && old != BLOCK_SPLIT &&
	       !within(piece_of(c, p.start, old), p);
}

/* All that index_set() will need. */
static int prepare(struct kedge_cache *c, uint64_t start, uint64_t end)
{
	struct piece p;
	uint64_t at;

	for (at = start; at < end; at = p.end) {
		struct leaf *leaf = leaf_make(c, at);

		if (!leaf)
			return -ENOMEM;
		p = piece_at(at, start, end);
		if (shares(c, p, load(block_of(leaf, at))) &&
		    !pages_make(c, leaf))
			return -ENOMEM;
	}
	return 0;
}

static void set_piece(struct kedge_cache *c, struct piece p, uint32_t id)
{
	struct leaf *leaf = index_leaf(c, p.start);
	_Atomic uint32_t *block = block_of(leaf, p.start);
	uint32_t old = load(block);

	if (shares(c, p, old))
		split(c, leaf, p.start, old);
	if (load(block) == BLOCK_SPLIT)
		fill(leaf, p, id);
	else
		store(block, id);
}

int index_set(struct kedge_cache *c, uint32_t id)
{
	const struct kedge_mr *mr = &c->regions[id].mr;
	uint64_t at = mr->addr, end = at + mr->len;
	struct piece p;

	if ((end - 1) >> ADDR_BITS)
		return -EOPNOTSUPP;
	if (prepare(c, at, end))
		return -ENOMEM;
	for (; at < end; at = p.end) {
		p = piece_at(at, mr->addr, end);
		set_piece(c, p, id);
	}
	return 0;
}

static uint64_t clear_pages(struct leaf *leaf, struct piece p, uint32_t id)
{
	uint64_t cleared = 0;

	for (; p.start < p.end; p.start += PAGE_LEN) {
		if (load(page_of(leaf, p.start)) != id)
			continue;
		store(page_of(leaf, p.start), 0);
		cleared += PAGE_LEN;
	}
	return cleared;
}

static uint64_t clear_piece(struct kedge_cache *c, struct leaf *leaf,
			    struct piece p, uint32_t id)
{
	_Atomic uint32_t *block = block_of(leaf, p.start);

	if (load(block) == id) {
		struct piece all = piece_of(c, p.start, id);

		/* Without memory for pages the block's others go, too. */
		if (within(all, p) || !pages_make(c, leaf)) {
			store(block, 0);
			return all.end - all.start;
		}
		split(c, leaf, p.start, id);
	}
	return load(block) == BLOCK_SPLIT ? clear_pages(leaf, p, id) : 0;
}

uint64_t index_clear(struct kedge_cache *c, uint64_t start, uint64_t end,
		     uint32_t id)
{
	uint64_t cleared = 0;
	struct piece p;

	for (; start < end; start = p.end) {
		struct leaf *leaf = index_leaf(c, start);

		p = piece_at(start, start, end);
		if (leaf)
			cleared += clear_piece(c, leaf, p, id);
	}
	return cleared;
}

uint64_t index_run(const struct kedge_cache *c, uint64_t start, uint64_t end,
		   uint32_t id)
{
	uint64_t at, next;

	for (at = start; at < end; at = next)
		if (index_step(c, at, &next) != id)
			return at;
	return end;
}
