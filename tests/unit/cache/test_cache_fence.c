// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lookups, and threads that free the looked-up entries. The hit is compiled for this
 * test with a fence that can be counted, and at which a thread can be stopped;
 * membarrier() can be refused, by a replacement and by a seccomp filter.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "cases.h"

#include "cache/internal.h"

#include "counted_fence.h"

static struct nodev *dev;
static struct kedge_cache *cache;
static char *mem;

#define PAGES 64
#define CHUNK 32 /* pages; less than 16 never have holes */

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
int __real_sched_yield(void);
int __wrap_sched_yield(void);

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
int __wrap_sched_yield(void)
{
	yields++;
	return __real_sched_yield();
}

/* ---- */

static int setup_with(unsigned int what)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };

	refuse = false;
	dev = nodev_new_with(what);
	mem = new_pages(PAGES);
	assert_int_equal(pthread_barrier_init(&inside, NULL, 2), 0);
	o.chunk_bytes = CHUNK * page_len();
	return kedge_cache_open(dev->dev, NULL, &o, &cache);
}

static int setup(void **state)
{
	return setup_with(0);
}

static int setup_replace(void **state)
{
	return setup_with(NODEV_REPLACE);
}

static int teardown(void **state)
{
	kedge_cache_close(cache);
	assert_int_equal(dev->live, 0);
	assert_int_equal(dev->wrong, 0);
	assert_int_equal(dev->regs, dev->deregs);
	refuse = false;
	pthread_barrier_destroy(&inside);
	nodev_free(dev);
	free_pages(mem, PAGES);
	return 0;
}

static char *at(size_t page)
{
	return mem + page * page_len();
}

static const struct kedge_mr *get(size_t page)
{
	const struct kedge_mr *mr = NULL;

	assert_int_equal(kedge_cache_get(cache, at(page), 1, 0, &mr), 0);
	return mr;
}

static void get_and_put(void)
{
	kedge_cache_put(cache, get(0));
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
	mr = get(0);
	assert_int_equal(kedge_cache_flush(cache), 0);
	kedge_cache_put(cache, mr);
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
	others = get(0);
}

static void others_put(void)
{
	kedge_cache_put(cache, others);
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
	mr = get(0);
	assert_int_equal(kedge_cache_flush(cache), 0);
	other_does(get_and_put);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_true(dev->alive[mr->device_handle]);
	kedge_cache_put(cache, mr);
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
	kedge_cache_close(cache);
	cache = NULL;
	assert_int_equal(dev->live, 0);
	other_ends();
}

/* Pages are not exchanged under a handle that a lookup may be about to give. */
static void nothing_is_replaced_either(void **state)
{
	uint64_t len = CHUNK * page_len();
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
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	other_starts();
	get_and_put();
	other_does(get_and_put);
	CHILD_CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHILD_CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0));
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
	mr = get(0);
	assert_int_equal(fences, before + 1);
	kedge_cache_put(cache, mr);
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
		mr = get(0);
		freed += !dev->alive[mr->device_handle];
		kedge_cache_put(cache, mr);
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
	dev = nodev_new();
	mem = new_pages(PAGES);
	assert_int_equal(in_child(without, NULL), 0);
	nodev_free(dev);
	free_pages(mem, PAGES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_may_never_have_been_membarrier),
		CASE(nothing_ends_while_a_lookup_may_be_under_way),
		CASE(a_put_is_enough),
		CASE(what_was_held_in_limbo_ends_with_its_put),
		CASE(a_thread_that_ends_holds_nothing_up),
		CASE(a_new_thread_fences_from_its_first_lookup),
		CASE(closing_ends_all),
		cmocka_unit_test_setup_teardown(nothing_is_replaced_either,
						setup_replace, teardown),
		CASE(a_filter_may_come_later),
		CASE(each_lookup_and_put_has_a_fence),
		CASE(lookups_under_way_are_waited_for),
		CASE(fences_are_enough),
	};

	return RUN_WITH_UFFD(tests);
}
