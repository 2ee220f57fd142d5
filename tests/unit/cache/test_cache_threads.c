// SPDX-License-Identifier: BSD-2-Clause
/*
 * The costs of a thread for the cache, and of the cache for a thread: address space, counts
 * of more regions than a thread's record has room for.
 */
#include <sys/resource.h>

#include "cache_pages.h"

#define MANY	   3000 /* more than a new record has room for */
#define THREADS	   1000
#define STACK_LEN  ((size_t)64 << 10)
#define SPACE_MAX  ((uint64_t)64 << 10) /* of address space, each thread */
#define SPACE_LIMIT ((rlim_t)1 << 30)

static int begin(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };

	pages_setup(0, MANY);
	o.merge_bytes = page;
	open_cache(&o);
	return 0;
}

static const struct kedge_mr *get_page(size_t n)
{
	const struct kedge_mr *mr = NULL;

	return kedge_cache_get(cache, at(n), 1, 0, &mr) ? NULL : mr;
}

static uint64_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	if (!f || fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * page;
}

static pthread_barrier_t step;
static _Atomic unsigned int failures;

static void *get_in_step(void *arg)
{
	const struct kedge_mr *mr;

	pthread_barrier_wait(&step); /* all are there, */
	pthread_barrier_wait(&step); /* and have been measured */
	mr = get_page(0);
	failures += !mr;
	put(mr);
	pthread_barrier_wait(&step); /* all have a record, */
	pthread_barrier_wait(&step); /* and have been measured */
	return NULL;
}

static void start(pthread_t *t, unsigned int cnt)
{
	pthread_attr_t attr;
	unsigned int i;

	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstacksize(&attr, STACK_LEN), 0);
	for (i = 0; i < cnt; i++)
		assert_int_equal(pthread_create(&t[i], &attr, get_in_step,
						NULL), 0);
	pthread_attr_destroy(&attr);
}

static void need_plain_address_space(void)
{
	skip_if(UNDER_SANITIZER, "a sanitizer takes address space of its own");
}

/* Returns the address space that the first get of all of them took. */
static uint64_t space_of(unsigned int cnt)
{
	static pthread_t t[THREADS];
	uint64_t before, after;

	failures = 0;
	pthread_barrier_init(&step, NULL, cnt + 1);
	start(t, cnt);
	pthread_barrier_wait(&step);
	before = address_space();
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	after = address_space();
	pthread_barrier_wait(&step);
	join_threads(t, cnt);
	pthread_barrier_destroy(&step);
	return after - before;
}

static void a_thread_takes_little_address_space(void **state)
{
	uint64_t took;

	need_plain_address_space();
	put(get_page(0)); /* what the cache takes for itself */
	took = space_of(100);
	print_message("%llu bytes of address space a thread\n",
		      (unsigned long long)took / 100);
	assert_int_equal(failures, 0);
	assert_true(took <= 100 * SPACE_MAX);
}

/* The cache as well as the threads begin under the limit. */
static int under_limit(void *arg)
{
	struct rlimit rl = { SPACE_LIMIT, SPACE_LIMIT };

	CHILD_CHECK(!setrlimit(RLIMIT_AS, &rl));
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	space_of(THREADS);
	CHILD_CHECK(!failures);
	kedge_cache_close(cache);
	return 0;
}

static void a_thousand_threads_under_a_limit(void **state)
{
	need_plain_address_space();
	assert_int_equal(in_child(under_limit, NULL), 0);
}

static int small_limit(void *arg)
{
	struct rlimit rl = { (rlim_t)128 << 20, (rlim_t)128 << 20 };
	const struct kedge_mr *mr;

	CHILD_CHECK(!setrlimit(RLIMIT_AS, &rl));
	CHILD_CHECK(!kedge_cache_open(dev->dev, NULL, NULL, &cache));
	mr = get_page(0);
	CHILD_CHECK(mr);
	put(mr);
	kedge_cache_close(cache);
	return 0;
}

static void a_cache_opens_under_a_small_limit(void **state)
{
	need_plain_address_space();
	assert_int_equal(in_child(small_limit, NULL), 0);
}

static const struct kedge_mr *all[MANY];

static void *put_all(void *arg)
{
	size_t i;

	for (i = 0; i < MANY; i++)
		put(all[i]);
	return NULL;
}

static void *get_all(void *arg)
{
	size_t i;

	for (i = 0; i < MANY; i++)
		all[i] = get_page(i);
	return NULL;
}

/* Each counted once, whether or not the thread had room for it. */
static void references_beyond_a_record_are_counted(void **state)
{
	int round;

	for (round = 0; round < 3; round++) {
		get_all(NULL);
		assert_int_equal(kedge_cache_flush(cache), 0);
		assert_int_equal(dev->live, MANY);
		in_thread(put_all, NULL);
		assert_int_equal(dev->live, 0);
		in_thread(get_all, NULL);
		put_all(NULL);
		get_all(NULL); /* hits */
		assert_int_equal(dev->live, MANY);
		put_all(NULL);
		assert_int_equal(kedge_cache_flush(cache), MANY);
	}
	assert_int_equal(stats().misses, 6 * MANY);
	assert_int_equal(stats().hits, 3 * MANY);
}

static struct kedge_piece piece;

static void *get_last(void *arg)
{
	put(get_page(0)); /* has its record */
	all[0] = get_page(MANY - 1);
	return NULL;
}

static void *getv_last(void *arg)
{
	return kedge_cache_getv(cache, at(MANY - 1), 1, 0, &piece, 1) == 1
		? NULL
		: arg;
}

/* A thread hits what its record has no room for. */
static void a_hit_may_be_beyond_a_record(void **state)
{
	uint64_t regs;

	get_all(NULL);
	put_all(NULL);
	regs = dev->regs;
	in_thread(get_last, NULL);
	assert_int_equal(dev->regs, regs);
	assert_int_equal(kedge_cache_flush(cache), MANY - 1);
	assert_true(dev->alive[all[0]->device_handle]);
	put(all[0]);
	assert_int_equal(dev->live, 0);
}

static void a_piece_may_be_beyond_a_record(void **state)
{
	get_all(NULL);
	put_all(NULL);
	in_thread(getv_last, NULL);
	assert_int_equal(kedge_cache_flush(cache), MANY - 1);
	assert_true(dev->alive[piece.mr->device_handle]);
	kedge_cache_putv(cache, &piece, 1);
	assert_int_equal(dev->live, 0);
}

/* A thread's records of a cache go when it uses another. */
static void closed_caches_leave_nothing(void **state)
{
	struct kedge_cache *kept = cache;
	uint64_t before = 0;
	int i;

	need_plain_address_space();
	for (i = 0; i < 300; i++) {
		assert_int_equal(kedge_cache_open(dev->dev, NULL, NULL,
						  &cache), 0);
		put(get_page(0));
		kedge_cache_close(cache);
		if (i == 100)
			before = address_space();
	}
	cache = kept;
	assert_true(address_space() < before + 50 * page);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, begin, teardown)
#define NEEDED need_uffd
#include "test_cache_threads.cases.h"
