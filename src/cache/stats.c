// SPDX-License-Identifier: BSD-2-Clause
/* Counters for people, and dropping everything. */
#include "cache/internal.h"

/*
 * Each thread counts its lookups by its section, which a lookup moves by two, and
 * those that found no region. acquire: the latter first, or there would be more
 * of them than there are lookups.
 */
static uint64_t fast_hits(struct kedge_cache *c)
{
	uint64_t hits = atomic_load_explicit(&c->hits, memory_order_relaxed);
	struct thread_rec *rec;
	uint64_t missed;

	for (rec = c->recs; rec; rec = rec->next) {
		missed = atomic_load_explicit(&rec->missed,
					      memory_order_acquire);
		hits += atomic_load_explicit(&rec->section,
					     memory_order_relaxed) / 2 - missed;
	}
	return hits;
}

#define STATS_V1 STRUCT_END(struct kedge_cache_stats, failures)

int kedge_cache_stats(struct kedge_cache *c, struct kedge_cache_stats *stats)
{
	struct kedge_cache_stats st;

	if (!c)
		return kedge_reason(-EINVAL, "the cache is NULL");
	if (!nf_owned(c->nf))
		return nf_not_owned();
	pthread_mutex_lock(&c->lock);
	st = c->st;
	st.hits += fast_hits(c);
	st.gets = st.hits + st.misses;
	st.regions = c->live;
	st.bytes = c->bytes;
	st.freed_bytes = freed_now(c);
	st.stuck = c->stuck.cnt;
	pthread_mutex_unlock(&c->lock);
	return kedge__info_copy(stats, STATS_V1, &st, sizeof(st));
}

static ssize_t drop_all(struct kedge_cache *c)
{
	uint32_t killed = 0, dead = 0, id, next;

	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	for (id = c->lru_first; id; id = next) {
		next = cold_at(c, id)->next;
		/* Out of the index, it would be in the way of others. */
		if (!c->exclusive || c->quiet || !is_held(c, id))
			region_kill(c, &c->regions[id], WHY_UNWANTED, &killed);
	}
	region_collect(c, &killed, &dead);
	stuck_take(c, &dead);
	pthread_mutex_unlock(&c->lock);
	return region_reap(c, dead);
}

ssize_t kedge_cache_flush(struct kedge_cache *c)
{
	ssize_t n;
	int saved;

	if (!c)
		return kedge_reason(-EINVAL, "the cache is NULL");
	if (!nf_owned(c->nf))
		return nf_not_owned();
	n = check_thread(c);
	if (n)
		return n;
	saved = cancel_disable();
	n = drop_all(c);
	cancel_restore(saved);
	return n;
}
