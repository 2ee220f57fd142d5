// SPDX-License-Identifier: BSD-2-Clause
/* The heap: brk, sbrk, malloc_trim, free and realloc. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/torture/case.h"

/* Sizes either side of where malloc turns to mmap (128 KiB, torture.c). */
#define SMALL_LEN ((size_t)96 << 10)
#define LARGE_LEN ((size_t)256 << 10)

/*
 * The break is malloc's as well. Lane 0 alone moves it, with nothing in
 * between that allocates; where malloc took more meanwhile, the place is lost.
 */
static bool break_is_ours(struct run *x)
{
	return sbrk(0) == (void *)(x->addr + x->len);
}

static int setup_break(struct run *x)
{
	uintptr_t cur = (uintptr_t)sbrk(0);
	uintptr_t start = round_up(cur, x->unit);

	x->len = x->unit * (2 + util_rng_below(&x->lane->rng, 16));
	x->addr = (uint8_t *)start;
	if (brk((void *)(start + x->len))) {
		x->addr = NULL;
		return why(x, -EOPNOTSUPP, "brk: %s", strerror(errno));
	}
	return 0;
}

static void fini_break(struct run *x)
{
	if (x->addr && break_is_ours(x) && brk(x->addr))
		why(x, -errno, "brk: %s", strerror(errno));
	x->addr = NULL;
}

static int fire_break(struct run *x)
{
	uint8_t *end = x->addr + x->len, *low = x->addr + x->hot.off;
	long got;

	if (!break_is_ours(x)) {
		x->addr = NULL;
		return EV_AGAIN;
	}
	got = CALL(x, SYS_brk, low, 0, 0, 0, 0, 0);
	if (got == (long)(uintptr_t)low)
		got = CALL(x, SYS_brk, end, 0, 0, 0, 0, 0);
	if (got != (long)(uintptr_t)end)
		return why(x, -EIO, "brk: %#lx", got);
	return 0;
}

static int fire_sbrk(struct run *x)
{
	intptr_t by = (intptr_t)x->hot.len;

	if (!break_is_ours(x)) {
		x->addr = NULL;
		return EV_AGAIN;
	}
	if (sbrk(-by) == (void *)-1 || sbrk(by) == (void *)-1)
		return why(x, -errno, "sbrk: %s", strerror(errno));
	return 0;
}

/* The range that a round looks up starts in the block's first whole page. */
static int place(struct run *x)
{
	uintptr_t start = round_up((uintptr_t)x->ptr, x->unit);
	uintptr_t end = (uintptr_t)x->ptr + x->size;

	if (!x->ptr)
		return EV_AGAIN;
	x->addr = (uint8_t *)start;
	x->len = round_down(end - start, x->unit);
	return 0;
}

static int setup_block(struct run *x)
{
	x->size = (size_t)x->ev->arg;
	x->ptr = malloc(x->size);
	return place(x);
}

static void fini_block(struct run *x)
{
	free(x->ptr);
	x->ptr = NULL;
}

static void do_free(void *p)
{
	free(p);
}

static int fire_free(struct run *x)
{
	int rc = route_run(x, do_free, x->ptr);

	if (rc)
		return rc;
	x->ptr = malloc(x->size);
	return place(x);
}

static void do_trim(void *p)
{
	free(p);
	malloc_trim(0);
}

static int fire_trim(struct run *x)
{
	int rc = route_run(x, do_trim, x->ptr);

	if (rc)
		return rc;
	x->ptr = malloc(x->size);
	return place(x);
}

static void do_realloc(void *p)
{
	struct run *x = p;
	size_t to = x->state ? LARGE_LEN : 4 * LARGE_LEN;
	void *q = realloc(x->ptr, to);

	if (!q)
		return;
	x->ptr = q;
	x->size = to;
	x->state = !x->state;
}

/* Grown, it moves by an mremap that no symbol leads to; then it shrinks. */
static int fire_realloc(struct run *x)
{
	int rc = route_run(x, do_realloc, x);

	if (rc)
		return rc;
	rc = place(x);
	x->hot = (struct span){ 0, x->len };
	return rc;
}

/* A sanitizer's malloc keeps what is freed. */
#define EV_UNMAPS (HAVE_ASAN || HAVE_TSAN ? 0 : EV_STALE)

#define BLOCK(ev_name, ev_flags, ev_arg, ev_fire)                         \
	{                                                                 \
		.name = ev_name, .routes = R(LIBC) | R(THREAD),           \
		.pages = P(4K), .flags = ev_flags, .arg = ev_arg,         \
		.setup = setup_block, .fire = ev_fire, .fini = fini_block \
	}

const struct event ev_heap[] = {
	{ .name = "brk",
	  .routes = ROUTES_CALL,
	  .pages = P(4K),
	  .flags = EV_STALE | EV_TAIL | EV_SOLO | EV_NOSTORM,
	  .setup = setup_break,
	  .fire = fire_break,
	  .fini = fini_break },
	{ .name = "sbrk",
	  .routes = R(LIBC),
	  .pages = P(4K),
	  .flags = EV_STALE | EV_TAIL | EV_SOLO | EV_NOSTORM,
	  .setup = setup_break,
	  .fire = fire_sbrk,
	  .fini = fini_break },
	BLOCK("malloc-trim", EV_UNMAPS, SMALL_LEN, fire_trim),
	BLOCK("free-small", 0, SMALL_LEN, fire_free),
	BLOCK("free-large", EV_UNMAPS | EV_RECYCLE, LARGE_LEN, fire_free),
	BLOCK("realloc", EV_RECYCLE, LARGE_LEN, fire_realloc),
	{ .name = NULL },
};
