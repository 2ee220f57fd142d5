// SPDX-License-Identifier: BSD-2-Clause
/*
 * The number of the process's mappings that watching may cost. The tests set
 * vm.max_map_count, so that few mappings are many.
 */
#include "notifier.h"

#include <kedge/hooks.h>

#include "notify/announce/budget.h"

#define MANY  4000 /* mappings at the most: a 20th is 200 seams */
#define PAIRS 400

static uint32_t max_map_count;

uint32_t budget_max_map_count(void)
{
	return max_map_count;
}

static char *mem;
static uint64_t cookie;

static int open_with(uint32_t flags)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd",
					 .flags = flags };

	max_map_count = MANY;
	mem = new_pages(4 * PAIRS);
	if (kedge_notifier_open(&o, &nf) ||
	    kedge_watch_add(nf, mem, 1, ++cookie))
		return -1;
	/* Now what the notifier maps for itself is there. */
	return kedge_watch_remove(nf, cookie);
}

static int setup(void **state)
{
	return open_with(0);
}

static int setup_exact(void **state)
{
	return open_with(KEDGE_NOTIFIER_EXACT_RANGES);
}

static char *page(int i)
{
	return mem + (size_t)i * page_len();
}

static int watch(int i, int cnt)
{
	return kedge_watch_add(nf, page(i), cnt * page_len(), ++cookie);
}

/* Pieces of two pages with holes of two between them. */
static void with_holes(void)
{
	int i;

	for (i = 0; i < PAIRS; i++)
		assert_int_equal(munmap(page(4 * i + 2), 2 * page_len()), 0);
}

/* All of one mapping, watched bit by bit, is one interval. */
static void one_mapping_costs_nothing(void **state)
{
	unsigned int before = map_lines();
	int i;

	for (i = 0; i < PAIRS; i++)
		assert_int_equal(watch(4 * i, 1), 0);
	assert_in_range(map_lines(), 0, before + 4);
}

/* Separate mappings are no seams, however many. */
static void mappings_with_holes_are_watched(void **state)
{
	int i;

	with_holes();
	for (i = 0; i < PAIRS; i++)
		assert_int_equal(watch(4 * i, 2), 0);
}

/* Unless they, and what may be put between them, come near the limit. */
static void near_the_limit_new_intervals_are_refused(void **state)
{
	int i, refused = 0, rc;

	with_holes();
	max_map_count = map_lines() + PAIRS;
	for (i = 0; i < PAIRS; i++) {
		rc = watch(4 * i, 2);
		assert_true(!rc || rc == -ENOSPC);
		refused += rc != 0;
	}
	assert_in_range(refused, PAIRS / 4, PAIRS - 1);
	/* A range watched already may be watched again. */
	assert_int_equal(watch(0, 1), 0);
	/* With room again, after as many refusals as it takes to look. */
	max_map_count = MANY;
	for (i = 0; i < MANY && watch(4 * (PAIRS - 1), 2); i++)
		;
	assert_in_range(i, 0, MANY - 1);
}

/* New memory in the holes is a neighbour, and is taken in. */
static void neighbours_are_taken_in(void **state)
{
	unsigned int before;
	int i;

	with_holes();
	for (i = 0; i < PAIRS; i += 2)
		assert_int_equal(watch(4 * i, 2), 0);
	/* Untouched, so that they can melt. */
	for (i = 0; i < PAIRS; i++)
		assert_ptr_not_equal(mmap(page(4 * i + 2), 2 * page_len(),
					  PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS |
						  MAP_FIXED_NOREPLACE,
					  -1, 0), MAP_FAILED);
	before = map_lines();
	for (i = 1; i < PAIRS; i += 2)
		assert_int_equal(watch(4 * i, 2), 0);
	assert_in_range(map_lines(), 1, before - PAIRS / 2);
}

/* Each is a mapping, and seams are what the budget is for. */
static void exact_ranges_are_bounded(void **state)
{
	unsigned int before = map_lines();
	int i, refused = 0, rc;

	for (i = 0; i < PAIRS; i++) {
		rc = watch(4 * i, 2);
		assert_true(!rc || rc == -ENOSPC);
		refused += rc != 0;
	}
	assert_in_range(refused, 1, PAIRS - MANY / 50);
	assert_in_range(map_lines(), before, before + MANY / 20 + 4);
	/* One beside another is no interval more. */
	assert_int_equal(watch(2, 1), 0);
}

static void exact_ranges_are_exact(void **state)
{
	unsigned int before = map_lines();
	struct kedge_hook hook;

	assert_int_equal(watch(8, 4), 0);
	assert_int_equal(map_lines(), before + 2);
	/* Memory that failed to go away is watched as before, and no more than that. */
	kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, page(0), 10 * page_len());
	kedge_hook_end(&hook);
	assert_int_equal(map_lines(), before + 2);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, page(0), 10 * page_len());
	kedge_hook_end(&hook);
	assert_int_equal(map_lines(), before + 2);
	assert_int_equal(kedge_watch_remove(nf, cookie), 0);
	assert_int_equal(map_lines(), before);
}

/* A call of the application has failed: all is let go, if that is why. */
static void near_the_limit_all_is_let_go(void **state)
{
	struct kedge_event ev[2];
	unsigned int before;
	int i;

	before = map_lines();
	assert_int_equal(kedge_hook_relieve(), 0); /* there is nothing */
	assert_int_equal(watch(8, 4), 0);
	assert_int_equal(kedge_hook_relieve(), 0); /* there is room */
	max_map_count = map_lines() + 2;
	errno = ENOMEM;
	assert_int_equal(kedge_hook_relieve(), 1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(map_lines(), before);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_UNMAP);
	assert_int_equal(kedge_hook_relieve(), 0);
	/* Nor is it taken again at once. */
	assert_int_equal(watch(16, 4), -ENOSPC);
	max_map_count = MANY;
	for (i = 0; i < MANY && watch(16, 4); i++)
		;
	assert_in_range(i, 0, MANY / 20);
}

#define EXACT(name) cmocka_unit_test_setup_teardown(name, setup_exact, nf_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		NF_CASE(one_mapping_costs_nothing),
		NF_CASE(mappings_with_holes_are_watched),
		NF_CASE(near_the_limit_new_intervals_are_refused),
		NF_CASE(neighbours_are_taken_in),
		EXACT(exact_ranges_are_bounded),
		EXACT(exact_ranges_are_exact),
		EXACT(near_the_limit_all_is_let_go),
	};

	return RUN_WITH_UFFD(tests);
}
