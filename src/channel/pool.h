/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The landing pool: huge pages that are there before a message needs them. A
 * thread of its own makes them, or the channel while it waits for data; where
 * they are behind, a message lands on blocks whose pages come with the data;
 * where all blocks are lent it takes another way. Nobody waits.
 */
#ifndef CHANNEL_POOL_H
#define CHANNEL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool_landing;

/* Neighbouring blocks of the pool that were taken. */
struct landing {
	char *addr;  /* what lands at a buffer's first byte, landed here */
	uint32_t at; /* the first block */
	uint32_t cnt;
};

/* Its thread begins at once. 0 or a negative errno. */
int pool_open(uint64_t bytes, struct pool_landing **pool);
/* @ours: false in a forked child, where the thread is not. */
void pool_close(struct pool_landing *p, bool ours);

/*
 * Blocks for a message that is to be at @buf: congruent to it. -EAGAIN: all
 * are lent, or the pool is too small.
 */
int pool_take(struct pool_landing *p, const char *buf, uint64_t len,
	      struct landing *l);
/* Make one block ready, if one is wanted: true if that was done. It takes what
 * clearing a huge page takes. */
bool pool_make(struct pool_landing *p);
/* @quiet: nobody writes there any more. If not, they are never used again. */
void pool_give(struct pool_landing *p, const struct landing *l, bool quiet);

/* The part of [buf, buf + len) that whole blocks can be swapped under. */
static inline uint64_t body_start(const char *buf, uint64_t unit)
{
	return ((uintptr_t)buf + unit - 1) & ~(unit - 1);
}

static inline uint64_t body_end(const char *buf, uint64_t len, uint64_t unit)
{
	return ((uintptr_t)buf + len) & ~(unit - 1);
}

#endif /* CHANNEL_POOL_H */
