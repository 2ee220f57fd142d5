// SPDX-License-Identifier: BSD-2-Clause
/* Advice that drops pages, and advice that must not matter. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tools/torture/case.h"

/* What Debian 12's headers don't have yet. */
#define ADVICE_COLLAPSE	     25
#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE  103

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

static long advise(struct run *x, int advice)
{
	return CALL(x, SYS_madvise, x->addr + x->hot.off, x->hot.len, advice, 0,
		    0, 0);
}

/* A kernel without the advice is no error of ours. */
static int advised(struct run *x, long rc)
{
	if (!rc)
		return 0;
	if (rc == -EINVAL)
		return why(x, -EOPNOTSUPP, "this kernel refuses the advice");
	return why(x, (int)rc, "madvise: %s", strerror((int)-rc));
}

static int fire_advice(struct run *x)
{
	return advised(x, advise(x, (int)x->ev->arg));
}

static int setup_locked(struct run *x)
{
	int rc = anon_setup(x);

	if (rc)
		return rc;
	if (syscall(SYS_mlock2, (uint8_t *)x->addr, (size_t)x->len,
		    MLOCK_ONFAULT))
		return why(x, -EOPNOTSUPP, "mlock2: %s", strerror(errno));
	return 0;
}

static int fire_free_pageout(struct run *x)
{
	long rc = advise(x, MADV_FREE);

	return advised(x, rc ? rc : advise(x, MADV_PAGEOUT));
}

static int fire_guard(struct run *x)
{
	long rc = advise(x, ADVICE_GUARD_INSTALL);

	return advised(x, rc ? rc : advise(x, ADVICE_GUARD_REMOVE));
}

static int setup_pidfd(struct run *x)
{
	int rc = anon_setup(x);

	if (rc)
		return rc;
	x->fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (x->fd < 0)
		return why(x, -EOPNOTSUPP, "pidfd_open: %s", strerror(errno));
	return 0;
}

static int fire_process(struct run *x)
{
	struct iovec iov = { x->addr + x->hot.off, x->hot.len };
	bool other = x->row->route == ROUTE_PROCESS;
	long rc;

	rc = CALL(x, SYS_process_madvise, x->fd,
		  other ? iov.iov_base : (void *)&iov, other ? iov.iov_len : 1,
		  x->ev->arg, 0, 0);
	if (rc == (long)x->hot.len)
		return 0;
	/* DONTNEED of one's own is of Linux 6.13; others need CAP_SYS_NICE. */
	if (rc == -EINVAL || rc == -EPERM || rc == -ENOSYS)
		return why(x, -EOPNOTSUPP, "process_madvise: %s",
			   strerror((int)-rc));
	return why(x, rc < 0 ? (int)rc : -EIO, "process_madvise: %ld", rc);
}

/* Small pages where a huge one could be. */
static int prep_small(struct run *x)
{
	size_t off;

	if (madvise(x->addr, x->len, MADV_DONTNEED) ||
	    madvise(x->addr, x->len, MADV_NOHUGEPAGE))
		return why(x, -errno, "madvise: %s", strerror(errno));
	for (off = 0; off < x->len; off += x->unit)
		poke64(x->addr + off, off);
	return 0;
}

static int fire_collapse(struct run *x)
{
	long rc;

	madvise(x->addr, x->len, MADV_HUGEPAGE);
	rc = CALL(x, SYS_madvise, x->addr, x->len, ADVICE_COLLAPSE, 0, 0, 0);
	/* Pages that are pinned, or no huge page free: nothing happened. */
	if (rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM)
		rc = 0;
	return advised(x, rc);
}

static int fire_merge(struct run *x)
{
	long rc = advise(x, MADV_MERGEABLE);

	x->state = !x->state;
	if (!rc && x->state)
		rc = advise(x, MADV_UNMERGEABLE);
	return advised(x, rc);
}

static int fire_huge_toggle(struct run *x)
{
	long rc = advise(x, x->state ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

	x->state = !x->state;
	return advised(x, rc);
}

#define ADVICE(ev_name, ev_pages, ev_flags, ev_arg, ev_setup, ev_prep,       \
	       ev_fire)                                                      \
	{                                                                    \
		.name = ev_name, .routes = ROUTES_ADVICE, .pages = ev_pages, \
		.flags = ev_flags, .arg = ev_arg, .setup = ev_setup,         \
		.prep = ev_prep, .fire = ev_fire, .fini = anon_fini          \
	}

const struct event ev_advice[] = {
	ADVICE("madvise-dontneed", PAGES_ANON, EV_STALE | EV_PART,
	       MADV_DONTNEED, anon_setup, NULL, fire_advice),
	ADVICE("madvise-dontneed-locked", P(4K) | P(THP), EV_STALE | EV_PART,
	       MADV_DONTNEED_LOCKED, setup_locked, NULL, fire_advice),
	ADVICE("madvise-free", P(4K) | P(THP), EV_PART, MADV_FREE, anon_setup,
	       NULL, fire_advice),
	ADVICE("madvise-free-pageout", P(4K) | P(THP), EV_PART, 0, anon_setup,
	       NULL, fire_free_pageout),
	ADVICE("madvise-remove-memfd", P(4K), EV_STALE | EV_PART, MADV_REMOVE,
	       memfd_over_setup, NULL, fire_advice),
	ADVICE("madvise-guard", P(4K) | P(THP), EV_STALE | EV_PART | EV_GUARD,
	       0, anon_setup, NULL, fire_guard),
	{ .name = "process-madvise-dontneed",
	  .routes = ROUTES_CALL,
	  .pages = P(4K) | P(THP),
	  .flags = EV_STALE | EV_PART,
	  .arg = MADV_DONTNEED,
	  .setup = setup_pidfd,
	  .fire = fire_process,
	  .fini = anon_fini },
	{ .name = "process-madvise-pageout",
	  .routes = ROUTES_CALL | R(PROCESS),
	  .pages = P(4K) | P(THP),
	  .flags = EV_PART,
	  .arg = MADV_PAGEOUT,
	  .setup = setup_pidfd,
	  .fire = fire_process,
	  .fini = anon_fini },
	ADVICE("madvise-pageout", P(4K) | P(THP), EV_PART, MADV_PAGEOUT,
	       anon_setup, NULL, fire_advice),
	ADVICE("madvise-collapse", P(THP), 0, 0, anon_setup, prep_small,
	       fire_collapse),
	ADVICE("madvise-mergeable", P(4K), EV_PART, 0, anon_setup, NULL,
	       fire_merge),
	ADVICE("madvise-hugepage", P(THP), EV_PART, 0, anon_setup, NULL,
	       fire_huge_toggle),
	{ .name = NULL },
};
