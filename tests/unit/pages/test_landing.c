// SPDX-License-Identifier: BSD-2-Clause
/* The landing pool: what it lends, what it takes back, what it gives up. */
#include "base/clock/clock.h"
#include "clock.h"
#include "core.h"
#include "pages/landing.h"
#include "pages/swap.h"

#define BLOCKS 4u

static struct landing_member *pool_of(uint32_t blocks)
{
	struct landing_member *p;

	if (pages_huge_len() == page_len()) {
		puts("skipped: there are no huge pages");
		skip();
	}
	assert_int_equal(landing_open(blocks * pages_huge_len(), NULL, &p), 0);
	return p;
}

/* An address that is so far into a block. */
static const char *buffer_at(size_t off)
{
	return (const char *)(16 * pages_huge_len() + off);
}

/* The pool gives back addresses, too: nothing is mapped there then. */
static bool is_there(const char *at)
{
	unsigned char c = 0;

	return !mincore((void *)((uintptr_t)at & ~(page_len() - 1)),
			page_len(), &c) && c & 1;
}

#define IDLE_MS 2000 /* of the pool, after which it gives back what it has */

static bool gone_in_time(const char *at)
{
	MOVE_UNTIL(IDLE_MS, !is_there(at));
	return true;
}

/* While the thread works on a block, that one is nobody's: a take waits for nothing. */
static void lend(struct landing_member *p, const char *buf, uint64_t len, struct landing *l)
{
	WAIT_FOR(!landing_take(p, buf, len, l));
}

static void what_is_lent_is_congruent_and_nobody_elses(void **state)
{
	struct landing_member *p = pool_of(BLOCKS);
	size_t unit = pages_huge_len(), off = 3 * page_len() + 16;
	struct landing a, b, c;

	lend(p, buffer_at(off), unit, &a);
	assert_int_equal(a.cnt, 2);
	assert_int_equal((uintptr_t)a.addr % unit, off);
	lend(p, buffer_at(0), 2 * unit, &b);
	assert_int_equal(b.cnt, 2);
	assert_true(b.addr >= a.addr + unit || b.addr + 2 * unit <= a.addr);
	memset(a.addr, 1, unit);
	memset(b.addr, 2, 2 * unit);
	assert_int_equal(a.addr[unit - 1], 1);
	/* All are lent: nobody waits. */
	assert_int_equal(landing_take(p, buffer_at(0), 1, &c), -EAGAIN);
	landing_give(p, &b, true);
	lend(p, buffer_at(0), 1, &c);
	landing_give(p, &c, true);
	landing_give(p, &a, true);
	/* More than there are blocks, at any time. */
	assert_int_equal(landing_take(p, buffer_at(off), BLOCKS * unit, &c),
			 -EAGAIN);
	landing_close(p, true);
}

static void what_a_peer_may_still_write_to_is_lent_no_more(void **state)
{
	struct landing_member *p = pool_of(2);
	size_t unit = pages_huge_len();
	struct landing a, b;
	char *lost;

	lend(p, buffer_at(0), unit, &a);
	lost = a.addr;
	landing_give(p, &a, false);
	lend(p, buffer_at(0), unit, &b);
	assert_ptr_not_equal(b.addr, lost);
	assert_int_equal(landing_take(p, buffer_at(0), unit, &a), -EAGAIN);
	landing_give(p, &b, true);
	landing_close(p, true);
	/* The address stays taken, and faults. */
	assert_int_equal(msync(lost, unit, MS_ASYNC), 0);
	assert_int_equal(munmap(lost, unit), 0);
}

/* Single pages come back, as from a buffer that had some. */
static void used_blocks_are_empty_when_they_are_lent_again(void **state)
{
	struct landing_member *p = pool_of(1);
	size_t unit = pages_huge_len();
	struct landing a;
	char *used;
	int i;

	for (i = 0; i < 20; i++) {
		/* The thread may have it for a moment. */
		while (landing_take(p, buffer_at(0), unit, &a))
			;
		madvise(a.addr, unit, MADV_NOHUGEPAGE);
		madvise(a.addr, unit, MADV_DONTNEED);
		a.addr[5 * page_len()] = 77;
		assert_int_not_equal(pages_kind(a.addr, unit), PAGES_HUGE);
		landing_give(p, &a, true);
		used = a.addr;
		while (landing_take(p, buffer_at(0), unit, &a))
			;
		/* Another one may be left of what was open before. */
		if (a.addr == used)
			assert_int_equal(a.addr[5 * page_len()], 0);
		landing_give(p, &a, true);
	}
	landing_close(p, true);
}

static void nothing_is_kept_that_nobody_uses(void **state)
{
	struct landing_member *p = pool_of(BLOCKS);
	size_t unit = pages_huge_len();
	struct landing a;

	lend(p, buffer_at(0), 2 * unit, &a);
	memset(a.addr, 1, 2 * unit);
	landing_give(p, &a, true);
	assert_true(gone_in_time(a.addr));
	assert_true(gone_in_time(a.addr + 2 * unit - 1));
	lend(p, buffer_at(0), 2 * unit, &a);
	assert_int_equal(a.addr[0], 0);
	landing_give(p, &a, true);
	landing_close(p, true);
}

/* Each slice of a moved clock wakes the thread, as the end of the wait does. */
static void what_was_used_a_moment_ago_is_kept(void **state)
{
	struct landing_member *p = pool_of(BLOCKS);
	size_t unit = pages_huge_len();
	struct landing a;
	uint64_t until;
	int i;

	lend(p, buffer_at(0), unit, &a);
	memset(a.addr, 1, unit);
	for (i = 0; i < 3; i++) {
		test_clock_move_ms(IDLE_MS / 2);
		until = clock_after_ms(IDLE_MS);
		landing_give(p, &a, true);
		usleep(20000);
		assert_true(is_there(a.addr) || clock_ns() >= until);
		lend(p, buffer_at(0), unit, &a);
	}
	landing_give(p, &a, true);
	assert_true(gone_in_time(a.addr));
	landing_close(p, true);
}

/*
 * The middle of three leaves with a message: where many are ready the thread
 * lets the channel fill the hole, and gives that up, too, when nothing comes.
 */
static void a_hole_is_filled_by_who_waits(void **state)
{
	struct landing_member *p = pool_of(16);
	size_t unit = pages_huge_len(), i;
	struct landing a, b;

	lend(p, buffer_at(0), 3 * unit, &a);
	lend(p, buffer_at(0), 9 * unit, &b);
	memset(a.addr, 1, 3 * unit);
	memset(b.addr, 1, 9 * unit);
	landing_give(p, &b, true);
	madvise(a.addr + unit, unit, MADV_DONTNEED);
	landing_give(p, &a, true);
	/* The thread may have it for a moment. */
	while (landing_make() || !is_there(a.addr + unit))
		;
	assert_int_equal(pages_kind(a.addr, 3 * unit), PAGES_HUGE);
	for (i = 0; i < 3; i++)
		assert_true(gone_in_time(a.addr + i * unit));
	for (i = 0; i < 9; i++)
		assert_true(gone_in_time(b.addr + i * unit));
	/* Its last work is to empty the others: none is filled again. */
	while (landing_make())
		;
	for (i = 0; i < 3; i++)
		assert_false(is_there(a.addr + i * unit));
	landing_close(p, true);
}

/* ---- of all channels ---- */

static size_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return pages * page_len();
}

#define CHANNELS 100

static void channels_share_one_thread_and_one_pool(void **state)
{
	struct landing_member *p[CHANNELS];
	size_t unit = pages_huge_len(), before;
	unsigned int threads = threads_now();
	struct landing l, first = { 0 };
	int i;

	if (unit == page_len())
		skip();
	before = address_space();
	for (i = 0; i < CHANNELS; i++) {
		assert_int_equal(landing_open((uint64_t)160 << 20, NULL, &p[i]),
				 0);
		lend(p[i], buffer_at(0), 4 * unit, &l);
		memset(l.addr, i, 4 * unit);
		if (!i)
			first = l;
		assert_ptr_equal(l.addr, first.addr);
		landing_give(p[i], &l, true);
	}
	assert_int_equal(threads_now(), threads + 1);
	/* A thread's stack and heap, scratch space, and one extent. */
	assert_true(address_space() - before < (size_t)400 << 20);
	assert_true(gone_in_time(first.addr));
	for (i = 0; i < CHANNELS; i++)
		landing_close(p[i], true);
	assert_true(threads_are(threads));
	/* The next one starts it anew. */
	assert_int_equal(landing_open((uint64_t)160 << 20, NULL, &p[0]), 0);
	assert_int_equal(threads_now(), threads + 1);
	lend(p[0], buffer_at(0), unit, &l);
	landing_give(p[0], &l, true);
	landing_close(p[0], true);
	assert_true(threads_are(threads));
}

/* One whose peer keeps all that it may have, two that it does not matter to. */
static void a_channel_has_no_more_than_its_share(void **state)
{
	struct landing_member *greedy = pool_of(BLOCKS), *p = pool_of(BLOCKS);
	struct landing g[BLOCKS], l, none;
	size_t unit = pages_huge_len();
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		lend(greedy, buffer_at(0), unit, &g[i]);
	assert_int_equal(landing_take(greedy, buffer_at(0), unit, &none),
			 -EAGAIN);
	lend(p, buffer_at(0), BLOCKS * unit, &l);
	/* That is all: two shares. */
	landing_give(p, &l, true);
	for (i = 0; i < BLOCKS; i++)
		landing_give(greedy, &g[i], i % 2);
	lend(greedy, buffer_at(0), BLOCKS / 2 * unit, &l);
	assert_int_equal(landing_take(greedy, buffer_at(0), unit, &none),
			 -EAGAIN);
	landing_give(greedy, &l, true);
	lend(p, buffer_at(0), BLOCKS * unit, &l);
	landing_give(p, &l, true);
	landing_close(greedy, true);
	landing_close(p, true);
	for (i = 0; i < BLOCKS; i += 2)
		assert_int_equal(munmap(g[i].addr, unit), 0);
}

static void all_have_no_more_than_the_limit(void **state)
{
	struct landing_member *p[3];
	size_t unit = pages_huge_len();
	struct landing l[3];
	int i;

	for (i = 0; i < 3; i++)
		p[i] = pool_of(BLOCKS);
	for (i = 0; i < 2; i++)
		lend(p[i], buffer_at(0), BLOCKS * unit, &l[i]);
	assert_int_equal(landing_take(p[2], buffer_at(0), 1, &l[2]), -EAGAIN);
	landing_give(p[0], &l[0], true);
	lend(p[2], buffer_at(0), 1, &l[2]);
	landing_give(p[2], &l[2], true);
	landing_give(p[1], &l[1], true);
	for (i = 0; i < 3; i++)
		landing_close(p[i], true);
}

/* Small messages have made small extents: a long one gets their room. */
static void a_longer_message_takes_the_place_of_short_ones(void **state)
{
	struct landing_member *p = pool_of(2), *longer;
	size_t unit = pages_huge_len();
	struct landing a, b;

	lend(p, buffer_at(0), unit, &a);
	longer = pool_of(40);
	lend(longer, buffer_at(0), 40 * unit, &b);
	landing_give(longer, &b, true);
	landing_give(p, &a, true);
	landing_close(longer, true);
	/* With the longer one's share its room is gone, too: two are left. */
	lend(p, buffer_at(0), 2 * unit, &a);
	landing_give(p, &a, true);
	landing_close(p, true);
}

/* The other channels never get it again, even after its own has ended. */
static void what_is_lost_is_lost_for_all(void **state)
{
	struct landing_member *p = pool_of(16), *q = pool_of(16);
	size_t unit = pages_huge_len();
	struct landing l, one[16];
	char *lost;
	int i, k;

	lend(p, buffer_at(0), unit, &l);
	lost = l.addr;
	memset(lost, 1, unit);
	landing_give(p, &l, false);
	assert_false(is_there(lost));
	landing_close(p, true);
	for (k = 0; k < 3; k++) {
		for (i = 0; i < 16; i++) {
			lend(q, buffer_at(0), unit, &one[i]);
			assert_ptr_not_equal(one[i].addr, lost);
		}
		for (i = 0; i < 16; i++)
			landing_give(q, &one[i], true);
		if (k < 2)
			continue;
		/* The pool is gone: nothing else is mapped there. */
		landing_close(q, true);
		assert_ptr_not_equal(mmap(lost, unit, PROT_READ,
					  MAP_PRIVATE | MAP_ANONYMOUS |
						  MAP_FIXED_NOREPLACE, -1, 0),
				     lost);
	}
	assert_int_equal(munmap(lost, unit), 0);
}

static int use_pool_in_child(void *arg)
{
	struct landing_member *of_parent = arg, *p;
	unsigned int before = threads_now();
	size_t unit = pages_huge_len();
	struct landing l;

	landing_close(of_parent, false);
	CHILD_CHECK(!landing_open(4 * unit, NULL, &p));
	CHILD_CHECK(threads_now() == before + 1);
	CHILD_CHECK(!landing_take(p, buffer_at(0), 4 * unit, &l));
	memset(l.addr, 1, 4 * unit);
	landing_give(p, &l, true);
	landing_close(p, true);
	CHILD_CHECK(threads_are(before));
	return 0;
}

static void a_child_has_a_pool_of_its_own(void **state)
{
	struct landing_member *p = pool_of(BLOCKS);
	size_t unit = pages_huge_len();
	struct landing l;

	lend(p, buffer_at(0), unit, &l);
	memset(l.addr, 7, unit);
	assert_int_equal(in_child(use_pool_in_child, p), 0);
	assert_int_equal(in_raw_child(use_pool_in_child, p), 0);
	assert_int_equal(l.addr[unit - 1], 7);
	landing_give(p, &l, true);
	landing_close(p, true);
}

static void *hold_a_pool(void *arg)
{
	struct landing_member *p;
	struct landing l;

	CHILD_CHECK(!landing_open((uint64_t)32 << 20, NULL, &p));
	CHILD_CHECK(!landing_take(p, buffer_at(0), pages_huge_len(), &l));
	landing_give(p, &l, true);
	return arg;
}

/* Nobody closes it, and the process ends with its last thread all the same. */
static int end_by_pthread_exit(void *arg)
{
	pthread_t t;

	hold_a_pool(NULL);
	CHILD_CHECK(!pthread_create(&t, NULL, hold_a_pool, arg));
	pthread_join(t, NULL);
	pthread_exit(NULL);
}

static int end_by_exit(void *arg)
{
	(void)arg;
	hold_a_pool(NULL);
	exit(0);
}

static void a_process_ends_with_a_pool_open(void **state)
{
	assert_int_equal(in_child(end_by_pthread_exit, NULL), 0);
	assert_int_equal(in_child(end_by_exit, NULL), 0);
}

static void *nothing(void *arg)
{
	return arg;
}

static int begin(void **state)
{
	(void)state;
	test_clock_begin();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(channels_share_one_thread_and_one_pool),
		cmocka_unit_test(a_channel_has_no_more_than_its_share),
		cmocka_unit_test(all_have_no_more_than_the_limit),
		cmocka_unit_test(a_longer_message_takes_the_place_of_short_ones),
		cmocka_unit_test(what_is_lost_is_lost_for_all),
		cmocka_unit_test(a_child_has_a_pool_of_its_own),
		cmocka_unit_test(a_process_ends_with_a_pool_open),
		cmocka_unit_test(what_is_lent_is_congruent_and_nobody_elses),
		cmocka_unit_test(what_a_peer_may_still_write_to_is_lent_no_more),
		cmocka_unit_test(used_blocks_are_empty_when_they_are_lent_again),
		cmocka_unit_test(nothing_is_kept_that_nobody_uses),
		cmocka_unit_test(what_was_used_a_moment_ago_is_kept),
		cmocka_unit_test(a_hole_is_filled_by_who_waits),
	};
	pthread_t thread;

	/* A sanitizer's own thread begins with the first. */
	if (pthread_create(&thread, NULL, nothing, NULL))
		return 1;
	pthread_join(thread, NULL);
	return cmocka_run_group_tests_name("landing", tests, begin, NULL);
}
