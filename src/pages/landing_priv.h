/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of the landing pool and the mappings that they lie in.
 */
#ifndef PAGES_LANDING_PRIV_H
#define PAGES_LANDING_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/* See landing.c. */
enum block {
	BLOCK_FREE,
	BLOCK_USED,
	BLOCK_MAKING, /* the thread has it, or landing_make() */
	BLOCK_READY,
	BLOCK_EMPTYING, /* LENT in a moment */
	BLOCK_LENT,
	BLOCK_LOST,
};

/* Neighbouring blocks: one mapping. */
struct extent {
	struct list node;
	char *area; /* as mapped */
	size_t area_len;
	char *base; /* the first block */
	uint32_t cnt;
	uint8_t block[];
};

static inline char *block_at(const struct extent *e, uint32_t i, size_t unit)
{
	return e->base + (size_t)i * unit;
}

/* @cnt blocks, FREE; in no list. NULL: no memory or no addresses. */
struct extent *extent_map(uint32_t cnt);
/* In no list. Addresses of LOST blocks stay taken. */
void extent_unmap(struct extent *e);
/* No block of it is being made or emptied, or is lent. */
bool extent_idle(const struct extent *e);
/* All that it has are addresses. */
bool extent_bare(const struct extent *e);
uint32_t extent_count(const struct extent *e, enum block what);

/* Blocks that a message may land on: at best READY ones. */
enum { TAKE_READY, TAKE_FREE, TAKE_USED, TAKES };

/* The first of @cnt neighbours that are so good; e->cnt if there is no such run. */
uint32_t extent_run(const struct extent *e, uint32_t cnt, int take);

/*
 * Work on one block, which is the caller's alone. What was there goes, and so
 * does the table of its single pages, which would be in a huge page's way for
 * good: madvise() takes that away since Linux 6.14 only. False: it stays as it is.
 */
bool block_empty(const struct extent *e, uint32_t i);
/* One huge page where the kernel has one; sets @single if it has not. */
bool block_make(const struct extent *e, uint32_t i, bool *single);
/* Its pages go, its address stays taken and faults. */
void block_lose(const struct extent *e, uint32_t i);

#endif /* PAGES_LANDING_PRIV_H */
