// SPDX-License-Identifier: BSD-2-Clause
/* mremap in all its directions, and remap_file_pages. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tools/torture/case.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* The part that changes, in zone @n. */
static uint8_t *hot_in(struct run *x, unsigned int n)
{
	return arena_zone(x, n) + x->hot.off;
}

/*
 * mremap() of [from, from + len), which fails with EFAULT where that is more
 * than one mapping. It often is: a mapping that fills a hole need not melt with
 * its neighbours, and where userfaultfd watches one of them it cannot. That
 * alone is EV_AGAIN. Linux 6.17 and later have then moved what is before the
 * seam, so the hole that this leaves has a border inside as well. kedge may
 * watch the other mapping, too, before the look at /proc, and then the two are
 * one: that is why the call is made again, and only an EFAULT that stays
 * without a seam is an error.
 */
#define SEAM_TRIES 100

static long remap(struct run *x, uint8_t *from, size_t len, size_t to_len,
		  int flags, uint8_t *to)
{
	int tries;
	long got;

	for (tries = 0; tries < SEAM_TRIES; tries++) {
		got = CALL(x, SYS_mremap, from, len, to_len, flags, to, 0);
		if (got != -EFAULT)
			return got;
		if (has_seam(from, len))
			return EV_AGAIN;
	}
	return got;
}

static int move(struct run *x, uint8_t *from, uint8_t *to, size_t len,
		int flags)
{
	long got = remap(x, from, len, len,
			 flags | MREMAP_MAYMOVE | MREMAP_FIXED, to);

	if (got == (long)(uintptr_t)to)
		return 0;
	if (got == EV_AGAIN)
		return EV_AGAIN;
	/* MREMAP_DONTUNMAP is of Linux 5.7, hugetlb's mremap of 5.16. */
	if (got == -EINVAL)
		got = -EOPNOTSUPP;
	return why(x, (int)got, "mremap: %s", strerror((int)-got));
}

/* Memory that moved away is looked up at its new place too. */
static void also_hot(struct run *x, unsigned int n)
{
	x->also = hot_in(x, n);
	x->also_len = x->hot.len;
}

static int fire_away(struct run *x)
{
	int rc = move(x, hot_in(x, 0), hot_in(x, 1), x->hot.len, 0);

	if (rc)
		return rc;
	also_hot(x, 1);
	return hole_fill(x, x->hot.off, x->hot.len);
}

static int fire_back(struct run *x)
{
	int rc = move(x, hot_in(x, 0), hot_in(x, 1), x->hot.len, 0);

	return rc ? rc : move(x, hot_in(x, 1), hot_in(x, 0), x->hot.len, 0);
}

static int fire_dontunmap(struct run *x)
{
	int rc = move(x, hot_in(x, 0), hot_in(x, 1), x->hot.len,
		      MREMAP_DONTUNMAP);

	if (!rc)
		also_hot(x, 1);
	return rc;
}

static int fire_onto(struct run *x)
{
	int rc = anon_over(x, hot_in(x, 2), x->hot.len);

	if (rc)
		return rc;
	poke64(hot_in(x, 2), util_rng_next(&x->lane->rng));
	return move(x, hot_in(x, 2), hot_in(x, 0), x->hot.len, 0);
}

static int setup_swap(struct run *x)
{
	int rc = anon_setup(x);

	if (rc)
		return rc;
	x->also = arena_zone(x, 1);
	x->also_len = x->len;
	return anon_over(x, x->also, x->len);
}

static int fire_swap(struct run *x)
{
	int rc = move(x, hot_in(x, 0), hot_in(x, 2), x->hot.len, 0);

	if (!rc)
		rc = move(x, hot_in(x, 1), hot_in(x, 0), x->hot.len, 0);
	if (!rc)
		rc = move(x, hot_in(x, 2), hot_in(x, 1), x->hot.len, 0);
	return rc;
}

static int fire_shrink(struct run *x)
{
	size_t less = x->hot.off;
	long got = remap(x, x->addr, x->len, less, 0, NULL);

	if (got == (long)(uintptr_t)x->addr)
		got = remap(x, x->addr, less, x->len, 0, NULL);
	if (got == (long)(uintptr_t)x->addr)
		return 0;
	if (got == EV_AGAIN)
		return EV_AGAIN;
	if (got == -ENOMEM) {
		x->hole = x->hot;
		return EV_AGAIN;
	}
	return why(x, (int)got, "mremap: %s", strerror((int)-got));
}

static int fire_file_pages(struct run *x)
{
	size_t room = (x->len - x->hot.len) / x->unit;
	size_t pgoff = util_rng_below(&x->lane->rng, room + 1);
	long rc = CALL(x, SYS_remap_file_pages, hot_in(x, 0), x->hot.len, 0,
		       pgoff, 0, 0);

	if (rc == -ENOSYS)
		rc = -EOPNOTSUPP;
	/* It takes one mapping at a time: what came before may have cut it. */
	if (rc == -EINVAL)
		return memfd_over(x);
	return rc ? why(x, (int)rc, "remap_file_pages: %s", strerror((int)-rc))
		  : 0;
}

#define REMAP(ev_name, ev_pages, ev_flags, ev_setup, ev_fire)              \
	{                                                                  \
		.name = ev_name, .routes = ROUTES_CALL, .pages = ev_pages, \
		.flags = ev_flags, .setup = ev_setup, .fire = ev_fire,     \
		.fini = anon_fini                                          \
	}

const struct event ev_remap[] = {
	REMAP("mremap-away", PAGES_ANON, EV_STALE | EV_PART, anon_setup,
	      fire_away),
	REMAP("mremap-shrink", P(4K) | P(THP), EV_STALE | EV_TAIL, anon_setup,
	      fire_shrink),
	REMAP("mremap-dontunmap", P(4K) | P(THP), EV_STALE | EV_PART,
	      anon_setup, fire_dontunmap),
	REMAP("mremap-onto", PAGES_ANON, EV_STALE | EV_PART, anon_setup,
	      fire_onto),
	REMAP("mremap-swap", P(4K) | P(THP), EV_STALE | EV_PART, setup_swap,
	      fire_swap),
	REMAP("mremap-back", PAGES_ANON, EV_PART, anon_setup, fire_back),
	REMAP("remap_file_pages", P(4K), EV_STALE | EV_PART, memfd_over_setup,
	      fire_file_pages),
	{ .name = NULL },
};
