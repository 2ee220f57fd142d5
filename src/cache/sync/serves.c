// SPDX-License-Identifier: BSD-2-Clause
/* A question of hints and resyncs: would a lookup find something? */
#include "cache/internal.h"
#include "cache/priv.h"

bool cache_serves(struct kedge_cache *c, uint64_t start, uint64_t end,
		  uint32_t access)
{
	uint32_t killed = 0, dead = 0, id;
	bool yes;

	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	id = index_find(c, start);
	/* TRUST_ALL: no transfer relies on the answer. */
	yes = id && region_serves(c, &c->regions[id], start, end, access,
				  TRUST_ALL);
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return yes;
}

bool kedge__cache_serves(struct kedge_cache *c, uint64_t start, uint64_t end,
			 uint32_t access)
{
	return cache_serves(c, start, end, access);
}
