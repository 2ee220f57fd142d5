// SPDX-License-Identifier: BSD-2-Clause
/*
 * Taints, with real pages: one ends when its witness has gone, and by nothing
 * else that takes pages near it.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "notify/internal.h"
#include "core.h"

#define PAGES 512u

static struct kedge_notifier nf;
static char *mem;

static uint64_t at(unsigned int page)
{
	return (uintptr_t)mem + page * (uint64_t)page_len();
}

static int set_up(void **state)
{
	memset(&nf, 0, sizeof(nf));
	nf.pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	assert_true(nf.pagemap_fd >= 0);
	fd_note(nf.pagemap_fd, &nf.pagemap_id);
	mem = new_pages(PAGES);
	memset(mem, 1, PAGES * page_len());
	return 0;
}

static int tear_down(void **state)
{
	close(nf.pagemap_fd);
	free_pages(mem, PAGES);
	return 0;
}

static void add(unsigned int first, unsigned int cnt)
{
	taint_add(&nf, at(first), at(first + cnt));
}

static bool tainted(unsigned int first, unsigned int cnt)
{
	taint_look(&nf);
	return taint_overlaps(&nf, at(first), at(first + cnt));
}

static void drop_pages(unsigned int first, unsigned int cnt)
{
	assert_int_equal(madvise((void *)(uintptr_t)at(first),
				 cnt * page_len(), MADV_DONTNEED), 0);
}

static void ends_when_its_pages_have_gone(void **state)
{
	add(10, 5);
	assert_true(tainted(10, 1));
	assert_true(tainted(14, 1));
	assert_false(tainted(9, 1));
	assert_false(tainted(15, 1));
	/* The walk goes upwards: it is not over before the last. */
	drop_pages(10, 4);
	assert_true(tainted(10, 1));
	drop_pages(14, 1);
	assert_false(tainted(10, 5));
	assert_int_equal(nf.taint_cnt, 0);
}

static void touched_again_it_stays_until_unmapped(void **state)
{
	add(10, 5);
	drop_pages(10, 5);
	mem[14 * page_len()] = 1;
	assert_true(tainted(10, 5));
	taint_cut(&nf, at(10), at(15));
	assert_false(tainted(10, 5));
}

static void what_another_call_takes_proves_nothing(void **state)
{
	add(10, 5);
	add(14, 1);
	drop_pages(14, 1);
	assert_true(tainted(10, 1));
	taint_cut(&nf, at(0), at(PAGES));
	add(20, 5);
	taint_no_witness(&nf, at(24), at(25));
	drop_pages(24, 1);
	assert_true(tainted(20, 1));
}

static void an_unmap_within_proves_nothing(void **state)
{
	add(10, 5);
	/* The witness' page, with more of the taint on both sides of it. */
	taint_cut(&nf, at(14), at(15));
	drop_pages(14, 1);
	assert_true(tainted(10, 4));
	assert_false(tainted(14, 1));
	add(20, 9);
	taint_cut(&nf, at(24), at(25));
	drop_pages(24, 1);
	assert_true(tainted(20, 4));
	assert_false(tainted(24, 1));
	assert_true(tainted(25, 4));
}

/* More than there is room for: all stay, whatever goes in between. */
static void a_full_table_forgets_none(void **state)
{
	unsigned int i, cnt = 3 * TAINT_MAX;

	for (i = 0; i < cnt; i++) {
		add(2 * i, 1);
		taint_no_witness(&nf, at(2 * i), at(2 * i + 1));
	}
	assert_true(nf.taint_cnt <= TAINT_MAX);
	add(2 * cnt, 1);
	/* Others' pages go, between them and above the newest. */
	for (i = 0; i < cnt; i++) {
		drop_pages(2 * i + 1, 1);
		taint_cut(&nf, at(2 * i + 1), at(2 * i + 2));
	}
	drop_pages(2 * cnt + 1, PAGES - 2 * cnt - 1);
	taint_cut(&nf, at(2 * cnt + 1), at(PAGES));
	for (i = 0; i <= cnt; i++)
		assert_true(tainted(2 * i, 1));
	taint_cut(&nf, at(0), at(PAGES));
	assert_int_equal(nf.taint_cnt, 0);
}

/* The widened one: its last page is not the newest's. */
static void a_widened_one_has_no_witness(void **state)
{
	unsigned int i;

	for (i = 0; i < TAINT_MAX; i++) {
		add(4 * i + 100, 1);
		taint_no_witness(&nf, at(4 * i + 100), at(4 * i + 101));
	}
	add(0, 1);
	assert_int_equal(nf.taint_cnt, TAINT_MAX);
	drop_pages(1, PAGES - 1);
	assert_true(tainted(0, 1));
	drop_pages(0, 1);
	assert_true(tainted(0, 1));
}

/* The same place again and again is one taint. */
static void the_same_again_takes_no_room(void **state)
{
	unsigned int i;

	for (i = 0; i < 1000; i++)
		add(10, 1 + i % 8);
	assert_true(nf.taint_cnt <= 2);
	assert_true(tainted(10, 8));
	assert_false(tainted(18, 1));
	taint_cut(&nf, at(10), at(18));
	assert_false(tainted(0, PAGES));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(ends_when_its_pages_have_gone),
		CASE(touched_again_it_stays_until_unmapped),
		CASE(what_another_call_takes_proves_nothing),
		CASE(an_unmap_within_proves_nothing),
		CASE(a_full_table_forgets_none),
		CASE(a_widened_one_has_no_witness),
		CASE(the_same_again_takes_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
