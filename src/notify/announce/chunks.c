// SPDX-License-Identifier: BSD-2-Clause
/*
 * The chunks that an allocator has handed out and that its free() will announce. A page that
 * holds a part of one stays mapped until then, also where it holds parts of others: so the page
 * at a chunk's border counts for both neighbours, also when one of them was freed. A bit for each
 * page, as origin.c has, could not say that.
 *
 * A chunk that is noted is at least as long as a granule, so no two begin in the same one, and a
 * word for each granule holds them all: a free() and a malloc() are one store each. The granule
 * has the chunk's offset in it and its length, 0 for none. A longer chunk than CHUNK_MAX is not
 * noted: the way back from a page to the chunk that holds it would be too long. It is memory that
 * lookups ask the kernel about.
 *
 * Threads: the same word is written by threads that hand memory to each other, one after the
 * other, by way of the allocator's lock. Relaxed: as origin.c has it. A leaf is published with
 * release and read with acquire; no lock is taken.
 */
#include <stdatomic.h>

#include "base/base.h"
#include "base/process/own.h"
#include "notify/announce/chunks.h"

#define GRANULE_SHIFT 16
#define GRANULE	      ((uint64_t)1 << GRANULE_SHIFT)
#define LEAF_SHIFT    30
#define LEAF_BYTES    ((uint64_t)1 << LEAF_SHIFT)
#define LEAF_WORDS    (1u << (LEAF_SHIFT - GRANULE_SHIFT))
#define ADDR_SHIFT    48
#define LEAF_CNT      (1u << (ADDR_SHIFT - LEAF_SHIFT))
#define CHUNK_MAX     ((uint64_t)64 << 20)

typedef _Atomic uint64_t word;

static word *_Atomic leaves[LEAF_CNT];
static _Atomic uint64_t longest; /* of all chunks that there were; 0: no chunk was noted */

static word *leaf_of(uint64_t addr)
{
	return atomic_load_explicit(&leaves[addr >> LEAF_SHIFT], memory_order_acquire);
}

static word *leaf_make(uint64_t addr)
{
	word *_Atomic *link = &leaves[addr >> LEAF_SHIFT];
	word *leaf = leaf_of(addr), *fresh;

	if (likely(leaf))
		return leaf;
	fresh = own_map(LEAF_WORDS * sizeof(*fresh));
	if (fresh && !atomic_compare_exchange_strong(link, &leaf, fresh)) {
		own_unmap((void *)fresh, LEAF_WORDS * sizeof(*fresh));
		fresh = leaf;
	}
	return fresh;
}

static word *word_in(word *leaf, uint64_t addr)
{
	return &leaf[(addr >> GRANULE_SHIFT) % LEAF_WORDS];
}

static uint64_t load(word *leaf, uint64_t addr)
{
	return atomic_load_explicit(word_in(leaf, addr), memory_order_relaxed);
}

static void store(word *leaf, uint64_t addr, uint64_t value)
{
	atomic_store_explicit(word_in(leaf, addr), value, memory_order_relaxed);
}

static bool in_table(uint64_t start, uint64_t end)
{
	return start < end && end <= (uint64_t)1 << ADDR_SHIFT;
}

static void note_length(uint64_t len)
{
	uint64_t max = atomic_load_explicit(&longest, memory_order_relaxed);

	while (unlikely(len > max) && !atomic_compare_exchange_weak(&longest, &max, len))
		;
}

void chunks_add(uint64_t start, uint64_t len)
{
	word *leaf;

	if (len < GRANULE || len > CHUNK_MAX || !in_table(start, start + len))
		return;
	leaf = leaf_make(start);
	if (!leaf)
		return;
	note_length(len);
	store(leaf, start, len << GRANULE_SHIFT | start % GRANULE);
}

void chunks_remove(uint64_t start)
{
	word *leaf = in_table(start, start + 1) ? leaf_of(start) : NULL;
	uint64_t value = leaf ? load(leaf, start) : 0;

	if (value && value % GRANULE == start % GRANULE)
		store(leaf, start, 0);
}

struct chunk {
	uint64_t start;
	uint64_t end;
};

/* The last chunk that begins before @at, of those that may reach to it. False: no such chunk. */
static bool last_before(uint64_t at, struct chunk *c)
{
	uint64_t far = atomic_load_explicit(&longest, memory_order_relaxed), low, g, value;

	if (!far)
		return false;
	/* @at is the end of the page in which the chunk ends, so it may begin a page sooner. */
	far += kedge__page_size();
	low = at > far ? at - far : 0;
	for (g = round_down(at - 1, GRANULE);; g -= GRANULE) {
		word *leaf = leaf_of(g);

		value = leaf ? load(leaf, g) : 0;
		c->start = g + value % GRANULE;
		c->end = c->start + (value >> GRANULE_SHIFT);
		if (value && c->start < at)
			return true;
		if (!leaf)
			g = round_down(g, LEAF_BYTES);
		if (g <= low)
			return false;
	}
}

void chunks_remove_in(uint64_t start, uint64_t end)
{
	uint64_t at, step;
	struct chunk c;

	if (!in_table(start, end))
		return;
	if (last_before(start, &c) && c.end > start)
		chunks_remove(c.start);
	for (at = round_down(start, GRANULE); at < end; at = round_down(at, step) + step) {
		word *leaf = leaf_of(at);
		uint64_t value = leaf ? load(leaf, at) : 0, first = at + value % GRANULE;

		step = leaf ? GRANULE : LEAF_BYTES;
		if (value && first >= start && first < end)
			store(leaf, at, 0);
	}
}

uint64_t chunks_cover(uint64_t at)
{
	uint64_t page = kedge__page_size();
	struct chunk c;

	if (!in_table(at, at + page) || !last_before(at + page, &c) || c.end <= at)
		return at;
	return round_up(c.end, page);
}

bool chunks_in(uint64_t start, uint64_t end)
{
	struct chunk c;

	return in_table(start, end) && last_before(end, &c) && c.end > start;
}
