/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The landing pool: huge pages that are there before a message needs them. It is
 * the process's, and all its channels share it. A thread of its own makes the
 * pages, or a channel does while it waits for data; where they are behind, a
 * message lands on blocks that get their pages with the data; where all blocks are
 * lent it takes another way. No message waits.
 */
#ifndef PAGES_LANDING_H
#define PAGES_LANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A channel's part in the pool. One thread uses it at a time. */
struct landing_member;
struct extent;

/* Neighbouring blocks of the pool that were taken. */
struct landing {
	char *addr;  /* what lands at a buffer's first byte, landed here */
	struct extent *in;
	uint32_t at; /* the first block */
	uint32_t cnt;
};

/*
 * Join the pool, to have at most @bytes of it at a time. The first to join
 * starts its thread, which ends with the last one, and calls @first before it makes
 * pages, unless that is NULL. 0 or a negative errno.
 */
int landing_open(uint64_t bytes, void (*first)(void),
		 struct landing_member **pool);
/* Everything was given back. @ours: false in a forked child, where neither the
 * thread is nor the pages. */
void landing_close(struct landing_member *p, bool ours);

/*
 * Blocks for a message that is to be at @buf: congruent to it. -EAGAIN: all
 * are lent, or it is more than @p may have.
 */
int landing_take(struct landing_member *p, const char *buf, uint64_t len,
		 struct landing *l);
/* Make one block ready, if one is wanted: true if that was done. It takes what
 * clearing a huge page takes. */
bool landing_make(void);
/* @quiet: the peer writes there no more. If not, they are never used again. */
void landing_give(struct landing_member *p, const struct landing *l,
		  bool quiet);

/* The part of [buf, buf + len) that whole blocks can be swapped under. */
static inline uint64_t body_start(const char *buf, uint64_t unit)
{
	return ((uintptr_t)buf + unit - 1) & ~(unit - 1);
}

static inline uint64_t body_end(const char *buf, uint64_t len, uint64_t unit)
{
	return ((uintptr_t)buf + len) & ~(unit - 1);
}

#endif /* PAGES_LANDING_H */
