// SPDX-License-Identifier: BSD-2-Clause
/* libucp's: see standin.h. */
#include <stdatomic.h>
#include <stdlib.h>

#include "standin.h"

void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release)
{
	*major = 1;
	*minor = 18;
	*release = 1;
}

struct context *standin_open(const char *cache, struct uct_md *md)
{
	struct context *c = calloc(1, sizeof(*c));

	if (!c || pthread_mutex_init(&c->mt_lock, NULL))
		abort();
	c->md = md;
	/* UCX goes on without a cache; that is all the same here. */
	if (STATUS(ucs_rcache_create(NULL, cache, NULL, &c->cache))) {
		free(c);
		return NULL;
	}
	return c;
}

void standin_close(struct context *c)
{
	ucs_rcache_destroy(c->cache);
	pthread_mutex_destroy(&c->mt_lock);
	free(c);
}

static struct region *find(const struct table *table, uintptr_t at)
{
#ifdef ELSEWHERE /* as of a libucp that was built with libucs's code */
	struct region *r;

	for (r = table->first; r && (at < r->start || at >= r->end); r = r->next)
		;
	return r;
#else
	return ucs_pgtable_lookup(table, at);
#endif
}

/* UCX has it inlined: no lock of the cache's is taken. */
static struct region *look(struct context *c, uintptr_t at, size_t len)
{
	struct region *r;

	if (__atomic_load_n(&c->cache->events, __ATOMIC_ACQUIRE))
		return NULL;
	r = find(&c->cache->table, at);
	if (!r || at + len > r->end || !r->memh)
		return NULL;
	__atomic_add_fetch(&r->refs, 1, __ATOMIC_ACQ_REL);
	atomic_fetch_add(&c->inlined, 1);
	return r;
}

struct region *standin_get(struct context *c, void *at, size_t len)
{
	struct region *r;

	pthread_mutex_lock(&c->mt_lock);
	atomic_fetch_add(&c->lookups, 1);
	r = look(c, (uintptr_t)at, len);
	if (!r && STATUS(ucs_rcache_get(c->cache, at, len, 64, 3, c->cache, &r)))
		r = NULL;
	if (r && !r->memh) {
		r->md = c->md;
		if (STATUS(uct_md_mem_reg_v2(c->md, (void *)r->start, r->end - r->start, NULL,
					     &r->memh))) {
			ucs_rcache_region_put(c->cache, r);
			r = NULL;
		}
	}
	pthread_mutex_unlock(&c->mt_lock);
	return r;
}

void standin_put(struct context *c, struct region *r)
{
	pthread_mutex_lock(&c->mt_lock);
	ucs_rcache_region_put(c->cache, r);
	pthread_mutex_unlock(&c->mt_lock);
}
