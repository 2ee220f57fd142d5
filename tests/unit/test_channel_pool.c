// SPDX-License-Identifier: BSD-2-Clause
/* The landing pool: what it lends, what it takes back, what it gives up. */
#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "channel/pageswap.h"
#include "channel/pool.h"
#include "core.h"

#define BLOCKS 4u

static struct pool_landing *pool_of(uint32_t blocks)
{
	struct pool_landing *p;

	if (pages_huge_len() == page_len()) {
		puts("skipped: there are no huge pages");
		skip();
	}
	assert_int_equal(pool_open(blocks * pages_huge_len(), &p), 0);
	return p;
}

/* An address that is so far into a block. */
static const char *buffer_at(size_t off)
{
	return (const char *)(16 * pages_huge_len() + off);
}

static bool is_there(const char *at)
{
	unsigned char c = 0;

	assert_int_equal(mincore((void *)((uintptr_t)at & ~(page_len() - 1)),
				 page_len(), &c), 0);
	return c & 1;
}

static bool gone_in_time(const char *at)
{
	WAIT_FOR(!is_there(at));
	return true;
}

static void what_is_lent_is_congruent_and_nobody_elses(void **state)
{
	struct pool_landing *p = pool_of(BLOCKS);
	size_t unit = pages_huge_len(), off = 3 * page_len() + 16;
	struct landing a, b, c;

	assert_int_equal(pool_take(p, buffer_at(off), unit, &a), 0);
	assert_int_equal(a.cnt, 2);
	assert_int_equal((uintptr_t)a.addr % unit, off);
	assert_int_equal(pool_take(p, buffer_at(0), 2 * unit, &b), 0);
	assert_int_equal(b.cnt, 2);
	assert_true(b.addr >= a.addr + unit || b.addr + 2 * unit <= a.addr);
	memset(a.addr, 1, unit);
	memset(b.addr, 2, 2 * unit);
	assert_int_equal(a.addr[unit - 1], 1);
	/* All are lent: nobody waits. */
	assert_int_equal(pool_take(p, buffer_at(0), 1, &c), -EAGAIN);
	pool_give(p, &b, true);
	assert_int_equal(pool_take(p, buffer_at(0), 1, &c), 0);
	pool_give(p, &c, true);
	pool_give(p, &a, true);
	/* More than there are blocks, at any time. */
	assert_int_equal(pool_take(p, buffer_at(off), BLOCKS * unit, &c),
			 -EAGAIN);
	pool_close(p, true);
}

static void what_a_peer_may_still_write_to_is_lent_no_more(void **state)
{
	struct pool_landing *p = pool_of(2);
	size_t unit = pages_huge_len();
	struct landing a, b;
	char *lost;

	assert_int_equal(pool_take(p, buffer_at(0), unit, &a), 0);
	lost = a.addr;
	pool_give(p, &a, false);
	assert_int_equal(pool_take(p, buffer_at(0), unit, &b), 0);
	assert_ptr_not_equal(b.addr, lost);
	assert_int_equal(pool_take(p, buffer_at(0), unit, &a), -EAGAIN);
	pool_give(p, &b, true);
	pool_close(p, true);
	/* The address stays taken, and faults. */
	assert_int_equal(msync(lost, unit, MS_ASYNC), 0);
	assert_int_equal(munmap(lost, unit), 0);
}

/* Single pages come back, as from a buffer that had some. */
static void used_blocks_are_empty_when_they_are_lent_again(void **state)
{
	struct pool_landing *p = pool_of(1);
	size_t unit = pages_huge_len();
	struct landing a;
	int i;

	for (i = 0; i < 20; i++) {
		/* The thread may have it for a moment. */
		while (pool_take(p, buffer_at(0), unit, &a))
			;
		madvise(a.addr, unit, MADV_NOHUGEPAGE);
		madvise(a.addr, unit, MADV_DONTNEED);
		a.addr[5 * page_len()] = 77;
		assert_int_not_equal(pages_kind(a.addr, unit), PAGES_HUGE);
		pool_give(p, &a, true);
		while (pool_take(p, buffer_at(0), unit, &a))
			;
		assert_int_equal(a.addr[5 * page_len()], 0);
		pool_give(p, &a, true);
	}
	pool_close(p, true);
}

static void nothing_is_kept_that_nobody_uses(void **state)
{
	struct pool_landing *p = pool_of(BLOCKS);
	size_t unit = pages_huge_len();
	struct landing a;

	assert_int_equal(pool_take(p, buffer_at(0), 2 * unit, &a), 0);
	memset(a.addr, 1, 2 * unit);
	pool_give(p, &a, true);
	assert_true(gone_in_time(a.addr));
	assert_true(gone_in_time(a.addr + 2 * unit - 1));
	assert_int_equal(pool_take(p, buffer_at(0), 2 * unit, &a), 0);
	assert_int_equal(a.addr[0], 0);
	pool_give(p, &a, true);
	pool_close(p, true);
}

/*
 * The middle of three leaves with a message: where many are ready the thread
 * lets the channel fill the hole, and gives that up, too, when nothing comes.
 */
static void a_hole_is_filled_by_who_waits(void **state)
{
	struct pool_landing *p = pool_of(16);
	size_t unit = pages_huge_len(), i;
	struct landing a, b;

	assert_int_equal(pool_take(p, buffer_at(0), 3 * unit, &a), 0);
	assert_int_equal(pool_take(p, buffer_at(0), 9 * unit, &b), 0);
	memset(a.addr, 1, 3 * unit);
	memset(b.addr, 1, 9 * unit);
	pool_give(p, &b, true);
	madvise(a.addr + unit, unit, MADV_DONTNEED);
	pool_give(p, &a, true);
	/* The thread may have it for a moment. */
	while (pool_make(p) || !is_there(a.addr + unit))
		;
	assert_int_equal(pages_kind(a.addr, 3 * unit), PAGES_HUGE);
	for (i = 0; i < 3; i++)
		assert_true(gone_in_time(a.addr + i * unit));
	for (i = 0; i < 9; i++)
		assert_true(gone_in_time(b.addr + i * unit));
	/* What it still does is empty the others: none is filled again. */
	while (pool_make(p))
		;
	for (i = 0; i < 3; i++)
		assert_false(is_there(a.addr + i * unit));
	pool_close(p, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_lent_is_congruent_and_nobody_elses),
		cmocka_unit_test(what_a_peer_may_still_write_to_is_lent_no_more),
		cmocka_unit_test(used_blocks_are_empty_when_they_are_lent_again),
		cmocka_unit_test(nothing_is_kept_that_nobody_uses),
		cmocka_unit_test(a_hole_is_filled_by_who_waits),
	};

	return cmocka_run_group_tests_name("channel_pool", tests, NULL, NULL);
}
