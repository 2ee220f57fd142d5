// SPDX-License-Identifier: BSD-2-Clause
/*
 * Promises of the page swap to a user: data, attributes, nothing left behind.
 */
#include "clock.h"
#include "swap_mem.h"

/* ---- data ---- */

static void each_address_has_the_other_ones_data(void **state)
{
	size_t len = 600 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	size_t off;

	need_way();
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	expect_stamps(a, 2, b, 1, len);
	/* And back, page after page. */
	for (off = 0; off < len; off += page_len())
		assert_int_equal(kedge_page_swap_with(a + off, b + off,
						      page_len(), way), 0);
	expect_stamps(a, 1, b, 2, len);
}

static void not_congruent_ranges_are_swapped_as_well(void **state)
{
	size_t page = page_len(), len = 700 * page;
	char *a = small_area(len, 1), *b = small_area(len + 3 * page, 2);
	int i;

	need_way();
	for (i = 0; i < 2; i++) {
		assert_int_equal(kedge_page_swap_with(a, b + page, len, way),
				 0);
		stamp(b + page, len, 4);
		assert_true(zeros(a + 8, 8));
	}
	assert_true(stamped(a, len, 4));
	assert_true(stamped(b, page, 2));
}

static void ranges_that_touch_are_swapped(void **state)
{
	size_t len = 16 * page_len();
	char *a = small_area(2 * len, 1);

	need_way();
	stamp(a + len, len, 2);
	assert_int_equal(kedge_page_swap_with(a, a + len, len, way), 0);
	assert_true(stamped(a, len, 2));
	assert_true(stamped(a + len, len, 1));
	assert_int_equal(kedge_page_swap_with(a + len, a, len, way), 0);
	assert_true(stamped(a, len, 1));
}

static void what_has_no_page_gives_none(void **state)
{
	size_t page = page_len(), len = 8 * page;
	char *a = small_area(len, 1), *b = small_area(len, 2);
	unsigned char in[8];

	need_way();
	madvise(a + page, page, MADV_DONTNEED);
	madvise(b + 2 * page, page, MADV_DONTNEED);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_int_equal(mincore(b, len, in), 0);
	assert_false(in[1] & 1);
	assert_int_equal(mincore(a, len, in), 0);
	assert_false(in[2] & 1);
	assert_true(zeros(b + page, page));
	assert_true(zeros(a + 2 * page, page));
	expect_stamps(a, 2, b, 1, page);
}

static void never_touched_memory_is_swapped(void **state)
{
	size_t len = 2 * pages_huge_len();
	char *a = area(len), *b = area(len);

	need_way();
	stamp(b, len, 2);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_true(stamped(a, len, 2));
	assert_true(zeros(b, len));
}

static void need_huge(char *p, size_t len)
{
	if (smaps_of(p, "AnonHugePages") * 1024 == (long)len)
		return;
	print_message("skipped: the kernel gave no huge pages\n");
	skip();
}

static void huge_pages_stay_huge(void **state)
{
	size_t len = 3 * pages_huge_len();
	char *a = huge_area(len, 1), *b = huge_area(len, 2);

	need_way();
	need_huge(a, len);
	need_huge(b, len);
	assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	expect_stamps(a, 2, b, 1, len);
	need_huge(a, len);
	need_huge(b, len);
}

/* As a message lands: huge pages come where none were, or single ones. */
static void huge_pages_land_whole(void **state)
{
	size_t len = 2 * pages_huge_len();
	char *fresh = area(len), *landing = huge_area(len, 2);

	need_way();
	need_huge(landing, len);
	assert_int_equal(pages_land(fresh, landing, len, 0), 0);
	assert_true(stamped(fresh, len, 2));
	assert_int_equal(smaps_of(fresh, "AnonHugePages") * 1024, len);
	assert_int_equal(smaps_of(landing, "AnonHugePages"), 0);
	/* Back again, by the same way. */
	assert_int_equal(pages_land(landing, fresh, len, 0), 0);
	assert_true(stamped(landing, len, 2));
	assert_int_equal(smaps_of(landing, "AnonHugePages") * 1024, len);
}

static long page_tables(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmPTE: %ld", &kib);
	fclose(f);
	return kib;
}

/* Tries if MADV_DONTNEED takes away page tables that it has emptied. */
static bool tables_go(void)
{
	size_t len = 16 * pages_huge_len(), i;
	char *p = area(len);
	long before;

	madvise(p, len, MADV_NOHUGEPAGE);
	for (i = 0; i < len; i += pages_huge_len())
		p[i] = 1;
	before = page_tables();
	madvise(p, len, MADV_DONTNEED);
	i = page_tables() < before;
	area_free(p, len);
	return i;
}

static void huge_pages_land_whole_on_single_ones(void **state)
{
	size_t len = 2 * pages_huge_len();
	char *used = small_area(len, 1), *landing = huge_area(len, 2);

	need_way();
	need_huge(landing, len);
	skip_if(!tables_go(), "this kernel keeps page tables");
	assert_int_equal(pages_land(used, landing, len, 0), 0);
	expect_stamps(used, 2, landing, 1, len);
	assert_int_equal(smaps_of(used, "AnonHugePages") * 1024, len);
}

static void a_cut_huge_page_keeps_its_rest(void **state)
{
	size_t page = page_len(), h = pages_huge_len(), len = h + 6 * page;
	char *a = huge_area(3 * h, 1), *b = huge_area(3 * h, 2);
	char *pa = a + h - 3 * page, *pb = b + h - 3 * page;
	size_t i;

	need_way();
	assert_int_equal(kedge_page_swap_with(pa, pb, len, way), 0);
	for (i = 0; i < 3 * h; i += page) {
		bool in = a + i >= pa && a + i < pa + len;

		assert_int_equal(*(uint64_t *)(a + i),
				 stamp_of(in ? 2 : 1, i / page));
		assert_int_equal(*(uint64_t *)(b + i),
				 stamp_of(in ? 1 : 2, i / page));
	}
}

/* ---- random ranges against a model ---- */

static uint64_t rnd(uint64_t *s)
{
	*s = *s * 6364136223846793005ull + 1442695040888963407ull;
	return *s >> 33;
}

#define ARENA 2200 /* pages: more than four huge ones */

static void swap_model(uint64_t *m, size_t a, size_t b, size_t n)
{
	while (n--) {
		uint64_t t = m[a + n];

		m[a + n] = m[b + n];
		m[b + n] = t;
	}
}

static void mess(char *p, uint64_t *m, uint64_t *s)
{
	size_t page = page_len(), at = rnd(s) % ARENA, n = rnd(s) % 700, i;

	if (n > ARENA - at)
		n = ARENA - at;
	switch (rnd(s) % 4) {
	case 0:
		madvise(p + at * page, n * page, MADV_DONTNEED);
		memset(m + at, 0, n * sizeof(*m));
		break;
	case 1:
		for (i = at; i < at + n; i++) {
			m[i] = rnd(s);
			*(uint64_t *)(p + i * page) = m[i];
		}
		break;
	case 2: /* zero pages */
		for (i = at; i < at + n; i++)
			(void)*(volatile char *)(p + i * page);
		break;
	case 3:
		madvise(p + at * page, n * page, 25 /* MADV_COLLAPSE */);
		break;
	}
}

static void any_ranges_agree_with_a_model(void **state)
{
	static uint64_t m[ARENA];
	size_t page = page_len(), i, a, b, n;
	char *p = area(ARENA * page);
	uint64_t s = 42;
	int round;

	need_way();
	madvise(p, ARENA * page, MADV_HUGEPAGE);
	memset(m, 0, sizeof(m));
	for (round = 0; round < 400; round++) {
		mess(p, m, &s);
		a = rnd(&s) % ARENA;
		b = rnd(&s) % 3 ? a + 512 * (1 + rnd(&s) % 3) : rnd(&s) % ARENA;
		n = 1 + rnd(&s) % 600;
		if (a + n > ARENA || b + n > ARENA || (a < b + n && b < a + n))
			continue;
		if (kedge_page_swap(p + a * page, p + b * page, n * page))
			fail_msg("round %d: %zu, %zu + %zu: %s", round, a, b, n,
				 kedge_strerror(-EBUSY));
		swap_model(m, a, b, n);
		for (i = 0; i < ARENA; i++)
			if (*(uint64_t *)(p + i * page) != m[i] && m[i])
				fail_msg("round %d, page %zu", round, i);
	}
}

/* ---- what belongs to the addresses, and what is left ---- */

static void mappings_keep_their_attributes(void **state)
{
	size_t len = 64 * page_len();
	char *a = area(len), *b = area(len);
	unsigned int before;

	need_way();
	madvise(a, len, MADV_HUGEPAGE);
	madvise(a, len, MADV_DONTDUMP);
	madvise(b, len, MADV_NOHUGEPAGE);
	madvise(b, len, MADV_DONTFORK);
	stamp(a, len, 1);
	stamp(b, len, 2);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	before = map_lines();
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_int_equal(kedge_page_swap(a + page_len(), b + 7 * page_len(),
					 5 * page_len()), 0);
	assert_int_equal(map_lines(), before);
	assert_int_equal(smaps_of(a, "hg"), 1);
	assert_int_equal(smaps_of(a, "dd"), 1);
	assert_int_equal(smaps_of(a, "dc"), 0);
	assert_int_equal(smaps_of(b, "nh"), 1);
	assert_int_equal(smaps_of(b, "dc"), 1);
	assert_int_equal(smaps_of(b, "dd"), 0);
	assert_int_equal(smaps_of(b, "um"), 0);
}

static void mremap_refuses_mappings_that_differ(void **state)
{
	size_t len = 16 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);

	assert_int_equal(madvise(a, len, MADV_DONTDUMP), 0);
	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP),
			 -EOPNOTSUPP);
	assert_non_null(strstr(kedge_strerror(-EOPNOTSUPP), "VmFlags"));
	expect_stamps(a, 1, b, 2, len);
}

static void several_mappings_in_a_range(void **state)
{
	size_t page = page_len(), len = 24 * page;
	char *a = small_area(len, 1), *b = small_area(len, 2);

	need_way();
	madvise(a + 3 * page, page, MADV_DONTDUMP);
	madvise(b + 9 * page, 4 * page, MADV_DONTDUMP);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	expect_stamps(a, 2, b, 1, len);
	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_REMAP),
			 -EOPNOTSUPP);
}

/* ---- processes and descriptors ---- */

static char *child_a, *child_b;

static int swap_in_child(void *arg)
{
	size_t len = 20 * page_len();

	/* They are shared with the parent: its own it has after writing. */
	stamp(child_a, len, 3);
	stamp(child_b, len, 4);
	CHILD_CHECK(!kedge_page_swap_with(child_a, child_b, len, way));
	CHILD_CHECK(stamped(child_a, len, 4));
	CHILD_CHECK(stamped(child_b, len, 3));
	return 0;
}

static void a_child_swaps_its_own_pages(void **state)
{
	size_t len = 20 * page_len();

	need_way();
	child_a = small_area(len, 1);
	child_b = small_area(len, 2);
	assert_int_equal(in_child(swap_in_child, NULL), 0);
	assert_int_equal(in_raw_child(swap_in_child, NULL), 0);
	expect_stamps(child_a, 1, child_b, 2, len);
	stamp(child_a, len, 1);
	stamp(child_b, len, 2);
	assert_int_equal(kedge_page_swap_with(child_a, child_b, len, way), 0);
	assert_true(stamped(child_a, len, 2));
}

static int close_all_and_swap(void *arg)
{
	size_t len = 20 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	int fds[8], i;

	CHILD_CHECK(!kedge_page_swap_with(a, b, len, way));
	closefrom(3);
	/* Others take the numbers. */
	for (i = 0; i < 8; i++)
		fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	CHILD_CHECK(!kedge_page_swap_with(a, b, len, way));
	CHILD_CHECK(stamped(a, len, 1));
	for (i = 0; i < 8; i++)
		CHILD_CHECK(!close(fds[i]));
	return 0;
}

static void descriptors_closed_by_others_are_replaced(void **state)
{
	need_way();
	assert_int_equal(in_child(close_all_and_swap, NULL), 0);
}

static void repeated_swaps_leave_nothing_behind(void **state)
{
	size_t len = 20 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	unsigned int fds, maps;
	int i;

	need_way();
	for (i = 0; i < 10; i++)
		assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	/* The thread that looks after moves has a stack, and ends in its own time. */
	MOVE_UNTIL(100, !has_watchdog());
	fds = open_fds();
	maps = map_lines();
	for (i = 0; i < 100; i++)
		assert_int_equal(kedge_page_swap_with(a, b, len, way), 0);
	assert_int_equal(open_fds(), fds);
	MOVE_UNTIL(100, !has_watchdog());
	assert_int_equal(map_lines(), maps);
}

/* ---- whichever is faster ---- */

static void either_way_is_good_enough(void **state)
{
	size_t len = 2 * pages_huge_len();
	char *a = area(len), *b = huge_area(len, 1);

	assert_int_equal(kedge_page_swap_with(a, b, len, KEDGE_SWAP_MOVE |
					      KEDGE_SWAP_REMAP),
			 0);
	assert_true(stamped(a, len, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(each_address_has_the_other_ones_data),
		EACH(not_congruent_ranges_are_swapped_as_well),
		EACH(ranges_that_touch_are_swapped),
		EACH(what_has_no_page_gives_none),
		EACH(never_touched_memory_is_swapped),
		MOVE(huge_pages_stay_huge),
		MOVE(huge_pages_land_whole),
		MOVE(huge_pages_land_whole_on_single_ones),
		EACH(a_cut_huge_page_keeps_its_rest),
		MOVE(any_ranges_agree_with_a_model),
		MOVE(mappings_keep_their_attributes),
		PLAIN(mremap_refuses_mappings_that_differ),
		MOVE(several_mappings_in_a_range),
		KEPT(a_child_swaps_its_own_pages),
		KEPT(descriptors_closed_by_others_are_replaced),
		EACH(repeated_swaps_leave_nothing_behind),
		PLAIN(either_way_is_good_enough),
	};

	test_clock_begin();
	return cmocka_run_group_tests_name("swap", tests, NULL, NULL);
}
