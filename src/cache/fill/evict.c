// SPDX-License-Identifier: BSD-2-Clause
/*
 * Limits. A hit writes no list: it only notes the cache's epoch, which grows
 * with every miss, in its region. The list is in the order in which regions
 * were last *known* to be used; whoever is found at its head and has been used
 * since goes to its end instead of out. So the order is that of use, to the
 * precision of a miss.
 */
#include "cache/internal.h"

bool over_limit(const struct kedge_cache *c, uint64_t bytes)
{
	return c->live >= c->max_regions ||
	       (c->max_bytes && (bytes > c->max_bytes ||
				 c->bytes > c->max_bytes - bytes));
}

/* True if the limits let @want more bytes in when @cnt regions have gone. */
static bool fits(const struct kedge_cache *c, uint64_t want, uint64_t freed,
		 uint32_t cnt)
{
	return c->live - cnt < c->max_regions &&
	       (!c->max_bytes || c->bytes - freed <= c->max_bytes - want);
}

/* A full device: whether a region, and @want bytes or more, have gone. */
static bool relieved(uint64_t want, uint64_t freed, uint32_t cnt)
{
	return cnt && freed >= want;
}

static bool enough(const struct kedge_cache *c, enum room room, uint64_t want,
		   uint64_t freed, uint32_t cnt)
{
	return room == ROOM_LIMITS ? fits(c, want, freed, cnt)
				   : relieved(want, freed, cnt);
}

static uint64_t drop(struct kedge_cache *c, struct region *r, uint32_t *killed)
{
	c->st.evictions++;
	region_kill(c, r, WHY_UNWANTED, killed);
	return r->mr.len;
}

void evict_freed(struct kedge_cache *c, uint32_t *killed)
{
	struct region *r;

	while (freed_too_much(c) && (r = freed_take(c)))
		drop(c, r, killed);
}

/*
 * Kill what was freed, then the least recently used, until @bytes more fit: into
 * the cache's limits, or into the device. A size above the whole limit evicts no
 * region.
 */
bool evict(struct kedge_cache *c, enum room room, uint64_t bytes,
	   uint32_t *killed)
{
	uint64_t freed = 0;
	uint32_t cnt = 0;
	uint64_t scans = 2ull * c->live + 2;
	struct region *r;

	if (room == ROOM_LIMITS && c->max_bytes && bytes > c->max_bytes)
		return false;
	while (!enough(c, room, bytes, freed, cnt) && (r = freed_take(c))) {
		freed += drop(c, r, killed);
		cnt++;
	}
	while (c->lru_first && scans-- &&
	       !enough(c, room, bytes, freed, cnt)) {
		uint32_t id = c->lru_first, used;

		r = &c->regions[id];
		used = atomic_load_explicit(&r->used, memory_order_relaxed);

		if (used != cold_at(c, id)->queued || is_held(c, id)) {
			lru_remove(c, r);
			lru_add(c, r);
			continue;
		}
		freed += drop(c, r, killed);
		cnt++;
	}
	return enough(c, room, bytes, freed, cnt);
}
