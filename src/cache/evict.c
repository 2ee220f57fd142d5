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

static bool enough(const struct kedge_cache *c, uint64_t want, uint64_t freed,
		   uint32_t cnt)
{
	if (!cnt || c->live - cnt >= c->max_regions)
		return false;
	if (!c->max_bytes)
		return freed >= want;
	return want <= c->max_bytes && c->bytes - freed <= c->max_bytes - want;
}

/*
 * Kill the least recently used until @bytes more fit: within the limits, and
 * where the device itself is the limit, until as much is free.
 */
bool evict(struct kedge_cache *c, uint64_t bytes, uint32_t *killed)
{
	uint64_t freed = 0;
	uint32_t cnt = 0;
	uint64_t scans = 2ull * c->live + 2;

	while (c->lru_first && scans-- && !enough(c, bytes, freed, cnt)) {
		uint32_t id = c->lru_first;
		struct region *r = &c->regions[id];
		uint32_t used = atomic_load_explicit(&r->used,
						     memory_order_relaxed);

		if (used != c->cold[id].queued || refs_sum(c, id)) {
			lru_remove(c, r);
			lru_add(c, r);
			continue;
		}
		freed += r->mr.len;
		cnt++;
		c->st.evictions++;
		region_kill(c, r, WHY_UNWANTED, killed);
	}
	return enough(c, bytes, freed, cnt);
}
