// SPDX-License-Identifier: BSD-2-Clause
/*
 * No call of the cache's fast side is a cancellation point, nor is one of
 * libc's because libkedge-hooks stands before it. A thread with a cancellation
 * pending makes each call; if it is cancelled in there, it takes locks with it.
 */
#include "proc.h"

static struct rig rig;
static char *mem;		   /* in the cache */
static const struct kedge_mr *held; /* of the thread that is cancelled */

struct step {
	const char *name;
	void (*before)(void);
	void (*call)(void);
	void (*after)(void);
};

static void get_mem(void)
{
	if (kedge_cache_get(rig.cache, mem, RIG_LEN, KEDGE_ACCESS_LOCAL_WRITE,
			    &held))
		held = NULL;
}

static void put_mem(void)
{
	if (held)
		kedge_cache_put(rig.cache, held);
	held = NULL;
}

static void touch_mem(void)
{
	get_mem();
	put_mem();
}

static void new_mem(void)
{
	mem = map_anon(mem, RIG_LEN);
}

static void drop_mem(void)
{
	touch_mem();
	raw_madvise(mem, RIG_LEN, MADV_DONTNEED);
}

static void map_over(void)
{
	touch_mem();
	map_anon(mem, RIG_LEN);
}

static void hint(void)
{
	kedge_cache_hint(rig.cache, mem, RIG_LEN, KEDGE_ACCESS_LOCAL_WRITE);
}

static void resync(void)
{
	kedge_cache_resync(rig.cache, NULL, 0);
}

static void getv(void)
{
	struct kedge_piece piece[8];
	size_t cnt = 0;
	ssize_t n;

	n = kedge_cache_getv(rig.cache, mem, RIG_LEN, KEDGE_ACCESS_LOCAL_WRITE,
			     piece, 8);
	for (cnt = 0; n > 0 && cnt < (size_t)n; cnt++)
		kedge_cache_put(rig.cache, piece[cnt].mr);
}

static void stats(void)
{
	rig_uncached(&rig);
}

static void watch(void)
{
	kedge_watch_add(rig.nf, mem, RIG_LEN, 1);
	kedge_watch_remove(rig.nf, 1);
}

static void read_events(void)
{
	struct kedge_event ev[4];

	kedge_notifier_read(rig.nf, ev, 4);
}

/* ---- libc's, with libkedge-hooks ---- */

static void unmap_mem(void)
{
	munmap(mem, RIG_LEN);
}

static void advise_mem(void)
{
	madvise(mem, RIG_LEN, MADV_DONTNEED);
}

static void move_mem(void)
{
	char *to = map_anon(NULL, RIG_LEN);

	mem = mremap(mem, RIG_LEN, RIG_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

static char *volatile block;

#define BLOCK ((size_t)40000000)
#define SMALL ((size_t)70000)

static void get_block(void)
{
	const struct kedge_mr *mr;

	if (block && !kedge_cache_get(rig.cache, block, RIG_LEN,
				      KEDGE_ACCESS_LOCAL_WRITE, &mr))
		kedge_cache_put(rig.cache, mr);
}

static void alloc_block(void)
{
	block = malloc(BLOCK);
	get_block();
}

static void alloc_small(void)
{
	block = malloc(SMALL);
	get_block();
}

static void free_block(void)
{
	free(block);
	block = NULL;
}

static void grow_block(void)
{
	block = realloc(block, 2 * BLOCK);
}

/* A thread that is created or joined is none either. */
static void *nothing(void *arg)
{
	return arg;
}

static void create_thread(void)
{
	pthread_t t;

	if (!pthread_create(&t, NULL, nothing, NULL))
		pthread_detach(t);
}

/* ---- */

static const struct step steps[] = {
	{ "kedge_cache_get(), a miss", new_mem, get_mem, put_mem },
	{ "kedge_cache_get(), a hit", touch_mem, get_mem, put_mem },
	{ "kedge_cache_get() after an unmapping", map_over, get_mem, put_mem },
	{ "kedge_cache_get() after a drop", drop_mem, get_mem, put_mem },
	{ "kedge_cache_put(), the last", get_mem, put_mem, NULL },
	{ "kedge_cache_put(), of what was unmapped", get_mem, put_mem, NULL },
	{ "kedge_cache_getv()", new_mem, getv, NULL },
	{ "kedge_cache_hint()", new_mem, hint, NULL },
	{ "kedge_cache_resync()", map_over, resync, NULL },
	{ "kedge_cache_stats()", NULL, stats, NULL },
	{ "kedge_watch_add() and kedge_watch_remove()", new_mem, watch, NULL },
	{ "kedge_notifier_read()", map_over, read_events, NULL },
	{ "munmap()", touch_mem, unmap_mem, new_mem },
	{ "mmap() over it", touch_mem, new_mem, NULL },
	{ "madvise()", touch_mem, advise_mem, new_mem },
	{ "mremap()", touch_mem, move_mem, NULL },
	{ "malloc() and a get", NULL, alloc_block, free_block },
	{ "free() of a large block", alloc_block, free_block, NULL },
	{ "free() of a small block", alloc_small, free_block, NULL },
	{ "realloc()", alloc_block, grow_block, free_block },
	{ "pthread_create()", NULL, create_thread, NULL },
};

struct run {
	const struct step *step;
	atomic_bool ready, pending;
	bool survived;
};

static void *cancelled(void *arg)
{
	struct run *r = arg;
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	if (r->step->before)
		r->step->before();
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->pending))
		sched_yield();
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	r->step->call();
	r->survived = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	if (r->step->after)
		r->step->after();
	return NULL;
}

static int one_step(const struct step *step)
{
	struct run r = { .step = step };
	pthread_t t;

	if (pthread_create(&t, NULL, cancelled, &r))
		return proc_fail("pthread_create");
	while (!atomic_load(&r.ready))
		sched_yield();
	pthread_cancel(t);
	atomic_store(&r.pending, true);
	pthread_join(t, NULL);
	return r.survived ? 0 : 1;
}

static int no_cancellation_point(void)
{
	char names[200] = "";
	size_t i, len = 0;
	int rc = rig_open(&rig);

	if (rc)
		return rc;
	mem = map_anon(NULL, RIG_LEN);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		proc_fail("%s, with a cancellation pending, or after%s",
			  steps[i].name, names);
		if (one_step(&steps[i]) && len < sizeof(names))
			len += (size_t)snprintf(names + len,
						sizeof(names) - len, "%s %s",
						len ? "," : "", steps[i].name);
	}
	if (len)
		return proc_fail("cancelled inside:%s", names);
	proc_fail("the end");
	rig_close(&rig);
	return 0;
}

/* ---- at any moment ---- */

#define CANCELS 300

static atomic_uint at_work;

/* All it has got is put by a handler: an application's part of the contract. */
static void put_held(void *arg)
{
	const struct kedge_mr **mr = arg;

	if (*mr)
		kedge_cache_put(rig.cache, *mr);
}

static void touch_and_drop(char *at)
{
	const struct kedge_mr *mr;

	if (kedge_cache_get(rig.cache, at, RIG_LEN, KEDGE_ACCESS_LOCAL_WRITE,
			    &mr))
		return;
	kedge_cache_put(rig.cache, mr);
	raw_madvise((void *)(((uintptr_t)at + 4095) & ~4095ul), RIG_LEN - 4096,
		    MADV_DONTNEED);
}

static void *work(void *arg)
{
	static __thread const struct kedge_mr *mr;
	char *at;

	pthread_cleanup_push(put_held, &mr);
	for (;;) {
		/* mmap() and free() are no cancellation points. */
		at = malloc(BLOCK);
		if (at)
			touch_and_drop(at);
		if (at && kedge_cache_get(rig.cache, at, RIG_LEN,
					  KEDGE_ACCESS_LOCAL_WRITE, &mr))
			mr = NULL;
		if (mr)
			kedge_cache_put(rig.cache, mr);
		mr = NULL;
		free(at);
		atomic_fetch_add(&at_work, 1);
		pthread_testcancel();
	}
	pthread_cleanup_pop(1);
	return NULL;
}

/* Another moment for each; a cancelled thread leaves all as it is to be. */
static int at_any_moment(void)
{
	unsigned int i, from;
	pthread_t t;
	int rc = rig_open(&rig);

	if (rc)
		return rc;
	mem = map_anon(NULL, RIG_LEN);
	for (i = 0; i < CANCELS; i++) {
		proc_fail("get, malloc() and free() by threads of which %u were "
			  "cancelled", i);
		from = atomic_load(&at_work);
		if (pthread_create(&t, NULL, work, NULL))
			return proc_fail("pthread_create");
		while (atomic_load(&at_work) < from + 1 + i % 4)
			sched_yield();
		pthread_cancel(t);
		pthread_join(t, NULL);
		rc = rig_check(&rig, mem, RIG_LEN);
		map_anon(mem, RIG_LEN);
		rc = rc ? rc : rig_check(&rig, mem, RIG_LEN);
		if (rc)
			return proc_fail("after %u cancellations: %s", i,
					 rc > 0 ? "stale" : strerror(-rc));
	}
	rig_close(&rig);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "no call is a cancellation point", no_cancellation_point, 0 },
		{ "threads are cancelled at any moment", at_any_moment, 0 },
	};

	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
