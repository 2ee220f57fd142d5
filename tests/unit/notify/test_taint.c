// SPDX-License-Identifier: BSD-2-Clause
/* Taints: what covers what, and which are over when. */
#include "cases.h"
#include "notify/internal.h"

static struct kedge_notifier nf;

static int setup(void **state)
{
	memset(&nf, 0, sizeof(nf));
	return 0;
}

static void add(uint64_t first, uint64_t cnt)
{
	taint_add(&nf, first << 12, (first + cnt) << 12);
}

static bool tainted(uint64_t first, uint64_t cnt)
{
	return taint_serial(&nf, first << 12, (first + cnt) << 12);
}

static void covers_its_pages_and_no_more(void **state)
{
	add(10, 5);
	assert_true(tainted(10, 1));
	assert_true(tainted(14, 1));
	assert_true(tainted(0, 11));
	assert_false(tainted(9, 1));
	assert_false(tainted(15, 1));
}

static void ends_by_its_number(void **state)
{
	add(10, 5);
	add(20, 5);
	assert_int_equal(nf.taint_serial, 2);
	taint_expire(&nf, 1);
	assert_false(tainted(10, 5));
	assert_true(tainted(20, 5));
	taint_expire(&nf, 2);
	assert_int_equal(nf.taint_cnt, 0);
}

/* The range is asked for the latest of all that are in it. */
static void the_latest_counts(void **state)
{
	add(10, 2);
	add(20, 2);
	add(12, 2);
	assert_int_equal(taint_serial(&nf, 10 << 12, 24 << 12), 3);
	assert_int_equal(taint_serial(&nf, 20 << 12, 24 << 12), 2);
}

/* Announced again while the first may still be under way. */
static void an_older_one_within_goes_with_the_newer(void **state)
{
	add(10, 5);
	add(12, 1);
	taint_expire(&nf, 1);
	assert_true(tainted(12, 1));
	taint_expire(&nf, 2);
	assert_false(tainted(10, 5));
}

/* More than there is room for: none is forgotten. */
static void a_full_table_forgets_none(void **state)
{
	unsigned int i, cnt = 3 * TAINT_MAX;

	for (i = 0; i < cnt; i++)
		add(100 * (uint64_t)i, 1);
	assert_int_equal(nf.taint_cnt, TAINT_MAX);
	for (i = 0; i < cnt; i++)
		assert_true(tainted(100 * (uint64_t)i, 1));
	taint_expire(&nf, cnt - 1);
	assert_true(tainted(100 * (uint64_t)(cnt - 1), 1));
	taint_expire(&nf, cnt);
	assert_int_equal(nf.taint_cnt, 0);
}

static void the_same_again_takes_no_room(void **state)
{
	unsigned int i;

	for (i = 0; i < 1000; i++)
		add(10, 1 + i % 8);
	assert_int_equal(nf.taint_cnt, 1);
	assert_true(tainted(10, 8));
	assert_false(tainted(18, 1));
	taint_expire(&nf, 999);
	assert_true(tainted(10, 8));
}

#define LISTED(f) cmocka_unit_test_setup(f, setup)
#include "test_taint.cases.h"
