// SPDX-License-Identifier: BSD-2-Clause
/*
 * The index: a radix tree of three levels, as page tables are, from granule of
 * address to region id. Readers walk it without a lock. Tables are added, never
 * taken away while the cache is open, and filled before they are linked; 16 KiB
 * of leaf serve 16 MiB of address space.
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

static unsigned int level(uint64_t addr, unsigned int up)
{
	return (addr >> (SLOT_SHIFT + up * LEVEL_BITS)) & (LEVEL_CNT - 1);
}

static struct leaf *leaf_of(const struct kedge_cache *c, uint64_t addr)
{
	struct mid *mid;

	if (addr >> ADDR_BITS)
		return NULL;
	mid = atomic_load_explicit(&c->root[level(addr, 2)],
				   memory_order_acquire);
	if (!mid)
		return NULL;
	return atomic_load_explicit(&mid->leaf[level(addr, 1)],
				    memory_order_acquire);
}

static struct leaf *leaf_make(struct kedge_cache *c, uint64_t addr)
{
	_Atomic(struct mid *) *root = &c->root[level(addr, 2)];
	struct mid *mid = atomic_load_explicit(root, memory_order_relaxed);
	struct leaf *leaf;

	if (!mid) {
		mid = arena_get(&c->arena, sizeof(*mid));
		if (!mid)
			return NULL;
		/* release: linked when it is zero. Partner: index_find(). */
		atomic_store_explicit(root, mid, memory_order_release);
	}
	leaf = atomic_load_explicit(&mid->leaf[level(addr, 1)],
				    memory_order_relaxed);
	if (leaf)
		return leaf;
	leaf = arena_get(&c->arena, sizeof(*leaf));
	if (leaf)
		atomic_store_explicit(&mid->leaf[level(addr, 1)], leaf,
				      memory_order_release);
	return leaf;
}

#define LEAF_SPAN ((uint64_t)1 << (SLOT_SHIFT + LEVEL_BITS))

static uint64_t leaf_end(uint64_t addr, uint64_t end)
{
	uint64_t next = round_down(addr, LEAF_SPAN) + LEAF_SPAN;

	return next < end ? next : end;
}

int index_set(struct kedge_cache *c, uint64_t start, uint64_t end, uint32_t id)
{
	uint64_t at, stop;

	if ((end - 1) >> ADDR_BITS)
		return -EOPNOTSUPP;
	for (at = start; at < end; at = leaf_end(at, end))
		if (!leaf_make(c, at))
			return -ENOMEM;
	for (at = start; at < end; at = stop) {
		struct leaf *leaf = leaf_of(c, at);

		stop = leaf_end(at, end);
		for (; at < stop; at += 1u << SLOT_SHIFT)
			/* release: the region is made. */
			atomic_store_explicit(&leaf->id[level(at, 0)], id,
					      memory_order_release);
	}
	return 0;
}

void index_clear(struct kedge_cache *c, uint64_t start, uint64_t end,
		 uint32_t id)
{
	uint64_t at, stop;

	for (at = start; at < end; at = stop) {
		struct leaf *leaf = leaf_of(c, at);

		stop = leaf_end(at, end);
		for (; leaf && at < stop; at += 1u << SLOT_SHIFT)
			if (atomic_load_explicit(&leaf->id[level(at, 0)],
						 memory_order_relaxed) == id)
				atomic_store_explicit(&leaf->id[level(at, 0)],
						      0, memory_order_relaxed);
	}
}

bool index_all(const struct kedge_cache *c, uint64_t start, uint64_t end,
	       uint32_t id)
{
	uint64_t at;

	for (at = start; at < end;
	     at = round_down(at, 1u << SLOT_SHIFT) + (1u << SLOT_SHIFT))
		if (index_find(c, at) != id)
			return false;
	return true;
}
