// SPDX-License-Identifier: BSD-2-Clause
/*
 * Races with a choreography of their own. Whoever checks a range owns it; what
 * is changed all the while is around it, or was its address before.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "tools/torture/case.h"

static bool going(const struct race *r)
{
	return clock_ns() < r->end_ns && !atomic_load(&r->x.row->off);
}

/* The race's run as one lane's own. */
static void own_run(struct run *y, struct race *r, struct lane *l)
{
	memset(y, 0, sizeof(*y));
	y->lane = l;
	y->row = r->x.row;
	y->ev = r->x.ev;
	y->arena = r->x.arena;
	y->zone = r->x.zone;
	y->unit = r->x.unit;
	y->addr = (uint8_t *)r->x.addr;
	y->len = (size_t)r->x.len;
}

/* A registration is held while others merge, flush and hint around it. */
static void hold(struct lane *l)
{
	struct rig *rig = &l->t->rig;

	if (!rig->naive && !util_rng_below(&l->rng, 64))
		kedge_cache_flush(rig->cache);
	if (util_rng_below(&l->rng, 2))
		sched_yield();
}

static int change(struct run *y, uint8_t *at, size_t len)
{
	size_t off = (size_t)(at - y->addr);
	long rc = 0;

	switch (util_rng_below(&y->lane->rng, 5)) {
	case 0:
		rc = CALL(y, SYS_madvise, at, len, MADV_DONTNEED, 0, 0, 0);
		break;
	case 1:
		rc = CALL(y, SYS_mmap, at, len, PROT_READ | PROT_WRITE,
			  anon_flags(y) | MAP_FIXED, -1, 0);
		if (rc == (long)(uintptr_t)at)
			rc = 0;
		break;
	case 2:
		rc = CALL(y, SYS_munmap, at, len, 0, 0, 0, 0);
		if (!rc)
			rc = hole_fill(y, off, len);
		break;
	case 3:
		rc = CALL(y, SYS_mprotect, at, len, PROT_NONE, 0, 0, 0);
		if (!rc)
			rc = CALL(y, SYS_mprotect, at, len,
				  PROT_READ | PROT_WRITE, 0, 0, 0);
		break;
	}
	return (int)rc;
}

/* Ranges that begin and end in what others own: errors are expected. */
static void touch_around(struct run *y, struct lane *l)
{
	size_t units = y->len / y->unit;
	size_t first = util_rng_below(&l->rng, units);
	size_t cnt = 1 + util_rng_below(&l->rng, 8);

	if (cnt > units - first)
		cnt = units - first;
	check_touch(l, y->addr + first * y->unit, cnt * y->unit);
}

#define NEIGHBOURS 64

static int setup_neighbours(struct run *x)
{
	int rc = anon_setup(x);

	if (rc || x->row->pages != PAGES_4K)
		return rc;
	x->len = NEIGHBOURS * x->unit;
	return anon_over(x, x->addr, x->len);
}

/* One mapping; each lane owns every n-th page of it. */
static void race_neighbours(struct race *r, struct lane *l)
{
	char text[WHY_MAX];
	struct run y;
	size_t units;
	uint8_t *at;
	int rc;

	own_run(&y, r, l);
	units = y.len / y.unit / r->lanes;
	while (going(r)) {
		at = y.addr +
		     y.unit * (util_rng_below(&l->rng, units) * r->lanes +
			       l->id);
		touch_around(&y, l);
		rc = change(&y, at, y.unit);
		if (rc < 0)
			row_fail(y.row, rc, y.why);
		if (rc)
			break;
		rc = check_held(l, at, y.unit, NULL, hold, text);
		check_count(y.row, rc, text);
	}
}

#define RANGES	    48
#define RANGE_UNITS 4

/* Ranges on their way between those who change and those who look. */
struct queues {
	pthread_mutex_t lock; /* guards all below */
	uint8_t *stale[RANGES], *fresh[RANGES];
	size_t stale_cnt, fresh_cnt;
};

static int setup_queues(struct run *x)
{
	struct queues *q = calloc(1, sizeof(*q));
	size_t i;
	int rc;

	x->ptr = q;
	if (!q)
		return why(x, -ENOMEM, "no memory");
	pthread_mutex_init(&q->lock, NULL);
	rc = anon_setup(x);
	if (rc)
		return rc;
	x->len = RANGES * RANGE_UNITS * x->unit;
	for (i = 0; i < RANGES; i++)
		q->stale[i] = x->addr + i * RANGE_UNITS * x->unit;
	q->stale_cnt = RANGES;
	return anon_over(x, x->addr, x->len);
}

static void fini_queues(struct run *x)
{
	struct queues *q = x->ptr;

	if (q)
		pthread_mutex_destroy(&q->lock);
	free(q);
	anon_fini(x);
}

static uint8_t *take(struct queues *q, bool fresh, struct lane *l)
{
	uint8_t **list = fresh ? q->fresh : q->stale;
	size_t *cnt = fresh ? &q->fresh_cnt : &q->stale_cnt;
	uint8_t *at = NULL;
	size_t i;

	pthread_mutex_lock(&q->lock);
	if (*cnt) {
		i = util_rng_below(&l->rng, *cnt);
		at = list[i];
		list[i] = list[--*cnt];
	}
	pthread_mutex_unlock(&q->lock);
	return at;
}

static void give(struct queues *q, bool fresh, uint8_t *at)
{
	pthread_mutex_lock(&q->lock);
	if (fresh)
		q->fresh[q->fresh_cnt++] = at;
	else
		q->stale[q->stale_cnt++] = at;
	pthread_mutex_unlock(&q->lock);
}

/* Odd lanes look, even lanes change; both look at what isn't theirs. */
static void race_queues(struct race *r, struct lane *l)
{
	struct queues *q = r->x.ptr;
	bool looks = l->id & 1;
	char text[WHY_MAX];
	struct run y;
	uint8_t *at;
	size_t len;
	int rc = 0;

	own_run(&y, r, l);
	len = RANGE_UNITS * y.unit;
	while (!rc && going(r)) {
		at = take(q, looks, l);
		touch_around(&y, l);
		if (!at) {
			sched_yield();
			continue;
		}
		if (looks) {
			check_count(y.row,
				    check_held(l, at, len, NULL, hold, text),
				    text);
		} else {
			rc = change(&y, at, len);
			if (rc < 0)
				row_fail(y.row, rc, y.why);
		}
		/* What went wrong on the way is nobody's any more. */
		if (!rc)
			give(q, !looks, at);
	}
}

#define BLOCKS 8

/* Blocks that one thread frees and the next gets from malloc. */
static void race_malloc(struct race *r, struct lane *l)
{
	const size_t max = (size_t)r->x.ev->arg;
	uint8_t *block[BLOCKS] = { NULL };
	size_t len[BLOCKS] = { 0 };
	char text[WHY_MAX];
	size_t i;

	while (going(r)) {
		i = util_rng_below(&l->rng, BLOCKS);
		if (block[i] && util_rng_below(&l->rng, 2)) {
			free(block[i]);
			block[i] = NULL;
		}
		if (!block[i]) {
			len[i] = max / (1 + util_rng_below(&l->rng, 8));
			block[i] = malloc(len[i]);
		}
		if (!block[i])
			continue;
		check_count(r->x.row,
			    check_held(l, block[i], len[i], NULL, hold, text),
			    text);
	}
	for (i = 0; i < BLOCKS; i++)
		free(block[i]);
}

/* Map where the kernel likes, unmap; the next thread gets the same range. */
static void race_recycle(struct race *r, struct lane *l)
{
	char text[WHY_MAX];
	struct run y;
	size_t len;
	long at, rc;

	own_run(&y, r, l);
	len = RANGE_UNITS * y.unit;
	while (going(r)) {
		at = CALL(&y, SYS_mmap, 0, len, PROT_READ | PROT_WRITE,
			  anon_flags(&y), -1, 0);
		if (at < 0 && at > -4096) {
			row_fail(y.row, (int)at, "mmap");
			break;
		}
		rc = check_data(l, (uint8_t *)at, len, NULL, text);
		check_count(y.row, (int)rc, text);
		rc = CALL(&y, SYS_munmap, at, len, 0, 0, 0, 0);
		if (rc) {
			row_fail(y.row, (int)rc, "munmap");
			break;
		}
	}
}

static int setup_none(struct run *x)
{
	return 0;
}

#define RACE(ev_name, ev_routes, ev_pages, ev_flags, ev_arg, ev_setup,   \
	     ev_fini, ev_fn)                                             \
	{                                                                \
		.name = ev_name, .routes = ev_routes, .pages = ev_pages, \
		.flags = ev_flags, .arg = ev_arg, .setup = ev_setup,     \
		.fini = ev_fini, .race = ev_fn                           \
	}

const struct event ev_race[] = {
	RACE("race-neighbours", ROUTES_CALL, P(4K) | P(THP), 0, 0,
	     setup_neighbours, anon_fini, race_neighbours),
	RACE("race-queue", ROUTES_CALL, P(4K) | P(THP), 0, 0, setup_queues,
	     fini_queues, race_queues),
	RACE("race-malloc-small", R(LIBC), P(4K), 0, (long)96 << 10, setup_none,
	     anon_fini, race_malloc),
	RACE("race-malloc-large", R(LIBC), P(4K), EV_RECYCLE, (long)1 << 20,
	     setup_none, anon_fini, race_malloc),
	RACE("race-recycle", R(LIBC) | R(SYSCALL) | R(RAW), P(4K), EV_RECYCLE,
	     0, setup_none, anon_fini, race_recycle),
	{ .name = NULL },
};
