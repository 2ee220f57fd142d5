// SPDX-License-Identifier: BSD-2-Clause
/*
 * A cache that one thread has for itself: no other gets in, and what the cache
 * does on threads of its own, and the memory's other users, still count.
 */
#include "cache_pages.h"

static int begin(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .hint_threads = 4 };

	pages_setup(NODEV_WINDOWS, PAGES);
	o.flags = KEDGE_CACHE_SINGLE_THREAD;
	o.chunk_bytes = 4 * page;
	open_cache(&o);
	return 0;
}

static const struct kedge_mr *get_first(void)
{
	return get_at(mem, 1, 0);
}

static unsigned int logged;

static void log_it(void *ctx, int severity, const char *text)
{
	logged += strstr(text, "KEDGE_CACHE_SINGLE_THREAD") != NULL;
}

static _Atomic unsigned int refused;

static void refuse(ssize_t rc)
{
	refused += rc == -EPERM &&
		   strstr(kedge_strerror(-EPERM), "another thread uses");
}

static void *use_it(void *mr)
{
	const struct kedge_mr *out;
	struct kedge_piece p;

	refuse(kedge_cache_get(cache, mem, 1, 0, &out));
	refuse(kedge_cache_getv(cache, mem, 1, 0, &p, 1));
	refuse(kedge_cache_hint(cache, mem, 1, 0));
	refuse(kedge_cache_resync(cache, NULL, 0));
	refuse(kedge_cache_flush(cache));
	put(mr);
	return NULL;
}

static void a_second_thread_is_told(void **state)
{
	const struct kedge_mr *mr = get_first();

	logged = 0;
	refused = 0;
	kedge_log_set(log_it, NULL, KEDGE_LOG_ERROR);
	in_thread(use_it, (void *)mr);
	kedge_log_set(NULL, NULL, 0);
	assert_int_equal(refused, 5);
	assert_int_equal(logged, 1);
	/* The reference is still there. */
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	put(mr);
	assert_int_equal(dev->live, 0);
	assert_int_equal(stats().gets, 1);
}

static void *get_and_put(void *arg)
{
	put(get_first());
	put(get_first());
	return NULL;
}

/* Not who opens it, nor who closes it. */
static void the_first_user_has_it(void **state)
{
	const struct kedge_mr *mr;

	in_thread(get_and_put, NULL);
	assert_int_equal(kedge_cache_get(cache, mem + page, 1, 0, &mr),
			 -EPERM);
}

static void *change_it(void *arg)
{
	pages_at(mem, 1);
	return NULL;
}

static void others_may_change_the_memory(void **state)
{
	const struct kedge_mr *mr = get_first();
	uint64_t old = mr->device_handle;
	struct kedge_piece p;

	in_thread(change_it, NULL);
	put(mr);
	mr = get_first();
	assert_int_not_equal(mr->device_handle, old);
	put(mr);
	assert_int_equal(dev->live, 1);
	assert_false(dev->alive[old]);
	old = mr->device_handle;
	in_thread(change_it, NULL);
	assert_int_equal(kedge_cache_getv(cache, mem, 1, 0, &p, 1), 1);
	assert_int_not_equal(p.mr->device_handle, old);
	kedge_cache_putv(cache, &p, 1);
}

static void a_hint_has_its_threads(void **state)
{
	struct kedge_piece p[PAGES];
	size_t len = PAGES * page;
	uint64_t regs;
	ssize_t n;

	assert_int_equal(kedge_cache_hint(cache, mem, len, 0), len);
	regs = dev->regs;
	n = kedge_cache_getv(cache, mem, len, 0, p, PAGES);
	assert_true(n >= PAGES / 4);
	assert_int_equal(dev->regs, regs);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, regs);
	kedge_cache_putv(cache, p, (size_t)n);
	assert_int_equal(dev->live, 0);
}

static void windows_come_and_go(void **state)
{
	const struct kedge_mr *mr = get_at(mem, 1, KEDGE_ACCESS_REMOTE_READ);

	assert_int_equal(dev->windows, 1);
	put(mr);
	assert_int_equal(dev->windows, 0);
	assert_int_equal(dev->live, 1);
}

static void hits_are_counted(void **state)
{
	struct kedge_piece p;
	int i;

	for (i = 0; i < 10; i++)
		get_and_put(NULL);
	assert_int_equal(kedge_cache_getv(cache, mem, 1, 0, &p, 1), 1);
	kedge_cache_putv(cache, &p, 1);
	assert_int_equal(stats().hits, 20);
	assert_int_equal(stats().misses, 1);
}

static void it_has_no_resync_thread(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };
	struct kedge_cache *out = NULL;

	o.flags = KEDGE_CACHE_SINGLE_THREAD | KEDGE_CACHE_RESYNC;
	assert_int_equal(kedge_cache_open(dev->dev, NULL, &o, &out), -EINVAL);
	assert_null(out);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, begin, teardown)
#define NEEDED need_uffd
#include "test_cache_single.cases.h"
