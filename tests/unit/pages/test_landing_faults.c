// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each step of joining the landing pool, and of taking blocks that are not mapped
 * yet, made to fail in turn: nothing is left behind, and next time it works.
 */
#include "core.h"
#include "fakes/faults.h"
#include "pages/landing.h"
#include "pages/swap.h"

#define MIB ((size_t)1 << 20)

static unsigned int threads, contexts_kept;
static long live;

static void begin(void)
{
	struct landing_member *p;
	struct landing l;

	/* Objects that are kept for good are there from now on. */
	assert_int_equal(landing_open(64 * MIB, NULL, &p), 0);
	assert_int_equal(landing_take(p, NULL, 2 * MIB, &l), 0);
	landing_give(p, &l, true);
	landing_close(p, true);
	contexts_kept = fault_contexts();
	threads = threads_now();
	live = fault_live();
}

static void nothing_is_left(int step)
{
	if (!threads_are(threads))
		fail_msg("step %d, %s: a thread", step, fault_name());
	/* The pool's thread and this one may have had one each at a time. */
	if (fault_contexts() != contexts_kept) {
		contexts_kept = fault_contexts();
		live = fault_live();
	}
	if (fault_live() != live)
		fail_msg("step %d, %s: %ld more allocations or mappings",
			 step, fault_name(), fault_live() - live);
}

static void every_step_of_joining(void **state)
{
	struct landing_member *const before = (struct landing_member *)0x1;
	int step = 0, errors = 0, rc, hit;
	struct landing_member *p;

	begin();
	do {
		step++;
		p = before;
		fault_at(step);
		rc = landing_open(4 * MIB, NULL, &p);
		hit = fault_hit();
		fault_at(0);
		if (rc)
			assert_ptr_equal(p, before);
		else
			landing_close(p, true);
		errors += !!rc;
		nothing_is_left(step);
	} while (hit);
	assert_int_equal(errors, 2);
}

/* A message that finds no extent that is long enough. */
static void every_step_of_a_landing(void **state)
{
	int step = 0, errors = 0, hit, rc;
	struct landing_member *p;
	struct landing l;

	begin();
	do {
		step++;
		assert_int_equal(landing_open(64 * MIB, NULL, &p), 0);
		assert_int_equal(landing_take(p, NULL, 2 * MIB, &l), 0);
		landing_give(p, &l, true);
		fault_at(step);
		rc = landing_take(p, NULL, 64 * MIB, &l);
		hit = fault_hit();
		fault_at(0);
		if (!rc)
			landing_give(p, &l, true);
		else
			assert_int_equal(rc, -EAGAIN);
		errors += !!rc;
		/* It is there the next time. */
		assert_int_equal(landing_take(p, NULL, 64 * MIB, &l), 0);
		landing_give(p, &l, true);
		landing_close(p, true);
		nothing_is_left(step);
	} while (hit);
	assert_int_equal(errors, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_step_of_joining),
		cmocka_unit_test(every_step_of_a_landing),
	};

	if (pages_huge_len() == page_len()) {
		puts("skipped: there are no huge pages");
		return 77;
	}
	return cmocka_run_group_tests_name("landing_faults", tests, NULL, NULL);
}
