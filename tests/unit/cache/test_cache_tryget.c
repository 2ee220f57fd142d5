// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge_cache_tryget() and kedge_cache_tryput(): a hit or nothing, and its put or nothing,
 * without the lock and without the device.
 */
#include "cache/internal.h"
#include "cache_pages.h"

static int try(size_t first, size_t cnt, uint32_t access,
	       const struct kedge_mr **mr)
{
	return kedge_cache_tryget(cache, at(first), cnt * page, access, mr);
}

static void it_registers_nothing(void **state)
{
	const struct kedge_mr *mr = (void *)0x1;

	assert_int_equal(try(0, 1, WRITE, &mr), -EAGAIN);
	get_put(8, 1, WRITE);
	assert_int_equal(try(0, 1, WRITE, &mr), -EAGAIN);
	assert_ptr_equal(mr, (void *)0x1);
	assert_int_equal(dev->regs, 1);
	assert_int_equal(stats().failures, 0);
}

static void a_hit_is_a_reference(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 4, WRITE);
	assert_int_equal(try(1, 2, WRITE, &mr), 0);
	assert_int_equal(mr->addr, addr_of(at(0)));
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	kedge_cache_put(cache, mr);
	assert_int_equal(dev->live, 0);
	assert_int_equal(stats().gets, 2);
	assert_int_equal(stats().hits, 1);
}

static void a_change_is_for_get_to_handle(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 4, WRITE);
	pages_at(at(0), 1);
	assert_int_equal(try(0, 4, WRITE, &mr), -EAGAIN);
	assert_int_equal(try(2, 1, WRITE, &mr), -EAGAIN);
	assert_int_equal(dev->regs, 1);
	get_put(0, 4, WRITE);
	assert_int_equal(try(0, 4, WRITE, &mr), 0);
	kedge_cache_put(cache, mr);
}

static void pages_that_are_left_are_a_hit(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, CHUNK, WRITE);
	pages_at(at(0), 1);
	assert_true(is_hit(2, CHUNK - 2, WRITE)); /* and has caught up */
	assert_int_equal(try(2, 2, WRITE, &mr), 0);
	kedge_cache_put(cache, mr);
	assert_int_equal(try(0, 2, WRITE, &mr), -EAGAIN);
}

static void no_range_and_no_memory(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 1, WRITE);
	assert_int_equal(try(0, 0, WRITE, &mr), -EAGAIN);
	assert_int_equal(kedge_cache_tryget(cache, at(0), SIZE_MAX, WRITE, &mr), -EAGAIN);
	assert_int_equal(try(0, 1, ~0u, &mr), -EAGAIN);
	assert_int_equal(kedge_cache_tryget(NULL, at(0), 1, 0, &mr), -EINVAL);
	assert_int_equal(try(0, 1, 0, NULL), -EINVAL);
}

static void remote_access_that_ends_is_no_hit(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 1, WRITE | KEDGE_ACCESS_REMOTE_READ);
	assert_int_equal(try(0, 1, WRITE | KEDGE_ACCESS_REMOTE_READ, &mr), -EAGAIN);
}

static void *try_it(void *rc)
{
	const struct kedge_mr *mr;
	int *out = rc;

	out[0] = try(0, 1, WRITE, &mr);
	get_put(0, 1, WRITE);
	out[1] = try(0, 1, WRITE, &mr);
	if (!out[1])
		kedge_cache_put(cache, mr);
	return NULL;
}

/* The first call of a thread would take the lock. */
static void a_thread_gets_once_first(void **state)
{
	int rc[2];

	get_put(0, 1, WRITE);
	skip_if(modes_of(cache) & MODE_SINGLE, "it is a cache of one thread");
	in_thread(try_it, rc);
	assert_int_equal(rc[0], -EAGAIN);
	assert_int_equal(rc[1], 0);
}

static void *try_with_the_lock_held(void *rc)
{
	const struct kedge_mr *mr;
	int *out = rc;

	get_put(0, 1, WRITE);
	pthread_mutex_lock(&cache->lock);
	out[0] = try(0, 1, WRITE, &mr);
	out[1] = try(4, 1, WRITE, &mr);
	pthread_mutex_unlock(&cache->lock);
	if (!out[0])
		kedge_cache_put(cache, mr);
	return NULL;
}

/* Deadlock, if it took the lock; the test's time limit would end that. */
static void the_lock_is_not_taken(void **state)
{
	int rc[2];

	try_with_the_lock_held(rc);
	assert_int_equal(rc[0], 0);
	assert_int_equal(rc[1], -EAGAIN);
}

/* Each thread has a record of each cache, and switches between them. */
static void two_caches_take_turns(void **state)
{
	const struct kedge_mr *mr, *mr2;
	struct kedge_cache *second;
	int i;

	assert_int_equal(kedge_cache_open(dev->dev, nf, NULL, &second), 0);
	get_put(0, 1, WRITE);
	assert_int_equal(kedge_cache_get(second, at(0), 1, WRITE, &mr2), 0);
	kedge_cache_put(second, mr2);
	for (i = 0; i < 3; i++) {
		assert_int_equal(try(0, 1, WRITE, &mr), 0);
		assert_int_equal(kedge_cache_tryget(second, at(0), 1, WRITE, &mr2), 0);
		kedge_cache_put(cache, mr);
		kedge_cache_put(second, mr2);
	}
	kedge_cache_close(second);
}

static void a_put_of_what_is_good_is_a_put(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 4, WRITE);
	assert_int_equal(try(0, 4, WRITE, &mr), 0);
	if (modes_of(cache)) {
		assert_int_equal(kedge_cache_tryput(cache, mr), -EAGAIN);
		kedge_cache_put(cache, mr);
	} else {
		assert_int_equal(kedge_cache_tryput(cache, mr), 0);
	}
	assert_int_equal(stats().gets, 2);
	assert_int_equal(stats().hits, 1);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_int_equal(dev->live, 0);
	assert_int_equal(kedge_cache_tryput(NULL, mr), -EINVAL);
	assert_int_equal(kedge_cache_tryput(cache, NULL), -EINVAL);
}

/* The device is the put's that follows, and the reference is held until then. */
static void a_put_that_deregisters_is_left_to_put(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 4, WRITE);
	assert_int_equal(try(0, 4, WRITE, &mr), 0);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(kedge_cache_tryput(cache, mr), -EAGAIN);
	assert_int_equal(kedge_cache_tryput(cache, mr), -EAGAIN);
	assert_int_equal(dev->live, 1);
	kedge_cache_put(cache, mr);
	assert_int_equal(dev->live, 0);
}

static void *put_there(void *mr)
{
	const struct kedge_mr *own;
	int rc = kedge_cache_tryput(cache, mr);

	if (rc != -EAGAIN)
		return (void *)1; /* this thread has no record yet */
	if (kedge_cache_get(cache, at(0), 1, WRITE, &own))
		return (void *)2;
	kedge_cache_put(cache, own);
	/* It holds none, so it may be one too many. */
	if (kedge_cache_tryput(cache, mr) != -EAGAIN)
		return (void *)3;
	kedge_cache_put(cache, mr);
	return NULL;
}

static void a_tryput_too_many_is_left_to_put(void **state)
{
	const struct kedge_mr *mr;

	skip_if(modes_of(cache), "each put is kedge_cache_put()'s there");
	get_put(0, 4, WRITE);
	assert_int_equal(try(0, 4, WRITE, &mr), 0);
	assert_int_equal(kedge_cache_tryput(cache, mr), 0);
	assert_int_equal(kedge_cache_tryput(cache, mr), -EAGAIN);
	kedge_cache_put(cache, mr);
	assert_int_equal(stats().overputs, 1);
	assert_int_equal(try(0, 4, WRITE, &mr), 0);
	assert_int_equal(kedge_cache_flush(cache), 0);
	kedge_cache_put(cache, mr);
	assert_int_equal(dev->live, 0);
}

static void a_put_by_another_thread(void **state)
{
	const struct kedge_mr *mr;
	void *rc;

	skip_if(modes_of(cache), "each put is kedge_cache_put()'s there");
	get_put(0, 4, WRITE);
	assert_int_equal(try(0, 4, WRITE, &mr), 0);
	rc = in_thread(put_there, (void *)mr);
	assert_null(rc);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_int_equal(dev->live, 0);
}

static int try_in_child(void *unused)
{
	const struct kedge_mr *mr;

	return try(0, 1, WRITE, &mr) != -EAGAIN ||
	       kedge_cache_get(cache, at(0), 1, WRITE, &mr) != -ECHILD;
}

static void a_child_has_no_hit(void **state)
{
	get_put(0, 1, WRITE);
	need_threads_after_fork();
	assert_int_equal(in_child(try_in_child, NULL), 0);
}

#define LISTED OPEN
#include "test_cache_tryget.cases.h"

int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
