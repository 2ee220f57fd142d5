// SPDX-License-Identifier: BSD-2-Clause
/*
 * A device that takes no byte twice, and says so or not: what is not held makes way, what is held
 * is served in pieces. And a device that fails to end a registration.
 */
#include "cache/internal.h"
#include "cache_pages.h"
#include "clock.h"

static bool says_so;

static int begin_with(unsigned int what)
{
	struct kedge_cache_opts o = { .chunk_bytes = CHUNK * page_len() };

	pages_setup(what, PAGES);
	if (says_so)
		dev->attr.flags |= KEDGE_DEVICE_EXCLUSIVE;
	open_cache(&o);
	return 0;
}

static int begin(void **state)
{
	says_so = false;
	return begin_with(NODEV_EXCLUSIVE | NODEV_STUCK);
}

static int begin_said(void **state)
{
	says_so = true;
	return begin_with(NODEV_EXCLUSIVE | NODEV_STUCK);
}

/* One that says so is asked for no byte twice. */
static int end(void **state)
{
	if (says_so)
		assert_int_equal(dev->refused, 0);
	return teardown(state);
}

static int busy(size_t first, size_t cnt)
{
	const struct kedge_mr *mr;

	return kedge_cache_get(cache, at(first), cnt * page, WRITE, &mr);
}

static void what_overlaps_is_served(void **state)
{
	get_put(0, 4, WRITE);
	get_put(2, 4, WRITE);
	assert_true(dev->refused <= 1);
	/* One registration has both, so that neither drives the other out. */
	assert_true(is_hit(0, 4, WRITE));
	assert_true(is_hit(0, 6, WRITE));
	assert_int_equal(stats().regions, 1);
	assert_true(dev->refused <= 1);
}

static void rights_grow_together(void **state)
{
	get_put(0, 4, 0);
	get_put(2, 4, WRITE);
	assert_true(is_hit(0, 2, WRITE));
}

static void a_large_one_is_not_made_again_for_a_small(void **state)
{
	get_put(0, 3 * CHUNK, WRITE);
	get_put(3 * CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * page);
	assert_false(is_hit(0, 1, WRITE));
}

static void what_is_held_stays(void **state)
{
	const struct kedge_mr *mr = get(0, 4, WRITE);

	assert_int_equal(busy(2, 4), -EBUSY);
	assert_non_null(strstr(kedge_strerror(-EBUSY), "kedge_cache_getv()"));
	assert_true(is_hit(0, 4, WRITE));
	get_put(8, 2, WRITE);
	put(mr);
	get_put(2, 4, WRITE);
}

static void pieces_go_around_what_is_held(void **state)
{
	const struct kedge_mr *mr = get(2, 2, WRITE);
	struct kedge_piece p[8];
	ssize_t n = kedge_cache_getv(cache, at(0), 6 * page, WRITE, p, 8);

	assert_int_equal(n, 3);
	assert_ptr_equal(p[1].mr, mr);
	assert_int_equal(p[2].addr, addr_of(at(4)));
	kedge_cache_putv(cache, p, 3);
	put(mr);
}

/* Two buffers of malloc()'s may share a page. */
static void neighbours_on_one_page(void **state)
{
	const struct kedge_mr *mr = get_at(at(0), 2 * page + 100, WRITE);
	struct kedge_piece p[4];

	assert_int_equal(kedge_cache_getv(cache, at(2) + 100, 2 * page, WRITE, p, 4), 2);
	kedge_cache_putv(cache, p, 2);
	put(mr);
}

static void neighbours_that_are_held_are_not_merged(void **state)
{
	const struct kedge_mr *mr = get(0, 1, WRITE);

	get_put(1, 1, WRITE);
	assert_int_equal(dev->last_len, page);
	put(mr);
	get_put(2, 1, WRITE);
	assert_int_equal(stats().regions, 1);
}

static void lost_pages_are_registered_again(void **state)
{
	get_put(0, CHUNK, WRITE);
	pages_at(at(3), 1);
	get_put(3, 1, WRITE);
	assert_true(is_hit(0, CHUNK, WRITE));
	assert_int_equal(stats().regions, 1);
	pages_at(at(3), 1);
	assert_true(kedge_cache_resync(cache, NULL, 0) > 0);
	assert_true(is_hit(0, CHUNK, WRITE));
}

static void lost_pages_in_flight_are_refused(void **state)
{
	const struct kedge_mr *mr = get(0, CHUNK, WRITE);

	pages_at(at(0), CHUNK);
	assert_int_equal(busy(0, CHUNK), -EBUSY);
	put(mr);
	get_put(0, CHUNK, WRITE);
}

static void a_hint_after_gets(void **state)
{
	get_put(1, 2, WRITE);
	get_put(CHUNK - 1, 2, WRITE);
	assert_int_equal(kedge_cache_hint(cache, mem, PAGES * page, WRITE), PAGES * page);
	assert_int_equal(stats().regions, PAGES / CHUNK);
	/* A range over a border of chunks joins them. */
	get_put(CHUNK - 1, 2, WRITE);
	assert_true(is_hit(0, 2 * CHUNK, WRITE));
	assert_int_equal(stats().regions, PAGES / CHUNK - 1);
}

static void a_peer_s_key_has_its_range_alone(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 4, WRITE);
	mr = get(1, 1, KEDGE_ACCESS_REMOTE_READ);
	assert_int_equal(busy(0, 4), -EBUSY);
	put(mr);
	get_put(0, 4, WRITE);
}

/* A registration that the program has made by itself. */
static void what_others_have_registered(void **state)
{
	dev->spans[0] = (struct nodev_span){ addr_of(at(2)), addr_of(at(3)), 1u << 30 };
	assert_int_equal(busy(0, 4), -EEXIST);
	get_put(4, 2, WRITE);
	dev->spans[0].handle = 0;
	dev->refused = 0;
}

#define TURNS 300

static void *overlap(void *arg)
{
	const struct kedge_mr *mr;
	size_t first = *(size_t *)arg;
	int i, rc;

	for (i = 0; i < TURNS; i++) {
		rc = kedge_cache_get(cache, at(first), 4 * page, WRITE, &mr);
		if (!rc)
			put(mr);
		assert_true(!rc || rc == -EBUSY);
		if (i % 8 == 0)
			pages_at(at(first + 1), 1);
	}
	return NULL;
}

static void overlap_on_threads(void)
{
	size_t first[4] = { 0, 2, 4, 3 };
	pthread_t t[4];
	int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, overlap, &first[i]), 0);
	join_threads(t, 4);
	assert_int_equal(dev->refused, 0);
}

/* The device has been asked for a byte twice, if it does not say that it refuses. */
static void learn(void)
{
	get_put(0, 4, WRITE);
	get_put(1, 4, WRITE);
	dev->refused = 0;
}

/* Threads that make, end and wait for each other's: none is refused, and none waits for ever. */
static void threads_make_way_for_each_other(void **state)
{
	skip_if(is_single(), "it is a cache of one thread");
	learn();
	overlap_on_threads();
	get_put(0, 8, WRITE);
}

static _Atomic bool toggling;

static void *fail_now_and_then(void *unused)
{
	while (toggling) {
		dev->stuck_rc = dev->stuck_rc ? 0 : -EBUSY;
		sched_yield();
	}
	dev->stuck_rc = 0;
	return NULL;
}

/* Another thread may be trying again to end what is in the way. */
static void nor_beside_ends_that_fail(void **state)
{
	pthread_t t;

	skip_if(is_single(), "it is a cache of one thread");
	learn();
	toggling = true;
	assert_int_equal(pthread_create(&t, NULL, fail_now_and_then, NULL), 0);
	overlap_on_threads();
	toggling = false;
	join_thread(t);
	get_put(0, 8, WRITE);
	assert_int_equal(stats().stuck, 0);
}

static void a_flush_leaves_what_is_held(void **state)
{
	const struct kedge_mr *mr = get(0, 4, WRITE);
	struct kedge_piece p[4];

	get_put(8, 1, WRITE);
	assert_int_equal(kedge_cache_flush(cache), 1);
	/* Or it would be in the way until its put. */
	assert_int_equal(kedge_cache_getv(cache, at(2), 4 * page, WRITE, p, 4), 2);
	kedge_cache_putv(cache, p, 2);
	put(mr);
}

/* ---- an end that fails ---- */

static unsigned int logged;

static void log_it(void *ctx, int severity, const char *text)
{
	logged += strstr(text, "failed to end a registration") ||
		  strstr(text, "has not ended 1 registrations");
}

static void an_end_that_fails_is_tried_again(void **state)
{
	logged = 0;
	kedge_log_set(log_it, NULL, KEDGE_LOG_ERROR);
	get_put(0, 4, WRITE);
	dev->stuck_rc = -EBUSY;
	kedge_cache_flush(cache);
	kedge_cache_flush(cache);
	assert_int_equal(stats().stuck, 1);
	assert_int_equal(stats().bytes, 4 * page);
	assert_int_equal(stats().dereg_failures, 2);
	assert_int_equal(stats().deregistrations, 0);
	assert_int_equal(logged, 1);
	/* Nor is it registered twice meanwhile. */
	assert_int_equal(busy(0, 2), -EBUSY);
	assert_non_null(strstr(kedge_strerror(-EBUSY), "cannot end"));
	dev->stuck_rc = 0;
	get_put(0, 2, WRITE);
	assert_int_equal(stats().stuck, 0);
	assert_int_equal(stats().bytes, 2 * page);
	kedge_log_set(NULL, NULL, 0);
}

/* A registration is in the way, and found to be only when it does not end. */
static void what_does_not_make_way(void **state)
{
	get_put(0, 4, WRITE);
	dev->stuck_rc = -EIO;
	assert_int_equal(busy(2, 4), -EBUSY);
	assert_int_equal(dev->refused, 0);
	assert_int_equal(stats().regions, 1);
	dev->stuck_rc = 0;
	get_put(2, 4, WRITE);
}

static void a_miss_tries_again_after_a_while(void **state)
{
	test_clock_begin();
	get_put(0, 4, WRITE);
	dev->stuck_rc = -EBUSY;
	kedge_cache_flush(cache);
	assert_int_equal(stats().dereg_failures, 1);
	test_clock_move_ms(20);
	get_put(16, 1, WRITE);
	assert_int_equal(stats().dereg_failures, 2);
	dev->stuck_rc = 0;
	test_clock_move_ms(20);
	get_put(24, 1, WRITE);
	assert_int_equal(stats().stuck, 0);
	test_clock_end();
}

static void a_close_says_what_has_not_ended(void **state)
{
	logged = 0;
	kedge_log_set(log_it, NULL, KEDGE_LOG_ERROR);
	get_put(0, 4, WRITE);
	dev->stuck_rc = -EIO;
	close_cache();
	assert_int_equal(logged, 2);
	assert_int_equal(dev->live, 1);
	dev->live = 0;
	kedge_log_set(NULL, NULL, 0);
}

#define BOTH(f) { #f, f, begin, end, NULL }, { #f ", said", f, begin_said, end, NULL }

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH(what_overlaps_is_served),
		BOTH(rights_grow_together),
		BOTH(a_large_one_is_not_made_again_for_a_small),
		BOTH(what_is_held_stays),
		BOTH(pieces_go_around_what_is_held),
		BOTH(neighbours_on_one_page),
		BOTH(neighbours_that_are_held_are_not_merged),
		BOTH(lost_pages_are_registered_again),
		BOTH(lost_pages_in_flight_are_refused),
		BOTH(a_hint_after_gets),
		BOTH(a_peer_s_key_has_its_range_alone),
		BOTH(what_others_have_registered),
		BOTH(threads_make_way_for_each_other),
		BOTH(nor_beside_ends_that_fail),
		cmocka_unit_test_setup_teardown(a_flush_leaves_what_is_held, begin_said, end),
		cmocka_unit_test_setup_teardown(an_end_that_fails_is_tried_again, begin_said, end),
		cmocka_unit_test_setup_teardown(what_does_not_make_way, begin_said, end),
		cmocka_unit_test_setup_teardown(a_miss_tries_again_after_a_while, begin, end),
		cmocka_unit_test_setup_teardown(a_close_says_what_has_not_ended, begin, end),
	};

	return RUN_CASES(tests, argc, argv);
}
