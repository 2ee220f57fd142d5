// SPDX-License-Identifier: BSD-2-Clause
/*
 * Versions of UCX of which no structure is known. From 1.16 on libucp has the one cache of
 * registrations of host memory. 1.14 and 1.15 have caches below it, of InfiniBand and KNEM. In a
 * build without the headers of 1.13, which are theirs, too (rcache.c), those are refused, so all is
 * registered anew that libucp does not keep: that is slow, and right.
 *
 * Lookups come to ucs_rcache_get() (hidden.h), which is preceded by the events of what has changed.
 *
 * A registration is made by uct_md_mem_reg_v2(), or _reg(), once for each memory domain, while
 * the region is in UCX's table: so all events of a watch that begins before the registration meet
 * the region there. That is step 3 of the proof in regions.c. As no structure of a region is
 * known, its watch is found by the handle that the registration has given (handles.h).
 *
 * UCX drops a range that it is told of at once, or keeps it as an event that each
 * ucs_rcache_get() begins with: it needs no second telling, unless it had no memory to keep it by.
 * That memory comes from ucm_orig_mmap(); where that fails while UCX is told, the drop is lost, and
 * is said again.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "begun.h"
#include "found.h"
#include "handles.h"
#include "hidden.h"
#include "later.h"

#define CACHE "ucp_rcache" /* libucp's, of this process's memory */
#define TRIES 100 /* of a lookup: a process that is out of memory for good gets an error */

/* The handle of domains that have none to register with (TCP, CMA, a process's own): no object is
 * at an odd address. */
#define NO_MEMH ((memh_t)0xdeadbeef)

/* ---- what regions.c asks of UCX ---- */

static _Thread_local bool telling, lost;

void later_has_no_memory(void)
{
	lost = telling;
}

static bool drop(uintptr_t start, size_t len)
{
	lost = false;
	telling = true;
	found()->vm_munmap((void *)start, len);
	telling = false;
	return !lost;
}

/* Registrations of the parent's have handles that are not known here, and are not ended. */
static void anew(void)
{
	handles_anew();
	hidden_anew();
}

static const struct regions_ops ops = { .drop = drop, .say = begin_without, .anew = anew };

/* ---- caches ---- */

/* Of remote memory, or of GPUs', which is told of in other ways. */
static bool is_left_alone(const char *name)
{
	static const char *const names[] = { "gdr_copy", "rocm_copy", "xpmem_remote_mem" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

static int refuse(const char *name, const void *caller)
{
	static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;
	static bool said;

	pthread_mutex_lock(&saying);
	/* UCX's transports go on without a cache of their own, and libucp has one above them. */
	if (!said && !found_is_of(caller, "libuct")) {
		found_say("the cache of registrations \"%s\" is not made, as it cannot be watched "
			  "in this version of UCX, where only that of libucp can", name);
		said = true;
	}
	pthread_mutex_unlock(&saying);
	return UCX_UNSUPPORTED;
}

static int later_create(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache,
			const void *caller)
{
	const char *is = (const char *)name;

	if (is_left_alone(is))
		return found()->create(params, name, stats, cache, 0, 0, 0, 0);
	if (hidden_is_import(is))
		return hidden_create(params, name, stats, cache, false);
	if (strcmp(is, CACHE) != 0)
		return refuse(is, caller);
	if (!begin(&ops))
		return UCX_UNSUPPORTED;
	return hidden_create(params, name, stats, cache, true);
}

static void later_destroy(uintptr_t cache)
{
	/* Before: its memory may be another cache's behind that. */
	hidden_remove(cache);
	found()->destroy(cache, 0, 0, 0, 0, 0, 0, 0);
}

/* ---- lookups ---- */

static int refuse_lookup(void)
{
	static _Atomic bool said;

	if (!atomic_exchange(&said, true))
		found_say("lookups are refused, as those of this libucp are not seen: it was built "
			  "in another way than UCX is. Set UCX_RCACHE_ENABLE=n");
	return UCX_UNSUPPORTED;
}

static int later_get(const uintptr_t w[8])
{
	struct regions *t = begun();
	int i;

	if (!hidden_is_asked(w[0]))
		return refuse_lookup();
	for (i = 0; t && regions_settle(t, w[1], w[2]) == REGIONS_LOST; i++) {
		if (i == TRIES) {
			found_say("a lookup is refused: UCX has no memory to drop a registration "
				  "whose pages have gone");
			return UCX_NO_MEMORY;
		}
		sched_yield();
	}
	return found()->get(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
}

/* ---- registrations ---- */

/* Calls of libuct's in this thread: one of the two of a kind may be made of the other. */
static _Thread_local unsigned int within;

static int call_reg(ucx_fn reg, md_t md, uintptr_t at, size_t len, uintptr_t how, memh_t *memh)
{
	int status;

	within++;
	status = reg((uintptr_t)md, at, len, how, (uintptr_t)memh, 0, 0, 0);
	within--;
	return status;
}

static int call_dereg(ucx_fn dereg, md_t md, uintptr_t how)
{
	int status;

	within++;
	status = dereg((uintptr_t)md, how, 0, 0, 0, 0, 0, 0);
	within--;
	return status;
}

/* All of memory: an adapter that faults pages in by itself has no pages of its own to go stale. */
static bool is_all(uintptr_t at, size_t len)
{
	return !at && len == SIZE_MAX;
}

int later_reg(ucx_fn reg, md_t md, uintptr_t at, size_t len, uintptr_t how, memh_t *memh)
{
	struct regions *t = begun();
	struct handle *h;
	int status;

	if (!t || within || !len || is_all(at, len))
		return call_reg(reg, md, at, len, how, memh);
	h = handle_new();
	if (!h)
		return UCX_NO_MEMORY;
	regions_begin(t, &h->region, h, at, len);
	status = call_reg(reg, md, at, len, how, memh);
	if (status == UCX_OK && *memh != NO_MEMH) {
		handles_add(h, md, *memh);
		return status;
	}
	regions_end(t, &h->region);
	free(h);
	return status;
}

int later_dereg(ucx_fn dereg, md_t md, uintptr_t how, memh_t memh)
{
	struct regions *t = begun();
	struct handle *h, *next;
	bool known = false, forked;

	if (!t || within || memh == NO_MEMH)
		return call_dereg(dereg, md, how);
	forked = regions_process(t);
	for (h = handles_remove(md, memh, &known); h; h = next) {
		next = h->next;
		regions_end(t, &h->region);
		free(h);
	}
	/* It is the parent's, in which it is alive; or the child's, of a kind that is not watched
	 * (above), which leaks. */
	if (forked && !known)
		return UCX_OK;
	return call_dereg(dereg, md, how);
}

const struct way way_later = {
	.create = later_create,
	.get = later_get,
	.destroy = later_destroy,
};
