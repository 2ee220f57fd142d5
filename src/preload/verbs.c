// SPDX-License-Identifier: BSD-2-Clause
/*
 * libkedge-preload-verbs: stands in for libibverbs' registration calls. What a
 * cache can serve is a shadow, a struct ibv_mr of ours with the fields that were
 * asked for and the keys of a cached region; all else (on-demand paging, memory
 * windows, huge page and zero-based regions, other iovas, dma-buf and null
 * regions, and whatever kedge refuses) is libibverbs', untouched.
 *
 * No call here fails where libibverbs would not: what the cache cannot do is
 * left to it, and so are the errors.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "preload/held.h"
#include "preload/posts.h"
#include "preload/preload.h"
#include "preload/table.h"

#define EXPORT __attribute__((visibility("default")))
/* Any other access is left to libibverbs. */
#define CACHED                                                            \
	((unsigned int)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			IBV_ACCESS_REMOTE_WRITE |                         \
			IBV_ACCESS_REMOTE_ATOMIC |                        \
			IBV_ACCESS_RELAXED_ORDERING))
#define NEEDS_LOCAL_WRITE \
	((unsigned int)(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))

/* ---- libibverbs ---- */

static struct real next;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_real(void)
{
	/* In this way: a function pointer is no object pointer in C. */
	*(void **)&next.reg_mr = dlvsym(RTLD_NEXT, "ibv_reg_mr",
					"IBVERBS_1.1");
	*(void **)&next.reg_mr_iova = dlsym(RTLD_NEXT, "ibv_reg_mr_iova");
	*(void **)&next.reg_mr_iova2 = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");
	*(void **)&next.dereg_mr = dlvsym(RTLD_NEXT, "ibv_dereg_mr",
					  "IBVERBS_1.1");
	*(void **)&next.rereg_mr = dlsym(RTLD_NEXT, "ibv_rereg_mr");
	*(void **)&next.dealloc_pd = dlvsym(RTLD_NEXT, "ibv_dealloc_pd",
					    "IBVERBS_1.1");
	*(void **)&next.unimport_pd = dlsym(RTLD_NEXT, "ibv_unimport_pd");
	*(void **)&next.close_device = dlvsym(RTLD_NEXT, "ibv_close_device",
					      "IBVERBS_1.1");
	*(void **)&next.open_device = dlvsym(RTLD_NEXT, "ibv_open_device",
					     "IBVERBS_1.1");
}

const struct real *real(void)
{
	pthread_once(&once, find_real);
	return &next;
}

/* ---- shadows, by their address ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *shadows; /* a tree of tsearch()'s */

static int by_address(const void *a, const void *b)
{
	return a < b ? -1 : a > b;
}

static bool shadow_add(struct shadow *s)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = tsearch(s, &shadows, by_address);
	pthread_mutex_unlock(&lock);
	return done;
}

static struct shadow *shadow_find(const struct ibv_mr *mr)
{
	struct shadow *s = NULL;
	void *node;

	pthread_mutex_lock(&lock);
	node = tfind(mr, &shadows, by_address);
	/* The node is the tree's: another thread's tdelete() may free it. */
	if (node)
		s = *(struct shadow **)node;
	pthread_mutex_unlock(&lock);
	return s;
}

/* The shadow that @mr is, which no lookup finds from now on. */
static struct shadow *shadow_take(const struct ibv_mr *mr)
{
	struct shadow *s = NULL;
	void *node;

	pthread_mutex_lock(&lock);
	node = tfind(mr, &shadows, by_address);
	if (node) {
		s = *(struct shadow **)node;
		tdelete(s, &shadows, by_address);
	}
	pthread_mutex_unlock(&lock);
	return s;
}

/* ---- registering ---- */

/* kedge doctor follows what a program does without kedge. */
static bool is_served(void)
{
	static _Atomic int known; /* 1: yes, 2: no */
	int is = atomic_load_explicit(&known, memory_order_relaxed);
	const char *serve;

	if (!is) {
		serve = secure_getenv("KEDGE_SERVE");
		is = serve && !strcmp(serve, "0") ? 2 : 1;
		atomic_store_explicit(&known, is, memory_order_relaxed);
	}
	return is == 1;
}

/* A library registers from few places. */
static bool serves(const void *caller)
{
	static __thread const void *last;
	static __thread bool served;

	if (caller != last) {
		served = held_is_served(caller);
		last = caller;
	}
	return served;
}

static bool can_cache(const void *addr, size_t len, uint64_t iova,
		      unsigned int access)
{
	return is_served() && !inside && len && iova == (uintptr_t)addr &&
	       !(access & ~CACHED) &&
	       (access & IBV_ACCESS_LOCAL_WRITE ||
		!(access & NEEDS_LOCAL_WRITE));
}

static struct ibv_mr *reg_shadow(struct ibv_pd *pd, void *addr, size_t len,
				 uint64_t iova, unsigned int access, const void *caller)
{
	struct shadow *s;
	int err = errno;

	if (!can_cache(addr, len, iova, access) || !serves(caller))
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	if (shadow_register(s, pd, addr, len, access)) {
		if (shadow_add(s)) {
			errno = err;
			return &s->mr;
		}
		shadow_release(s);
	}
	free(s);
	errno = err;
	return NULL;
}

/* Regions that the cache keeps may stand in the way. */
static bool worth_a_flush(const struct ibv_mr *mr)
{
	if (mr || inside || (errno != ENOMEM && errno != ENOSPC))
		return false;
	domains_flush();
	return true;
}

/* The adapter follows the page table of on-demand regions: those do not go stale. */
static struct ibv_mr *follow(struct ibv_mr *mr, uint64_t iova, unsigned int access,
			     const void *caller)
{
	if (mr && !inside && !(access & IBV_ACCESS_ON_DEMAND) && held_begin(mr, iova, caller))
		report_began();
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
				 int access)
{
	const void *caller = __builtin_return_address(0);
	NO_CANCEL();
	struct ibv_mr *mr = reg_shadow(pd, addr, len, (uintptr_t)addr,
				       (unsigned int)access, caller);

	if (!mr)
		mr = real()->reg_mr(pd, addr, len, access);
	if (worth_a_flush(mr))
		mr = real()->reg_mr(pd, addr, len, access);
	return follow(mr, (uintptr_t)addr, (unsigned int)access, caller);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len,
				      uint64_t iova, int access)
{
	const void *caller = __builtin_return_address(0);
	NO_CANCEL();
	struct ibv_mr *mr = reg_shadow(pd, addr, len, iova,
				       (unsigned int)access, caller);

	if (!mr)
		mr = real()->reg_mr_iova(pd, addr, len, iova, access);
	if (worth_a_flush(mr))
		mr = real()->reg_mr_iova(pd, addr, len, iova, access);
	return follow(mr, iova, (unsigned int)access, caller);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
				       size_t len, uint64_t iova,
				       unsigned int access)
{
	const void *caller = __builtin_return_address(0);
	NO_CANCEL();
	struct ibv_mr *mr = reg_shadow(pd, addr, len, iova, access, caller);

	if (!mr)
		mr = real()->reg_mr_iova2(pd, addr, len, iova, access);
	if (worth_a_flush(mr))
		mr = real()->reg_mr_iova2(pd, addr, len, iova, access);
	return follow(mr, iova, access, caller);
}

static int dereg(struct ibv_mr *mr)
{
	struct shadow *s = shadow_find(mr);
	int rc = 0;

	if (!s)
		return real()->dereg_mr(mr);
	if (s->own)
		rc = real()->dereg_mr(s->own);
	else
		shadow_release(s);
	if (!rc)
		free(shadow_take(mr));
	return rc;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	const void *caller = __builtin_return_address(0);
	NO_CANCEL();
	int rc;

	if (inside)
		return dereg(mr);
	/* Before: another thread may be given a region at the same address after it. */
	held_end(mr);
	rc = dereg(mr);
	/* As with libibverbs, a region that it refuses to end stays. */
	if (rc)
		held_begin(mr, (uintptr_t)mr->addr, caller);
	return rc;
}

/*
 * A shadow becomes a region of libibverbs' own that the program sees through
 * it, with the same pages and access; then that one is changed.
 */
static int make_own(struct shadow *s)
{
	s->own = real()->reg_mr_iova2(s->mr.pd, s->mr.addr, s->mr.length,
				      (uintptr_t)s->mr.addr, s->access);
	if (!s->own)
		return -1;
	shadow_release(s);
	s->held = NULL;
	return 0;
}

static int rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len,
		 int access)
{
	struct shadow *s = shadow_find(mr);
	int rc;

	if (!s)
		return real()->rereg_mr(mr, flags, pd, addr, len, access);
	if (!s->own && make_own(s))
		return IBV_REREG_MR_ERR_INPUT;
	rc = real()->rereg_mr(s->own, flags, pd, addr, len, access);
	s->mr = *s->own;
	return rc;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t len, int access)
{
	const void *caller = __builtin_return_address(0);
	NO_CANCEL();
	int rc = rereg(mr, flags, pd, addr, len, access);

	/* Of other pages, or of the same once more. */
	if (!rc) {
		held_end(mr);
		follow(mr, (uintptr_t)mr->addr,
		       flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : 0, caller);
	}
	return rc;
}

/* ---- what must find no region of ours left ---- */

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	NO_CANCEL();

	pd_end(pd, false);
	return real()->dealloc_pd(pd);
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	NO_CANCEL();

	pd_end(pd, true);
	real()->unimport_pd(pd);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = real()->open_device(device);

	if (context && table_asked())
		posts_follow(context);
	return context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	NO_CANCEL();

	device_end(context);
	return real()->close_device(context);
}
