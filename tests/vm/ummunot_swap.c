// SPDX-License-Identifier: BSD-2-Clause
/*
 * UMMUNOT_SWAP_PAGES, in a guest whose kernel has it, as root: bytes, page frames,
 * pins, what is refused, and what the kernel does with the pages afterwards.
 * Exits with 77 where the kernel lacks it.
 */
#include "swap_memory.h"

static void swapped(char *a, char *b, size_t len)
{
	assert_int_equal(um_swap(node, a, b, len), 0);
}

/* Fill, swap, look, and swap back; frames too where each page is its own. */
static void both_ways(char *a, char *b, size_t len)
{
	size_t pages = len / PAGE, i;
	uint64_t *fa = frames(a, len), *fb = frames(b, len);
	uint64_t *na, *nb;

	mem_fill(a, len, 'a');
	mem_fill(b, len, 'b');
	free(fa);
	free(fb);
	fa = frames(a, len);
	fb = frames(b, len);
	swapped(a, b, len);
	na = frames(a, len);
	nb = frames(b, len);
	for (i = 0; i < pages; i++) {
		assert_int_equal(na[i], fb[i]);
		assert_int_equal(nb[i], fa[i]);
	}
	mem_expect(a, len, 'b');
	mem_expect(b, len, 'a');
	swapped(b, a, len);
	mem_expect(a, len, 'a');
	mem_expect(b, len, 'b');
	free(fa);
	free(fb);
	free(na);
	free(nb);
}

static void single_pages_change_places(void **state)
{
	static const size_t lens[] = { 1, 2, 15, 16, 17, 511, 512, 513, 1300 };
	size_t i;

	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		size_t len = lens[i] * PAGE, room = len + 2 * HUGE;
		char *a = mem_map(room, MADV_NOHUGEPAGE);
		char *b = mem_map(room, MADV_NOHUGEPAGE);

		both_ways(a, b, len);
		both_ways(a + 3 * PAGE, b + HUGE - PAGE, len);
		munmap(a, room);
		munmap(b, room);
	}
}

static void ranges_of_one_mapping_change_places(void **state)
{
	char *a = mem_map(8 * HUGE, MADV_NOHUGEPAGE);

	both_ways(a, a + PAGE, PAGE);
	both_ways(a + 5 * PAGE, a, 5 * PAGE);
	both_ways(a, a + 4 * HUGE, 4 * HUGE);
	both_ways(a + PAGE, a + 4 * HUGE + 7 * PAGE, 3 * HUGE);
	munmap(a, 8 * HUGE);
}

static void huge_pages_change_places_whole(void **state)
{
	char *a = mem_map(4 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(4 * HUGE, MADV_HUGEPAGE);

	both_ways(a, b, 4 * HUGE);
	assert_int_equal(mem_huge_kib(a), 4 * HUGE / 1024);
	assert_int_equal(mem_huge_kib(b), 4 * HUGE / 1024);
	munmap(a, 4 * HUGE);
	mem_expect(b, 4 * HUGE, 'b');
	munmap(b, 4 * HUGE);
}

static void a_huge_page_changes_places_with_single_ones(void **state)
{
	char *a = mem_map(2 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(2 * HUGE, MADV_NOHUGEPAGE);

	both_ways(a, b, 2 * HUGE);
	swapped(a, b, 2 * HUGE);
	assert_int_equal(mem_huge_kib(b), 2 * HUGE / 1024);
	munmap(b, 2 * HUGE);
	mem_expect(a, 2 * HUGE, 'b');
	munmap(a, 2 * HUGE);
}

static void huge_pages_are_split_where_they_must_be(void **state)
{
	char *a = mem_map(4 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(4 * HUGE, MADV_HUGEPAGE);

	mem_fill(a, 4 * HUGE, 'x');
	mem_fill(b, 4 * HUGE, 'y');
	both_ways(a + PAGE, b + PAGE, 3 * HUGE);
	both_ways(a, b + 5 * PAGE, 2 * HUGE);
	both_ways(a + HUGE / 2, b, HUGE / 2);
	munmap(a, 4 * HUGE);
	munmap(b, 4 * HUGE);
}

/* Of three pages, one is a's, the next b's, and the last nobody's. */
static void holes(int advice, size_t off_a, size_t off_b, size_t step)
{
	size_t len = 2 * HUGE + 64 * PAGE, room = len + HUGE, i;
	char *area_a = mem_map(room, advice), *a = area_a + off_a * PAGE;
	char *area_b = mem_map(room, advice), *b = area_b + off_b * PAGE;

	for (i = 0; i < len / PAGE; i += step) {
		if (i % 3 == 1)
			a[i * PAGE] = (char)(1 + i % 50);
		if (i % 3 == 2)
			b[i * PAGE] = (char)(1 + i % 50);
	}
	swapped(a, b, len);
	for (i = 0; i < len / PAGE; i += step) {
		assert_int_equal(b[i * PAGE], i % 3 == 1 ? 1 + i % 50 : 0);
		assert_int_equal(a[i * PAGE], i % 3 == 2 ? 1 + i % 50 : 0);
	}
	munmap(area_a, room);
	munmap(area_b, room);
}

static void a_hole_is_exchanged_for_a_page(void **state)
{
	holes(MADV_HUGEPAGE, 0, 0, 128);
	holes(MADV_NOHUGEPAGE, 0, 0, 1);
	holes(MADV_HUGEPAGE, 3, 3, 128);
	holes(MADV_NOHUGEPAGE, 3, 3, 1);
	holes(MADV_HUGEPAGE, 0, 5, 128);
	holes(MADV_NOHUGEPAGE, 0, 5, 1);
}

static void untouched_ranges_stay_so(void **state)
{
	char *a = mem_map(4 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(4 * HUGE, MADV_HUGEPAGE);
	size_t i;
	uint64_t *f;

	swapped(a, b, 4 * HUGE);
	swapped(a + PAGE, b, 3 * HUGE);
	f = frames(a, 4 * HUGE);
	for (i = 0; i < 4 * HUGE / PAGE; i++)
		assert_int_equal(f[i], 0);
	free(f);
	/* Read only: the zero page, small and huge. */
	for (i = 0; i < 4 * HUGE; i += PAGE)
		assert_int_equal(((volatile char *)a)[i], 0);
	memset(b, 7, 4 * HUGE);
	swapped(a, b, 4 * HUGE);
	for (i = 0; i < 4 * HUGE; i += PAGE) {
		assert_int_equal(a[i], 7);
		assert_int_equal(b[i], 0);
	}
	swapped(a + PAGE, b, 3 * HUGE);
	assert_int_equal(a[0], 7);
	assert_int_equal(a[PAGE], 0);
	assert_int_equal(b[3 * HUGE - PAGE], 7);
	b[HUGE] = 1;
	a[PAGE] = 1;
	munmap(a, 4 * HUGE);
	munmap(b, 4 * HUGE);
}

static void a_whole_gib_is_taken(void **state)
{
	size_t gib = 1ul << 30, room = gib + HUGE;
	char *a = mem_map(room, MADV_HUGEPAGE), *b = mem_map(room, MADV_HUGEPAGE);

	a[gib / 2] = 1;
	b[gib - 1] = 2;
	swapped(a, b, gib);
	assert_int_equal(b[gib / 2], 1);
	assert_int_equal(a[gib - 1], 2);
	swapped(a + PAGE, b, gib);
	assert_int_equal(a[gib / 2 + PAGE], 1);
	assert_int_equal(um_swap(node, a, b, gib + PAGE), -E2BIG);
	munmap(a, room);
	munmap(b, room);
}

/* ---- afterwards ---- */

static void written_by_the_child(char *a, char *b, size_t len)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		mem_fill(a, len, 'c');
		_exit(mem_has(a, len, 'c') && mem_has(b, len, 'a') ? 0 : 1);
	}
	assert_int_equal(um_swap(node, a, b, len), -EMLINK);
	b[0] ^= 1;
	b[0] ^= 1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	mem_expect(a, len, 'b');
	mem_expect(b, len, 'a');
}

/* Until the parent has written to them, the kernel does not know them unshared. */
static void a_child_has_its_own_afterwards(void **state)
{
	int advice[] = { MADV_NOHUGEPAGE, MADV_HUGEPAGE };
	int i;

	for (i = 0; i < 2; i++) {
		char *a = mem_map(2 * HUGE, advice[i]);
		char *b = mem_map(2 * HUGE, advice[i]);

		mem_fill(a, 2 * HUGE, 'a');
		mem_fill(b, 2 * HUGE, 'b');
		swapped(a, b, 2 * HUGE);
		written_by_the_child(a, b, 2 * HUGE);
		both_ways(a, b, 2 * HUGE);
		both_ways(a, b + PAGE, HUGE);
		munmap(a, 2 * HUGE);
		munmap(b, 2 * HUGE);
	}
}

static int swap_in_child(void *arg)
{
	char **p = arg;

	close(node);
	node = open("/dev/ummunot", O_RDONLY | O_CLOEXEC);
	mem_fill(p[0], HUGE, 'e');
	mem_fill(p[1], HUGE, 'f');
	if (um_swap(node, p[0], p[1], HUGE))
		return 1;
	return !mem_has(p[0], HUGE, 'f') || !mem_has(p[1], HUGE, 'e');
}

static void a_child_may_swap_its_own(void **state)
{
	char *p[2] = { mem_map(HUGE, MADV_NOHUGEPAGE),
		       mem_map(HUGE, MADV_NOHUGEPAGE) };

	mem_fill(p[0], HUGE, 'a');
	mem_fill(p[1], HUGE, 'b');
	assert_int_equal(vm_child(swap_in_child, p), 0);
	mem_expect(p[0], HUGE, 'a');
	mem_expect(p[1], HUGE, 'b');
	munmap(p[0], HUGE);
	munmap(p[1], HUGE);
}

/* Reclaim finds entries by the folios: at their new places. */
static void pages_go_out_and_come_back(void **state)
{
	int advice[] = { MADV_NOHUGEPAGE, MADV_HUGEPAGE };
	size_t len = 2 * HUGE, out;
	int i;

	if (!mem_swap_on())
		skip();
	for (i = 0; i < 2; i++) {
		char *a = mem_map(len, advice[i]), *b = mem_map(len, advice[i]);

		both_ways(a, b, len);
		swapped(a, b, len);
		madvise(a, len, MADV_PAGEOUT);
		out = mem_swapped(a, len);
		madvise(b, len, MADV_PAGEOUT);
		out += mem_swapped(b, len);
		assert_true(out > len / PAGE);
		/* Pages that are out come in. */
		swapped(a, b, len / 2);
		mem_expect(a, len / 2, 'a');
		mem_expect(b, len / 2, 'b');
		assert_true(mem_has_at(a, len / 2, len / 2, 'b'));
		munmap(a, len);
		munmap(b, len);
	}
}

static void they_are_found_by_compaction(void **state)
{
	size_t len = 4 * HUGE, moved = 0, i;
	char *a = mem_map(len, MADV_NOHUGEPAGE);
	char *b = mem_map(len, MADV_NOHUGEPAGE);
	uint64_t *before, *after;

	mem_fill(a, len, 'a');
	mem_fill(b, len, 'b');
	for (i = 0; i < len; i += 4 * PAGE)
		madvise(a + i, PAGE, MADV_DONTNEED);
	swapped(a, b, len);
	before = frames(b, len);
	vm_write("/proc/sys/vm/compact_memory", "1");
	after = frames(b, len);
	for (i = 0; i < len / PAGE; i++) {
		moved += before[i] != after[i];
		assert_int_equal(b[i * PAGE + 8], i % 4 ? 'a' : 0);
	}
	mem_expect(a, len, 'b');
	print_message("%zu of %zu pages were migrated\n", moved, len / PAGE);
	free(before);
	free(after);
	munmap(a, len);
	munmap(b, len);
}

/* The kernel's own splitter finds huge pages where they are now. */
static void they_are_found_by_a_split(void **state)
{
	char *a = mem_map(2 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(2 * HUGE, MADV_HUGEPAGE);
	char line[96];

	both_ways(a, b, 2 * HUGE);
	swapped(a, b, 2 * HUGE);
	snprintf(line, sizeof(line), "%d,0x%lx,0x%lx", getpid(),
		 (unsigned long)a, (unsigned long)a + 2 * HUGE);
	if (vm_write("/sys/kernel/debug/split_huge_pages", line))
		skip();
	assert_int_equal(mem_huge_kib(a), 0);
	mem_expect(a, 2 * HUGE, 'b');
	mem_expect(b, 2 * HUGE, 'a');
	munmap(a, 2 * HUGE);
	munmap(b, 2 * HUGE);
}

static void mremap_takes_them_on(void **state)
{
	char *a = mem_map(2 * HUGE, MADV_HUGEPAGE);
	char *b = mem_map(2 * HUGE, MADV_NOHUGEPAGE);
	char *to = mem_map(2 * HUGE, MADV_NOHUGEPAGE);

	both_ways(a, b, 2 * HUGE);
	swapped(a, b, 2 * HUGE);
	assert_ptr_equal(mremap(b, 2 * HUGE, 2 * HUGE,
				MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
	mem_expect(to, 2 * HUGE, 'a');
	mem_expect(a, 2 * HUGE, 'b');
	assert_int_equal(um_swap(node, a, b, 2 * HUGE), -EFAULT);
	both_ways(a, to, 2 * HUGE);
	munmap(a, 2 * HUGE);
	munmap(to, 2 * HUGE);
}

static void soft_dirty_says_that_they_changed(void **state)
{
	char *a = mem_map(HUGE, MADV_NOHUGEPAGE);
	char *b = mem_map(HUGE, MADV_NOHUGEPAGE);

	mem_fill(a, HUGE, 'a');
	mem_fill(b, HUGE, 'b');
	if (vm_write("/proc/self/clear_refs", "4"))
		skip();
	assert_false(mem_pagemap(a) >> 55 & 1);
	swapped(a, b, PAGE);
	assert_true(mem_pagemap(a) >> 55 & 1);
	assert_true(mem_pagemap(b) >> 55 & 1);
	munmap(a, HUGE);
	munmap(b, HUGE);
}

/* ---- watches ---- */

static void watches_of_both_are_told(void **state)
{
	char *a = mem_map(HUGE, MADV_NOHUGEPAGE);
	char *b = mem_map(HUGE, MADV_NOHUGEPAGE);
	struct news n;
	struct um u;

	mem_fill(a, HUGE, 'a');
	um_open(&u, O_NONBLOCK);
	assert_int_equal(um_watch(&u, a, HUGE, 1, 0), 0);
	assert_int_equal(um_watch(&u, b, HUGE, 2, 0), 0);
	um_drain(&u, &n);
	/* One is not swapped. */
	swapped(a, b, PAGE);
	um_drain(&u, &n);
	assert_int_equal(n.cnt, 2);
	assert_int_equal(n.last, um_counter(&u));
	swapped(a + PAGE, a + 2 * PAGE, PAGE);
	um_drain(&u, &n);
	assert_int_equal(n.cnt, 1);
	assert_int_equal(n.cookie, 1);
	um_close(&u);
	munmap(a, HUGE);
	munmap(b, HUGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(single_pages_change_places),
		cmocka_unit_test(ranges_of_one_mapping_change_places),
		cmocka_unit_test(huge_pages_change_places_whole),
		cmocka_unit_test(a_huge_page_changes_places_with_single_ones),
		cmocka_unit_test(huge_pages_are_split_where_they_must_be),
		cmocka_unit_test(a_hole_is_exchanged_for_a_page),
		cmocka_unit_test(untouched_ranges_stay_so),
		cmocka_unit_test(a_whole_gib_is_taken),
		cmocka_unit_test(a_child_has_its_own_afterwards),
		cmocka_unit_test(a_child_may_swap_its_own),
		cmocka_unit_test(pages_go_out_and_come_back),
		cmocka_unit_test(they_are_found_by_compaction),
		cmocka_unit_test(they_are_found_by_a_split),
		cmocka_unit_test(mremap_takes_them_on),
		cmocka_unit_test(soft_dirty_says_that_they_changed),
		cmocka_unit_test(watches_of_both_are_told),
	};

	if (!mem_node())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
