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

	if (rig->cache && !util_rng_below(&l->rng, 64))
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
		/* An error on the way is of no row any more. */
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

/*
 * A drop that another mapping overtakes. userfaultfd tells of it before the
 * pages go; if another mapping is put there in between, they are that one's.
 * Even lanes drop, with the least claim to a processor, so that they stay in
 * between; odd lanes map over, have the range registered, wait for the drop to
 * be over and look then.
 */
struct overtaken {
	atomic_uint go, done; /* rounds begun, and drops that are over */
	atomic_bool quit;     /* the odd lane is through */
};

static int setup_overtaken(struct run *x)
{
	int rc;

	x->ptr = calloc(MAX_LANES / 2, sizeof(struct overtaken));
	if (!x->ptr)
		return why(x, -ENOMEM, "no memory");
	rc = anon_setup(x);
	if (rc)
		return rc;
	/* Of each pair a range, and one beside it to be moved over it. */
	x->len = MAX_LANES * RANGE_UNITS * x->unit;
	return anon_over(x, x->addr, x->len);
}

static void fini_overtaken(struct run *x)
{
	free(x->ptr);
	anon_fini(x);
}

static void drop_late(struct run *y, struct overtaken *o, uint8_t *at,
		      size_t len)
{
	struct sched_param none = { 0 };
	unsigned int round = 0;

	sched_setscheduler(0, SCHED_IDLE, &none);
	while (!atomic_load(&o->quit)) {
		if (atomic_load(&o->go) == round) {
			sched_yield();
			continue;
		}
		/* It may find a hole: then there is nothing to drop. */
		CALL(y, SYS_madvise, at, len, MADV_DONTNEED, 0, 0, 0);
		atomic_store(&o->done, ++round);
	}
	sched_setscheduler(0, SCHED_OTHER, &none);
}

/* Put another mapping at @at; the pages of @from, if it is moved there. */
static int overtake(struct run *y, uint8_t *at, uint8_t *from, size_t len)
{
	long rc;

	switch (util_rng_below(&y->lane->rng, 3)) {
	case 0:
		return anon_over(y, at, len);
	case 1:
		rc = CALL(y, SYS_munmap, at, len, 0, 0, 0, 0);
		return rc ? (int)rc : hole_fill(y, (size_t)(at - y->addr), len);
	}
	poke64(from, 1);
	rc = CALL(y, SYS_mremap, from, len, len,
		  MREMAP_MAYMOVE | MREMAP_FIXED, at, 0);
	if (rc != (long)(uintptr_t)at)
		return (int)rc;
	return hole_fill(y, (size_t)(from - y->addr), len);
}

/* Until the drop has been told of, or is over; the naive cache hears nothing. */
static void wait_told(struct run *y, const struct overtaken *o,
		      unsigned int round, uint64_t before)
{
	const struct kedge_notifier *nf = y->lane->t->rig.nf;
	unsigned int spins = 1000;

	while (atomic_load(&o->done) == round && spins--)
		if (nf && kedge_notifier_generation(nf) != before)
			break;
}

static int map_over(struct run *y, struct overtaken *o, uint8_t *at, size_t len)
{
	const struct kedge_notifier *nf = y->lane->t->rig.nf;
	unsigned int round = atomic_load(&o->go);
	char text[WHY_MAX];
	uint64_t before;
	int rc;

	check_touch(y->lane, at, len);
	before = nf ? kedge_notifier_generation(nf) : 0;
	atomic_store(&o->go, round + 1);
	wait_told(y, o, round, before);
	rc = overtake(y, at, at + MAX_LANES / 2 * len, len);
	if (!rc)
		check_touch(y->lane, at, len);
	while (atomic_load(&o->done) == round)
		sched_yield();
	if (rc)
		return rc;
	check_count(y->row, check_data(y->lane, at, len, NULL, text), text);
	return 0;
}

static void race_overtaken(struct race *r, struct lane *l)
{
	struct overtaken *o = (struct overtaken *)r->x.ptr + l->id / 2;
	size_t len = RANGE_UNITS * r->x.unit;
	uint8_t *at = (uint8_t *)r->x.addr + l->id / 2 * len;
	struct run y;
	int rc = 0;

	own_run(&y, r, l);
	if (!(l->id & 1)) {
		if (l->id + 1 < r->lanes)
			drop_late(&y, o, at, len);
		return;
	}
	while (!rc && going(r))
		rc = map_over(&y, o, at, len);
	if (rc < 0)
		row_fail(y.row, rc, y.why);
	atomic_store(&o->quit, true);
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
	RACE("race-overtaken-drop", R(LIBC) | R(SYSCALL) | R(RAW), P(4K), 0, 0,
	     setup_overtaken, fini_overtaken, race_overtaken),
	RACE("race-malloc-small", R(LIBC), P(4K), 0, (long)96 << 10, setup_none,
	     anon_fini, race_malloc),
	RACE("race-malloc-large", R(LIBC), P(4K), EV_RECYCLE, (long)1 << 20,
	     setup_none, anon_fini, race_malloc),
	RACE("race-recycle", R(LIBC) | R(SYSCALL) | R(RAW), P(4K), EV_RECYCLE,
	     0, setup_none, anon_fini, race_recycle),
	{ .name = NULL },
};
