// SPDX-License-Identifier: BSD-2-Clause
/* The calls of a thread, and which of them count for a later one. */
#include "cases.h"
#include "sight.h"

#define TOP 10000

/* Each test is a thread's first. */
static void forget(void)
{
	sight_before(UINTPTR_MAX);
}

static void the_first_call_has_none_before_it(void **state)
{
	forget();
	assert_int_equal(sight_before(TOP), 0);
}

static void a_call_from_the_same_depth_counts(void **state)
{
	forget();
	sight_note(TOP, 5);
	assert_int_equal(sight_before(TOP), 5);
	sight_note(TOP, 7);
	assert_int_equal(sight_before(TOP), 7);
}

/* It may be a registration within the one that is told of now. */
static void a_deeper_call_does_not_count(void **state)
{
	forget();
	sight_note(TOP - 100, 5);
	assert_int_equal(sight_before(TOP), 0);
}

static void a_shallower_call_counts_behind_deeper_ones(void **state)
{
	forget();
	sight_note(TOP, 3);
	sight_note(TOP - 100, 5);
	sight_note(TOP - 50, 6);
	assert_int_equal(sight_before(TOP), 3);
	/* The deeper ones are forgotten. */
	assert_int_equal(sight_before(TOP - 100), 3);
}

static void a_deep_call_has_the_latest_of_those_above(void **state)
{
	uintptr_t at;

	forget();
	for (at = 0; at < 5; at++)
		sight_note(TOP - at * 10, at + 1);
	assert_int_equal(sight_before(TOP - 100), 5);
	assert_int_equal(sight_before(TOP - 35), 4);
	assert_int_equal(sight_before(TOP), 1);
}

/* With fewer a registration is made once more, and none is kept that should not be. */
static void what_is_too_many_is_forgotten_from_the_shallow_end(void **state)
{
	uintptr_t at;

	forget();
	for (at = 0; at < 20; at++)
		sight_note(TOP - at * 10, at + 1);
	assert_int_equal(sight_before(TOP - 190), 20);
	assert_int_equal(sight_before(TOP - 150), 16);
	assert_int_equal(sight_before(TOP), 0);
}

#define LISTED PLAIN
#include "test_sight.cases.h"
