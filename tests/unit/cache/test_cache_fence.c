// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lookups, and threads that free the looked-up entries. The hit is compiled for this
 * test with a fence that can be counted, and at which a thread can be stopped;
 * membarrier() can be refused, by a replacement and by a seccomp filter.
 */
#include "cache/internal.h" /* before the fixture's names */
#include "cache_pages.h"
#include "counted_fence.h"
#include "wrap.h"

/* ---- what is replaced ---- */

static _Atomic bool refuse; /* membarrier() */
static _Atomic uint64_t yields;
static __thread uint64_t fences;
static __thread bool stop_inside;
static pthread_barrier_t inside; /* twice: there, and go on */

void counted_fence(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	fences++;
	if (!stop_inside)
		return;
	stop_inside = false;
	pthread_barrier_wait(&inside);
	pthread_barrier_wait(&inside);
}

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

/* It takes six, as syscall() does; the caller may have passed fewer. */
__attribute__((no_sanitize("address")))
long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_membarrier && refuse) {
		errno = EPERM;
		return -1;
	}
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Each wait for a lookup comes here. */
WRAP(int, sched_yield, void)
{
	yields++;
	return __real_sched_yield();
}

/* ---- */

static int begin_with(unsigned int what)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };

	refuse = false;
	assert_int_equal(pthread_barrier_init(&inside, NULL, 2), 0);
	pages_setup(what, PAGES);
	o.chunk_bytes = CHUNK * page;
	open_cache(&o);
	return 0;
}

static int begin(void **state)
{
	return begin_with(0);
}

static int begin_replace(void **state)
{
	return begin_with(NODEV_REPLACE);
}

static int end(void **state)
{
	refuse = false;
	pthread_barrier_destroy(&inside);
	return teardown(state);
}

static const struct kedge_mr *get_first(void)
{
	return get_at(mem, 1, 0);
}

static void get_and_put(void)
{
	put(get_first());
}

/* ---- another thread, told what to do ---- */

static pthread_t other;
static pthread_barrier_t turn; /* twice for each: begin, and done */
static void (*task)(void);

static void *obey(void *arg)
{
	for (;;) {
		pthread_barrier_wait(&turn);
		if (!task)
			return NULL;
		task();
		pthread_barrier_wait(&turn);
	}
}

static void other_starts(void)
{
	assert_int_equal(pthread_barrier_init(&turn, NULL, 2), 0);
	assert_int_equal(pthread_create(&other, NULL, obey, NULL), 0);
}

static void other_begins(void (*fn)(void))
{
	task = fn;
	pthread_barrier_wait(&turn);
}

static void other_does(void (*fn)(void))
{
	other_begins(fn);
	pthread_barrier_wait(&turn);
}

static void other_ends(void)
{
	task = NULL;
	pthread_barrier_wait(&turn);
	assert_int_equal(pthread_join(other, NULL), 0);
	pthread_barrier_destroy(&turn);
}

/* Both threads have a record, and membarrier() was there. */
static void begin_and_refuse(void)
{
	other_starts();
	get_and_put();
	other_does(get_and_put);
	refuse = true;
}

/* A second thread's lookup cannot be told: nothing is freed under it. */
static void nothing_ends_while_a_lookup_may_be_under_way(void **state)
{
	const struct kedge_mr *mr;

	begin_and_refuse();
	mr = get_first();
	assert_int_equal(kedge_cache_flush(cache), 0);
	put(mr);
	assert_int_equal(dev->live, 1);
	/* Nor when membarrier() works again. */
	refuse = false;
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	/* It looks something up, with a fence: so the old one goes. */
	other_does(get_and_put);
	assert_int_equal(dev->live, 1);
	assert_int_equal(dev->regs, 2);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_int_equal(dev->live, 0);
	other_ends();
}

static const struct kedge_mr *others;

static void others_get(void)
{
	others = get_first();
}

static void others_put(void)
{
	put(others);
}

/* Its put, too, tells that it has come over. */
static void a_put_is_enough(void **state)
{
	begin_and_refuse();
	refuse = false;
	other_does(others_get);
	refuse = true;
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	other_does(others_put);
	assert_int_equal(dev->live, 0);
	other_ends();
}

/* A registration that left limbo while held goes by its put, as all that are dying. */
static void what_was_held_in_limbo_ends_with_its_put(void **state)
{
	const struct kedge_mr *mr;

	begin_and_refuse();
	mr = get_first();
	assert_int_equal(kedge_cache_flush(cache), 0);
	other_does(get_and_put);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_true(dev->alive[mr->device_handle]);
	put(mr);
	assert_int_equal(dev->live, 0);
	other_ends();
}

static void a_thread_that_ends_holds_nothing_up(void **state)
{
	begin_and_refuse();
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	other_ends();
	get_and_put();
	assert_int_equal(dev->live, 1);
	assert_int_equal(dev->deregs, 1);
}

/* A thread that takes a record over has not come over by its former thread's lookups. */
static void a_new_thread_fences_from_its_first_lookup(void **state)
{
	begin_and_refuse();
	assert_int_equal(kedge_cache_flush(cache), 0);
	other_ends();
	other_starts();
	other_does(get_and_put);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_int_equal(dev->live, 0);
	other_ends();
}

static void closing_ends_all(void **state)
{
	begin_and_refuse();
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	close_cache();
	assert_int_equal(dev->live, 0);
	other_ends();
}

/* Pages are not exchanged under a handle that a lookup may be about to give. */
static void nothing_is_replaced_either(void **state)
{
	uint64_t len = CHUNK * page;
	char *chunk = (char *)(uintptr_t)round_up(addr_of(mem), len);

	begin_and_refuse();
	assert_int_equal(kedge_cache_hint(cache, chunk, len, 0), len);
	pages_at(chunk, 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), len);
	assert_int_equal(dev->replaces, 0);
	other_does(get_and_put);
	pages_at(chunk, 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), len);
	assert_int_equal(dev->replaces, 1);
	other_ends();
}

/* A filter as a sandbox has it, which came after the cache. */
static int filtered(void *arg)
{
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	other_starts();
	get_and_put();
	other_does(get_and_put);
	CHILD_CHECK(refuse_call(SYS_membarrier));
	CHILD_CHECK(kedge_cache_flush(cache) == 0 && dev->live == 1);
	other_does(get_and_put);
	CHILD_CHECK(kedge_cache_flush(cache) == 1 && dev->live == 0);
	other_ends();
	kedge_cache_close(cache);
	return 0;
}

static void a_filter_may_come_later(void **state)
{
	assert_int_equal(in_child(filtered, NULL), 0);
}

/* ---- fences, and a reader that is stopped between two loads ---- */

static void come_over(void)
{
	begin_and_refuse();
	assert_int_equal(kedge_cache_flush(cache), 0);
	other_does(get_and_put);
	get_and_put();
}

static void each_lookup_and_put_has_a_fence(void **state)
{
	struct kedge_piece p;
	const struct kedge_mr *mr;
	uint64_t before = fences;

	get_and_put();
	get_and_put();
	assert_int_equal(fences, before);
	come_over();
	before = fences;
	mr = get_first();
	assert_int_equal(fences, before + 1);
	put(mr);
	assert_int_equal(fences, before + 2);
	assert_int_equal(kedge_cache_getv(cache, mem, 1, 0, &p, 1), 1);
	kedge_cache_putv(cache, &p, 1);
	assert_int_equal(fences, before + 3); /* vec.c has the library's own */
	other_ends();
}

static void get_and_stop(void)
{
	stop_inside = true;
	others_get();
}

static _Atomic bool flushed;

static void *flush(void *arg)
{
	kedge_cache_flush(cache);
	flushed = true;
	return NULL;
}

static void lookups_under_way_are_waited_for(void **state)
{
	uint64_t before;
	pthread_t t;

	come_over();
	other_begins(get_and_stop);
	pthread_barrier_wait(&inside);
	before = yields;
	flushed = false;
	assert_int_equal(pthread_create(&t, NULL, flush, NULL), 0);
	while (yields < before + 10 && !flushed)
		__real_sched_yield();
	assert_false(flushed);
	assert_int_equal(dev->live, 1);
	pthread_barrier_wait(&inside);
	pthread_barrier_wait(&turn);
	pthread_join(t, NULL);
	assert_int_equal(dev->live, 1);
	assert_true(dev->alive[others->device_handle]);
	other_does(others_put);
	other_ends();
}

/* ---- the same by chance ---- */

#define FLUSHES 20000

static _Atomic bool stop;
static _Atomic uint64_t freed;

static void get_until_stopped(void)
{
	const struct kedge_mr *mr;

	while (!stop) {
		mr = get_first();
		freed += !dev->alive[mr->device_handle];
		put(mr);
	}
}

static void fences_are_enough(void **state)
{
	int i;

	come_over();
	stop = false;
	other_begins(get_until_stopped);
	for (i = 0; i < FLUSHES; i++) {
		get_and_put();
		kedge_cache_flush(cache);
	}
	stop = true;
	pthread_barrier_wait(&turn);
	assert_int_equal(freed, 0);
	other_ends();
}

static int without(void *arg)
{
	uint64_t before;

	refuse = true;
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	before = fences;
	get_and_put();
	get_and_put();
	CHILD_CHECK(fences >= before + 3);
	other_starts();
	other_does(get_and_put);
	/* Each has fenced all along: nothing waits. */
	CHILD_CHECK(kedge_cache_flush(cache) == 1);
	other_ends();
	kedge_cache_close(cache);
	return 0;
}

/* First: the library asks once for a process. */
static void there_may_never_have_been_membarrier(void **state)
{
	assert_int_equal(in_child(without, NULL), 0);
}

#define FENCED(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(there_may_never_have_been_membarrier),
		FENCED(nothing_ends_while_a_lookup_may_be_under_way),
		FENCED(a_put_is_enough),
		FENCED(what_was_held_in_limbo_ends_with_its_put),
		FENCED(a_thread_that_ends_holds_nothing_up),
		FENCED(a_new_thread_fences_from_its_first_lookup),
		FENCED(closing_ends_all),
		cmocka_unit_test_setup_teardown(nothing_is_replaced_either,
						begin_replace, end),
		FENCED(a_filter_may_come_later),
		FENCED(each_lookup_and_put_has_a_fence),
		FENCED(lookups_under_way_are_waited_for),
		FENCED(fences_are_enough),
	};

	return RUN_WITH_UFFD(tests);
}
