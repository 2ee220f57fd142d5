// SPDX-License-Identifier: BSD-2-Clause
/* Registrations of libfabric's that are kept, and the time when it is told that one has to go. */
#include "cases.h"
#include "ranges.h"

#define LEN ((size_t)4 << 12)
#define MAX 32

static struct kedge_notifier *nf;
static struct ranges *t;
static char *at;

static char *map(void)
{
	char *p = new_map(LEN);

	memset(p, 1, LEN);
	return p;
}

static int begin(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	if (kedge_notifier_open(NULL, &nf) || kedge_notifier_info(nf, &info))
		return -1;
	if (info.level == KEDGE_LEVEL_NONE) {
		print_message("nothing can be watched here\n");
		exit(77);
	}
	at = map();
	return ranges_open(nf, MAX, &t);
}

static int end(void **state)
{
	ranges_close(t);
	kedge_notifier_close(nf);
	munmap(at, LEN);
	return 0;
}

static bool keep(void)
{
	return ranges_keep(t, at, LEN, ranges_clock(t));
}

/* Told of all that is pending; how many there were. */
static size_t tell(void)
{
	unsigned int all, pending;
	struct span out[MAX];
	size_t n;

	ranges_count(t, &all, &pending);
	if (!pending)
		return 0;
	n = ranges_wait(t, out, MAX);
	/* They are told: the next call says so, and finds that it is to end. */
	ranges_stop(t);
	assert_int_equal(ranges_wait(t, out, MAX), 0);
	return n;
}

static void a_registration_is_kept_the_second_time(void **state)
{
	assert_false(keep());
	assert_true(keep());
	assert_true(ranges_valid(t, at, LEN));
	assert_true(keep());
}

/* It was made before the watch began, though it is told of after another one. */
static void one_of_a_thread_that_has_not_told_since_is_not_kept(void **state)
{
	const uint64_t before = ranges_clock(t);

	assert_false(ranges_keep(t, at, LEN, before));
	assert_false(ranges_keep(t, at, LEN, before));
	assert_true(ranges_keep(t, at, LEN, ranges_clock(t)));
}

static void a_change_is_found_at_once_and_told(void **state)
{
	struct span out[MAX];

	keep();
	assert_true(keep());
	assert_int_equal(madvise(at, LEN, MADV_DONTNEED), 0);
	assert_false(ranges_valid(t, at, LEN));
	assert_false(ranges_valid(t, at + 1, 1));
	/* A cache may have the former one still. */
	assert_false(keep());
	assert_int_equal(ranges_wait(t, out, MAX), 1);
	assert_ptr_equal(out[0].at, at);
	assert_int_equal(out[0].len, LEN);
	assert_false(keep());
	assert_false(ranges_valid(t, at, LEN));
	ranges_stop(t);
	assert_int_equal(ranges_wait(t, out, MAX), 0);
	/* It is watched anew, and then kept. */
	while (!keep())
		;
	assert_true(ranges_valid(t, at, LEN));
}

static void what_else_there_is_stays(void **state)
{
	char *other = map();

	keep();
	keep();
	assert_false(ranges_keep(t, other, LEN, ranges_clock(t)));
	assert_true(ranges_keep(t, other, LEN, ranges_clock(t)));
	munmap(at, LEN);
	assert_false(ranges_valid(t, at, LEN));
	assert_true(ranges_valid(t, other, LEN));
	assert_int_equal(tell(), 1);
	assert_true(ranges_valid(t, other, LEN));
	munmap(other, LEN);
	at = map();
}

static void one_that_is_not_kept_is_not_told(void **state)
{
	unsigned int all, pending;

	keep();
	assert_int_equal(madvise(at, LEN, MADV_DONTNEED), 0);
	assert_false(keep());
	ranges_count(t, &all, &pending);
	assert_int_equal(all, 1);
	assert_int_equal(pending, 0);
	while (!keep())
		;
}

static void the_table_makes_room(void **state)
{
	unsigned int all, pending, kept = 0;
	size_t i;

	for (i = 0; i < 4 * MAX; i++) {
		ranges_keep(t, at + i, 8, ranges_clock(t));
		kept += ranges_keep(t, at + i, 8, ranges_clock(t));
		ranges_count(t, &all, &pending);
		assert_in_range(all, 1, MAX);
	}
	/* Nothing was told: those that are kept hold their places. */
	assert_int_equal(kept, MAX);
	assert_true(pending);
	assert_true(tell());
	ranges_count(t, &all, &pending);
	assert_int_equal(pending, 0);
	assert_in_range(all, 1, MAX - 1);
	assert_false(ranges_keep(t, at + i, 8, ranges_clock(t)));
	assert_true(ranges_keep(t, at + i, 8, ranges_clock(t)));
}

static void those_that_are_not_kept_make_room_at_once(void **state)
{
	unsigned int all, pending;
	size_t i;

	for (i = 0; i < 4 * MAX; i++)
		assert_false(ranges_keep(t, at + i, 8, 0));
	ranges_count(t, &all, &pending);
	assert_in_range(all, 1, MAX);
	assert_int_equal(pending, 0);
}

static void what_cannot_be_watched_is_not_kept(void **state)
{
	unsigned int all, pending;
	/* Below what a process may map: no other thread comes to have it. */
	char *const gone = (char *)4096;
	int i;

	for (i = 0; i < 3; i++) {
		assert_false(ranges_keep(t, gone, LEN, ranges_clock(t)));
		assert_false(ranges_keep(t, at, 0, ranges_clock(t)));
		assert_false(ranges_keep(t, (void *)(UINTPTR_MAX - 10), LEN, ranges_clock(t)));
	}
	ranges_count(t, &all, &pending);
	assert_int_equal(all, 0);
}

static void all_are_forgotten_with_the_last_cache(void **state)
{
	unsigned int all, pending;
	struct span out[1];
	char *other = map();

	keep();
	keep();
	ranges_keep(t, other, LEN, ranges_clock(t));
	ranges_keep(t, other, LEN, ranges_clock(t));
	munmap(other, LEN);
	munmap(at, LEN);
	assert_false(ranges_valid(t, at, LEN));
	/* One is told of just now. */
	assert_int_equal(ranges_wait(t, out, 1), 1);
	ranges_forget(t);
	ranges_stop(t);
	assert_int_equal(ranges_wait(t, out, 1), 0);
	ranges_count(t, &all, &pending);
	assert_int_equal(all, 0);
	assert_int_equal(pending, 0);
	at = map();
	assert_false(keep());
	while (!keep())
		;
}

static void in_a_child_none_is_kept(void **state)
{
	pid_t pid;

	keep();
	assert_true(keep());
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* By a fork() that runs no handlers, and by one that does. */
		CHILD_CHECK(!ranges_valid(t, at, LEN));
		CHILD_CHECK(!keep() && !keep());
		ranges_after_fork(t);
		CHILD_CHECK(!ranges_valid(t, at, LEN));
		CHILD_CHECK(!keep() && !keep());
		/* It closes the domain that it has inherited. */
		ranges_forget(t);
		_exit(0);
	}
	ended_well(pid);
	assert_true(ranges_valid(t, at, LEN));
}

static void without_a_notifier_none_is_kept(void **state)
{
	struct ranges *none;

	assert_int_equal(ranges_open(NULL, 0, &none), 0);
	assert_false(ranges_keep(none, at, LEN, 1));
	assert_false(ranges_keep(none, at, LEN, 1));
	assert_false(ranges_valid(none, at, LEN));
	ranges_forget(none);
	ranges_close(none);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, begin, end)
#include "test_ranges.cases.h"
