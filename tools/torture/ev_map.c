// SPDX-License-Identifier: BSD-2-Clause
/* munmap, mmap over, mprotect. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tools/torture/case.h"

static int fire_munmap(struct run *x)
{
	uint8_t *at = x->addr + x->hot.off;
	long rc = CALL(x, SYS_munmap, at, x->hot.len, 0, 0, 0, 0);

	if (rc)
		return why(x, (int)rc, "munmap: %s", strerror((int)-rc));
	return hole_fill(x, x->hot.off, x->hot.len);
}

static int map_over(struct run *x, struct span s, int flags, int fd)
{
	uint8_t *at = x->addr + s.off;
	long got = CALL(x, SYS_mmap, at, s.len, PROT_READ | PROT_WRITE,
			flags | MAP_FIXED, fd, 0);

	if (got == (long)(uintptr_t)at)
		return 0;
	if (got == -ENOMEM)
		return EV_AGAIN;
	return why(x, (int)got, "mmap over: %s", strerror((int)-got));
}

static int fire_over(struct run *x)
{
	int rc = map_over(x, x->hot, anon_flags(x), -1);

	if (!rc)
		anon_advise(x, x->addr + x->hot.off, x->hot.len);
	return rc;
}

static int setup_shared(struct run *x)
{
	int rc = anon_setup(x);

	return rc ? rc : memfd_setup(x);
}

/* A part becomes a memfd's; the next event makes it all anonymous again. */
static int fire_over_shared(struct run *x)
{
	struct span all = { 0, x->len };

	x->state = !x->state;
	if (x->state)
		return map_over(x, x->hot, MAP_SHARED, x->fd);
	return map_over(x, all, anon_flags(x), -1);
}

static int fire_protect(struct run *x)
{
	uint8_t *at = x->addr + x->hot.off;
	long rc;

	x->state = !x->state;
	rc = CALL(x, SYS_mprotect, at, x->hot.len,
		  x->state ? PROT_NONE : PROT_READ, 0, 0, 0);
	if (!rc)
		rc = CALL(x, SYS_mprotect, at, x->hot.len,
			  PROT_READ | PROT_WRITE, 0, 0, 0);
	return rc ? why(x, (int)rc, "mprotect: %s", strerror((int)-rc)) : 0;
}

const struct event ev_map[] = {
	{ .name = "munmap",
	  .routes = ROUTES_CALL,
	  .pages = PAGES_ANON,
	  .flags = EV_STALE,
	  .setup = anon_setup,
	  .fire = fire_munmap,
	  .fini = anon_fini },
	{ .name = "munmap-part",
	  .routes = ROUTES_CALL,
	  .pages = P(4K) | P(THP),
	  .flags = EV_STALE | EV_PART,
	  .setup = anon_setup,
	  .fire = fire_munmap,
	  .fini = anon_fini },
	{ .name = "mmap-over",
	  .routes = ROUTES_CALL,
	  .pages = PAGES_ANON,
	  .flags = EV_STALE | EV_PART,
	  .setup = anon_setup,
	  .fire = fire_over,
	  .fini = anon_fini },
	{ .name = "mmap-over-shared",
	  .routes = ROUTES_CALL,
	  .pages = P(4K),
	  .flags = EV_STALE | EV_PART,
	  .setup = setup_shared,
	  .fire = fire_over_shared,
	  .fini = anon_fini },
	{ .name = "mprotect",
	  .routes = ROUTES_CALL,
	  .pages = PAGES_ANON,
	  .flags = EV_PART,
	  .setup = anon_setup,
	  .fire = fire_protect,
	  .fini = anon_fini },
	{ .name = NULL },
};
