/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges of a region that its own program has unmapped, replaced, moved or dropped: gaps. There is
 * room for a few. Beyond that two that are near each other become one, with what is between them:
 * an access there fails without need, but does not go to memory that the program has not.
 */
#ifndef REGION_GAPS_H
#define REGION_GAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

#define GAPS_MAX 32u

/* Bytes [@from, @to). */
struct gap {
	uint64_t from;
	uint64_t to;
};

/* In order; there is something between each and the next. One more than may stay. */
struct gaps {
	uint32_t cnt;
	struct gap at[GAPS_MAX + 1];
};

/*
 * Guards gaps and userfaultfds of all regions, and what is stored in gates about gaps. It is taken
 * within shares_lock. The thread that reads of a change takes this one alone, and the thread that
 * makes the change waits for it, maybe in an allocator: so a thread that holds it does not allocate
 * or free, nor change memory of a region.
 */
extern struct sig_lock gaps_lock;

void gaps_add(struct gaps *g, uint64_t from, uint64_t to);
void gaps_cut(struct gaps *g, uint64_t from, uint64_t to);
/* The first that has a byte of [@from, @to), or NULL. */
const struct gap *gaps_find(const struct gaps *g, uint64_t from, uint64_t to);
/* Bytes in all of them. */
uint64_t gaps_len(const struct gaps *g);

#endif /* REGION_GAPS_H */
