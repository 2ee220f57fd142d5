// SPDX-License-Identifier: BSD-2-Clause
/*
 * Puts too many: counted, told once, and of no effect on later gets; and with KEDGE_VERIFY=1 of
 * no effect on those who hold the registration.
 */
#include "cache/internal.h"
#include "cache_pages.h"

static unsigned int logged;
static char text[1024];

static void log_it(void *ctx, int severity, const char *line)
{
	logged++;
	snprintf(text, sizeof(text), "%s", line);
}

static int begin(void **state)
{
	setup_plain(state);
	kedge_log_set(log_it, NULL, KEDGE_LOG_ERROR);
	logged = 0;
	return 0;
}

static int begin_verified(void **state)
{
	setenv("KEDGE_VERIFY", "1", 1);
	return begin(state);
}

static int end(void **state)
{
	unsetenv("KEDGE_VERIFY");
	teardown(state);
	kedge_log_set(NULL, NULL, 0);
	return 0;
}

static void it_is_counted_and_told_once(void **state)
{
	const struct kedge_mr *mr = get(0, 1, WRITE);
	int i;

	put(mr);
	for (i = 0; i < 3; i++)
		put(mr);
	assert_int_equal(stats().overputs, 3);
	assert_int_equal(logged, 1);
	assert_non_null(strstr(text, "kedge_cache_put() without a get"));
	assert_non_null(strstr(text, "KEDGE_VERIFY=1"));
}

static void later_gets_hold_what_they_get(void **state)
{
	const struct kedge_mr *mr = get(0, 1, WRITE);

	put(mr);
	put(mr);
	mr = get(0, 1, WRITE);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	put(mr);
	assert_int_equal(dev->live, 0);
	/* Of no registration at all. */
	put(mr);
	assert_int_equal(stats().overputs, 2);
	assert_true(dev->live == 0 && dev->wrong == 0);
	get_put(0, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
}

/* By any way, and after hits. */
static void it_is_known_at_once_on_one_thread(void **state)
{
	struct kedge_piece p;
	const struct kedge_mr *mr;
	int i;

	for (i = 0; i < 5; i++) {
		get_put(0, 1, WRITE);
		get_put(0, 1, WRITE);
		assert_int_equal(kedge_cache_getv(cache, at(0), page, WRITE, &p, 1), 1);
		kedge_cache_putv(cache, &p, 1);
		kedge_cache_putv(cache, &p, 1);
		assert_int_equal(stats().overputs, i + 1);
		mr = get(0, 1, WRITE);
		assert_int_equal(kedge_cache_flush(cache), 0);
		assert_int_equal(dev->live, 1);
		put(mr);
		pages_at(at(0), 1);
	}
}

/* Both have the same pointer: it shows when the second puts. */
static void that_of_another_shows_at_the_other_s_put(void **state)
{
	const struct kedge_mr *first = get(0, 1, WRITE), *second = get(0, 1, WRITE);

	put(first);
	put(first);
	assert_int_equal(stats().overputs, 0);
	put(second);
	assert_int_equal(stats().overputs, 1);
}

#define MANY 3000

static void *put_many(void *mr)
{
	int i;

	get_put(8, 1, WRITE);
	for (i = 0; i < MANY; i++)
		put(mr);
	return NULL;
}

static void puts_of_other_threads_are_none_too_many(void **state)
{
	const struct kedge_mr *mr;
	int i;

	skip_if(is_single(), "it is a cache of one thread");
	for (i = 0; i < MANY; i++)
		mr = get(0, 1, WRITE);
	in_thread(put_many, (void *)mr);
	assert_int_equal(stats().overputs, 0);
	assert_int_equal(kedge_cache_flush(cache), 2);
	assert_int_equal(dev->live, 0);
}

static void *put_twice(void *mr)
{
	get_put(8, 1, WRITE);
	put(mr);
	put(mr);
	return NULL;
}

static void another_thread_s_second_put_is(void **state)
{
	skip_if(is_single(), "it is a cache of one thread");
	in_thread(put_twice, (void *)get(0, 1, WRITE));
	kedge_cache_flush(cache);
	assert_int_equal(stats().overputs, 1);
	assert_int_equal(logged, 1);
	assert_int_equal(dev->live, 0);
}

static _Atomic int turn;

static void *put_others_and_once_more(void *arg)
{
	const struct kedge_mr **mr = arg;
	int i;

	get_put(8, 1, WRITE);
	/* So that its puts are not looked at each time. */
	for (i = 0; i < 100; i++)
		put(mr[0]);
	turn = 1;
	WAIT_FOR(turn == 2);
	put(mr[0]);
	return NULL;
}

/* The registration has ended, and another has its place. */
static void one_that_was_not_looked_at_harms_no_later_get(void **state)
{
	const struct kedge_mr *mr;
	pthread_t t;
	int i;

	skip_if(is_single(), "it is a cache of one thread");
	for (i = 0; i < 100; i++)
		mr = get(0, 1, WRITE);
	turn = 0;
	assert_int_equal(pthread_create(&t, NULL, put_others_and_once_more, &mr), 0);
	WAIT_FOR(turn == 1);
	assert_int_equal(kedge_cache_flush(cache), 2);
	turn = 2;
	pthread_join(t, NULL);
	for (i = 0; i < 2; i++)
		mr = get(16 * (size_t)i, 1, WRITE);
	assert_int_equal(stats().overputs, 1);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 2);
	close_cache();
	dev->live = 0;
}

static _Atomic(const struct kedge_mr *) hand;
static _Atomic bool over;

static void *take_and_put(void *unused)
{
	const struct kedge_mr *mr;

	while (!over || hand) {
		mr = atomic_exchange(&hand, NULL);
		if (mr)
			put(mr);
		get_put(0, 1, WRITE);
	}
	return NULL;
}

/* The one looks while the other gets: no sum of a moment that never was is believed. */
static void hands_full_are_none_too_many(void **state)
{
	pthread_t t;
	int i;

	skip_if(is_single(), "it is a cache of one thread");
	over = false;
	assert_int_equal(pthread_create(&t, NULL, take_and_put, NULL), 0);
	for (i = 0; i < 20000; i++) {
		const struct kedge_mr *mr = get(0, 1, WRITE), *none = NULL;

		if (!atomic_compare_exchange_strong(&hand, &none, mr))
			put(mr);
	}
	over = true;
	pthread_join(t, NULL);
	kedge_cache_flush(cache);
	assert_int_equal(stats().overputs, 0);
	assert_int_equal(dev->live, 0);
}

static int put_in_child(void *mr)
{
	put(mr);
	put(mr);
	return (int)logged;
}

static void a_child_s_puts_touch_nothing(void **state)
{
	const struct kedge_mr *mr;

	need_threads_after_fork();
	mr = get(0, 1, WRITE);
	assert_int_equal(in_child(put_in_child, (void *)mr), 0);
	put(mr);
	assert_int_equal(stats().overputs, 0);
}

/* ---- KEDGE_VERIFY=1 ---- */

static void the_other_s_reference_stays(void **state)
{
	const struct kedge_mr *first = get(0, 1, WRITE), *second = get(0, 1, WRITE);

	assert_ptr_not_equal(first, second);
	put(first);
	put(first);
	put(first);
	assert_int_equal(stats().overputs, 2);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(dev->live, 1);
	put(second);
	assert_int_equal(dev->live, 0);
}

static unsigned int count(const char *what)
{
	const char *p = text;
	unsigned int n = 0;

	while ((p = strstr(p, what))) {
		p += strlen(what);
		n++;
	}
	return n;
}

static void all_callers_are_named(void **state)
{
	const struct kedge_mr *mr = get(0, 1, WRITE);

	put(mr);
	put(mr);
	put(mr);
	assert_int_equal(logged, 1);
	assert_non_null(strstr(text, "put again at"));
	assert_int_equal(count("test_cache_overput("), 3);
}

static void pieces_are_told_apart(void **state)
{
	struct kedge_piece p[8], q[8];
	ssize_t n;

	open_cache(&(struct kedge_cache_opts){ .chunk_bytes = CHUNK * page });
	n = kedge_cache_getv(cache, at(0), 3 * CHUNK * page, WRITE, p, 8);
	assert_int_equal(n, 3);
	assert_int_equal(kedge_cache_getv(cache, at(0), 3 * CHUNK * page, WRITE, q, 8), 3);
	assert_int_equal(kedge_cache_getv(cache, at(0), 3 * CHUNK * page, WRITE, q + 3, 2),
			 -ENOBUFS);
	kedge_cache_putv(cache, p, 3);
	kedge_cache_putv(cache, p, 3);
	assert_int_equal(stats().overputs, 3);
	assert_int_equal(kedge_cache_flush(cache), 0);
	kedge_cache_putv(cache, q, 3);
	assert_int_equal(dev->live, 0);
}

static void tickets_are_used_again(void **state)
{
	int i;

	for (i = 0; i < 10000; i++)
		get_put(0, 1, WRITE);
	assert_int_equal(stats().overputs, 0);
	assert_int_equal(stats().hits, 9999);
}

/* ---- closed while it is held ---- */

static void close_held(void)
{
	struct nodev *own = nodev_new();
	struct kedge_cache *c;
	const struct kedge_mr *mr;

	assert_int_equal(kedge_cache_open(own->dev, NULL, NULL, &c), 0);
	assert_int_equal(kedge_cache_get(c, at(0), 1, WRITE, &mr), 0);
	assert_int_equal(kedge_cache_get(c, at(4), 1, WRITE, &mr), 0);
	kedge_cache_close(c);
	assert_int_equal(logged, 1);
	assert_non_null(strstr(text, "with 2 registrations held"));
	/* A transfer may use them. */
	assert_int_equal(own->live, 2);
	nodev_free(own);
}

static void closing_what_is_held_is_told(void **state)
{
	close_held();
	assert_int_equal(count("test_cache_overput("), 0);
}

static void and_who_holds_it(void **state)
{
	close_held();
	assert_int_equal(count("test_cache_overput("), 1);
}

#define UNVERIFIED(f) cmocka_unit_test_setup_teardown(f, begin, end)
#define VERIFIED(f)   cmocka_unit_test_setup_teardown(f, begin_verified, end)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		UNVERIFIED(it_is_counted_and_told_once),
		UNVERIFIED(later_gets_hold_what_they_get),
		UNVERIFIED(it_is_known_at_once_on_one_thread),
		UNVERIFIED(that_of_another_shows_at_the_other_s_put),
		UNVERIFIED(puts_of_other_threads_are_none_too_many),
		UNVERIFIED(another_thread_s_second_put_is),
		UNVERIFIED(one_that_was_not_looked_at_harms_no_later_get),
		UNVERIFIED(hands_full_are_none_too_many),
		UNVERIFIED(a_child_s_puts_touch_nothing),
		UNVERIFIED(closing_what_is_held_is_told),
		VERIFIED(the_other_s_reference_stays),
		VERIFIED(all_callers_are_named),
		VERIFIED(pieces_are_told_apart),
		VERIFIED(tickets_are_used_again),
		VERIFIED(and_who_holds_it),
	};

	return RUN_CASES(tests, argc, argv);
}
