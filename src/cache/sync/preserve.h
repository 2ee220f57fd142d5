/* SPDX-License-Identifier: BSD-2-Clause */
/* The care for the data in a region that ends: preserve.c. Part of internal.h. */
#ifndef CACHE_SYNC_PRESERVE_H
#define CACHE_SYNC_PRESERVE_H

#include <stdbool.h>
#include <stdint.h>

struct kedge_cache;
struct region;
struct region_cold;
struct taken;

/* The fate of a region's pages, as events tell it. */
struct fate {
	uint64_t unsure_start; /* may not be there any more */
	uint64_t unsure_end;
	uint64_t given_start; /* the application dropped it */
	uint64_t given_end;
	bool moved; /* something of the unsure may be elsewhere */
};

/* With the lock held: */
void preserve_note(struct region_cold *cold, const struct taken *t, bool given);
/* The region leaves the index, or never comes into it. */
void preserve_or_unwatch(struct kedge_cache *c, struct region *r, bool rearm);
void preserve_covered(struct kedge_cache *c, struct region *old,
		      const struct region *by);
void region_unwatch(struct kedge_cache *c, struct region *r);
void preserve_begin(struct kedge_cache *c, struct region *r); /* it is DEAD */
/* Without it: */
/* True if events will not help: preserve_unwatched() is for all regions. */
bool preserve_needs_all(const struct kedge_cache *c);
void preserve_unwatched(struct kedge_cache *c, struct region *r);
/* Returns the list of regions that died meanwhile. */
uint32_t preserve_dead(struct kedge_cache *c, uint32_t dead);

#endif /* CACHE_SYNC_PRESERVE_H */
