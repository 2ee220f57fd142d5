// SPDX-License-Identifier: BSD-2-Clause
/*
 * This file stands before the calls of UCX 1.13 to 1.15 that make, look up in and end a cache of
 * registrations (ucs_rcache), which its transports and libucp call from outside libucs. Its
 * structures are those of the headers.
 *
 * A cache is made with operations of this file, which watch before they call the caller's, and with
 * regions that have room for a struct region behind what the caller has there. UCX is told that its
 * memory events come from outside; each lookup is preceded by the events of what has changed
 * (regions.h). UCX would change code of libc's all the same, when it is loaded, and its mremap()
 * loses the address of MREMAP_FIXED; so it is told not to.
 *
 * UCX puts a region into its table, with the cache locked, before it registers it; so all events of
 * a watch that begins within the registration meet it there. That is step 3 of the proof in
 * regions.c. Memory events find a cache locked at times: then it keeps them, and each lookup begins
 * with those.
 *
 * Caches that are not told of unmapped memory are none of this process's memory (UCX's of XPMEM),
 * or not of the host's, and are left as they are.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>

#include "begun.h"
#include "found.h"
#include "hidden.h"

/* A cache, as its maker wants it. */
struct front {
	struct front *next;
	ucs_rcache_t *cache;
	const ucs_rcache_ops_t *ops;
	void *context;
	size_t behind; /* where struct region is in a region */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards: */
static struct front *fronts;

/* ---- what regions.c asks of UCX ---- */

/* A drop that is lost is seen by is_found(). */
static bool drop(uintptr_t start, size_t len)
{
	found()->vm_munmap((void *)start, len);
	return true;
}

/* UCX changes it with the cache locked. While it does so a drop is under way, or waits. */
static bool is_found(const struct region *r)
{
	const ucs_rcache_region_t *region = r->above;

	/* acquire: a region that is out of the table is forgotten after that. */
	return __atomic_load_n(&region->flags, __ATOMIC_ACQUIRE) & UCS_RCACHE_REGION_FLAG_PGTABLE;
}

/* In a forked child. */
static void anew(void)
{
	pthread_mutex_init(&lock, NULL);
	hidden_anew();
}

static const struct regions_ops ops = { .drop = drop, .found = is_found, .say = begin_without,
					.anew = anew };

/* The lock, which leads to anew() first. */
static void hold(void)
{
	struct regions *t = begun();

	if (t)
		regions_process(t);
	pthread_mutex_lock(&lock);
}

/* ---- operations of a cache ---- */

static struct region *behind(const struct front *f, ucs_rcache_region_t *region)
{
	return (struct region *)(void *)((char *)region + f->behind);
}

static ucs_status_t mem_reg(void *context, ucs_rcache_t *cache, void *arg,
			    ucs_rcache_region_t *region, uint16_t flags)
{
	const struct front *f = context;
	struct regions *t = begun();
	ucs_status_t status;

	regions_begin(t, behind(f, region), region, region->super.start,
		      region->super.end - region->super.start);
	status = f->ops->mem_reg(f->context, cache, arg, region, flags);
	/* UCX does not deregister it then. */
	if (status != UCS_OK)
		regions_end(t, behind(f, region));
	return status;
}

static void mem_dereg(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region)
{
	const struct front *f = context;
	struct regions *t = begun();

	if (regions_end(t, behind(f, region)))
		f->ops->mem_dereg(f->context, cache, region);
}

static void dump_region(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region, char *buf,
			size_t max)
{
	const struct front *f = context;

	f->ops->dump_region(f->context, cache, region, buf, max);
}

static const ucs_rcache_ops_t watching = {
	.mem_reg = mem_reg,
	.mem_dereg = mem_dereg,
	.dump_region = dump_region,
};

/* ---- caches ---- */

static ucs_status_t create(const ucs_rcache_params_t *params, uintptr_t name, uintptr_t stats,
			   ucs_rcache_t **cache)
{
	const size_t align = _Alignof(max_align_t);
	ucs_rcache_params_t own = *params;
	struct front *f;
	ucs_status_t status;

	if (!begin(&ops))
		return UCS_ERR_UNSUPPORTED;
	f = calloc(1, sizeof(*f));
	if (!f)
		return UCS_ERR_NO_MEMORY;
	f->ops = params->ops;
	f->context = params->context;
	f->behind = (params->region_struct_size + align - 1) / align * align;
	own.ops = &watching;
	own.context = f;
	own.region_struct_size = f->behind + sizeof(struct region);
	status = (ucs_status_t)hidden_create((uintptr_t)&own, name, stats, (uintptr_t)&f->cache,
					     true);
	if (status != UCS_OK) {
		free(f);
		return status;
	}
	*cache = f->cache;
	hold();
	f->next = fronts;
	fronts = f;
	pthread_mutex_unlock(&lock);
	return status;
}

/* NULL: it is not served. In use, so it does not end meanwhile. */
static const struct front *front_of(const ucs_rcache_t *cache)
{
	const struct front *f;

	hold();
	for (f = fronts; f && f->cache != cache; f = f->next)
		;
	pthread_mutex_unlock(&lock);
	return f;
}

static struct front *take(const ucs_rcache_t *cache)
{
	struct front **at = &fronts, *f;

	hold();
	while (*at && (*at)->cache != cache)
		at = &(*at)->next;
	f = *at;
	if (f)
		*at = f->next;
	pthread_mutex_unlock(&lock);
	return f;
}

/* ---- in the place of UCX's ---- */

static int rcache_create(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache,
			 const void *caller)
{
	const ucs_rcache_params_t *wanted = (const ucs_rcache_params_t *)params;

	(void)caller;
	/* Of memory of other processes: libucp looks up in it as ever. */
	if (hidden_is_import((const char *)name))
		return hidden_create(params, name, stats, cache, false);
	/* UCX itself refuses one that is too small. */
	if (!(wanted->ucm_events & UCM_EVENT_VM_UNMAPPED) ||
	    wanted->region_struct_size < sizeof(ucs_rcache_region_t))
		return found()->create(params, name, stats, cache, 0, 0, 0, 0);
	return create(wanted, name, stats, (ucs_rcache_t **)cache);
}

/* True: a region that has changed was found, and is put back. */
static bool put_stale(struct regions *t, uintptr_t cache, uintptr_t region, uint64_t since)
{
	ucs_rcache_region_t *r = *(ucs_rcache_region_t **)region;
	const struct front *f;

	if (!regions_may_be_stale(t))
		return false;
	f = front_of((const ucs_rcache_t *)cache);
	if (!f || !regions_is_stale(t, behind(f, r), since))
		return false;
	found()->put(cache, (uintptr_t)r, 0, 0, 0, 0, 0, 0);
	return true;
}

#define TRIES 100 /* of a lookup: a process that is out of memory for good gets an error */

static int rcache_get(const uintptr_t w[8])
{
	struct regions *t = begun();
	uint64_t since = 0;
	int i, status;

	for (i = 0; i < TRIES; i++) {
		if (t)
			since = regions_settle(t, w[1], w[2]);
		status = found()->get(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
		if (!t || status != UCS_OK || !put_stale(t, w[0], w[5], since))
			return status;
		sched_yield();
	}
	found_say("a lookup is refused: UCX finds a registration whose pages have gone, as it has "
		  "no memory to drop it");
	return UCS_ERR_NO_MEMORY;
}

static void rcache_destroy(uintptr_t cache)
{
	struct front *f = take((const ucs_rcache_t *)cache);

	hidden_remove(cache);
	found()->destroy(cache, 0, 0, 0, 0, 0, 0, 0);
	free(f);
}

const struct way way_1_13 = {
	.create = rcache_create,
	.get = rcache_get,
	.destroy = rcache_destroy,
};
