// SPDX-License-Identifier: BSD-2-Clause
/* Memory that came through libc: pages, GiBs, their edges, and no memory. */
#include "cases.h"
#include "base/base.h"
#include "notify/announce/chunks.h"
#include "notify/announce/origin.h"
#include "fakes/memory.h"

#define PAGE ((uint64_t)4096)
#define GIB  ((uint64_t)1 << 30)
#define TOP  ((uint64_t)1 << 48)

static uint64_t next_gib = (uint64_t)1 << 40;

/* Some GiBs that no other test has marked. */
static uint64_t fresh(unsigned int gibs)
{
	uint64_t at = next_gib;

	next_gib += (gibs + 1) * GIB;
	return at;
}

static void a_range_is_known_page_by_page(void **state)
{
	const unsigned int from[] = { 0, 1, 62, 63, 64, 65, 127, 128 };
	unsigned int i, len;
	uint64_t at;

	for (i = 0; i < 8; i++)
		for (len = 1; len <= 130; len++) {
			at = fresh(1) + from[i] * PAGE;
			origin_set(at, at + len * PAGE);
			assert_true(origin_known(at, at + len * PAGE));
			assert_false(origin_known(at, at + (len + 1) * PAGE));
			assert_false(origin_some(at + len * PAGE,
						 at + (len + 1) * PAGE));
			if (from[i])
				assert_false(origin_some(at - PAGE, at));
			origin_clear(at, at + PAGE);
			assert_false(origin_some(at, at + PAGE));
			assert_int_equal(origin_known(at + PAGE,
						      at + len * PAGE),
					 len > 1);
		}
}

static void a_cleared_middle_leaves_both_sides(void **state)
{
	uint64_t at = fresh(1), end = at + 300 * PAGE;

	origin_set(at, end);
	origin_clear(at + 100 * PAGE, at + 200 * PAGE);
	assert_true(origin_known(at, at + 100 * PAGE));
	assert_true(origin_known(at + 200 * PAGE, end));
	assert_false(origin_some(at + 100 * PAGE, at + 200 * PAGE));
	assert_false(origin_known(at, end));
	assert_true(origin_some(at, end));
}

static void whole_gibs_take_no_table(void **state)
{
	uint64_t at = fresh(5);
	int before = mapped;

	origin_set(at + GIB, at + 4 * GIB);
	assert_int_equal(mapped, before);
	assert_true(origin_known(at + GIB, at + 4 * GIB));
	assert_false(origin_some(at, at + GIB));
	assert_false(origin_some(at + 4 * GIB, at + 5 * GIB));
	origin_clear(at + 2 * GIB, at + 3 * GIB);
	assert_int_equal(mapped, before);
	assert_true(origin_known(at + GIB, at + 2 * GIB));
	assert_false(origin_some(at + 2 * GIB, at + 3 * GIB));
	assert_true(origin_known(at + 3 * GIB, at + 4 * GIB));
}

static void a_part_of_a_whole_gib_is_cleared(void **state)
{
	uint64_t at = fresh(2);

	origin_set(at, at + 2 * GIB);
	origin_clear(at + GIB - PAGE, at + GIB + PAGE);
	assert_true(origin_known(at, at + GIB - PAGE));
	assert_false(origin_some(at + GIB - PAGE, at + GIB + PAGE));
	assert_true(origin_known(at + GIB + PAGE, at + 2 * GIB));
	/* And back again, where there is a table by now. */
	origin_set(at, at + 2 * GIB);
	assert_true(origin_known(at, at + 2 * GIB));
}

static void without_memory_nothing_is_claimed(void **state)
{
	uint64_t at = fresh(2);

	no_memory = true;
	origin_set(at, at + PAGE);
	assert_false(origin_some(at, at + PAGE));
	origin_set(at, at + GIB);
	assert_true(origin_known(at, at + GIB));
	/* No table to say which part is left: none is. */
	origin_clear(at, at + PAGE);
	assert_false(origin_some(at, at + GIB));
	no_memory = false;
	origin_set(at, at + PAGE);
	assert_true(origin_known(at, at + PAGE));
}

/*
 * Each thread marks and clears pages of its own among the others', in the same
 * words, and where a GiB of one mark is about to get a table.
 */
#define THREADS 4
#define TURNS	2000

struct own_pages {
	uint64_t at;
	unsigned int nr;
	bool wrong;
};

static void *mark_own_pages(void *arg)
{
	struct own_pages *o = arg;
	uint64_t at = o->at + o->nr * PAGE;
	unsigned int i;

	for (i = 0; i < TURNS; i++, at += THREADS * PAGE) {
		o->wrong |= !origin_known(at, at + PAGE);
		origin_clear(at, at + PAGE);
		o->wrong |= origin_some(at, at + PAGE);
		origin_set(at, at + PAGE);
		o->wrong |= !origin_known(at, at + PAGE);
		origin_clear(at, at + PAGE);
	}
	return NULL;
}

static void neighbours_are_left_alone(void **state)
{
	struct own_pages own[THREADS];
	pthread_t thread[THREADS];
	unsigned int round, i;

	for (round = 0; round < 20; round++) {
		uint64_t at = fresh(1);

		origin_set(at, at + GIB);
		for (i = 0; i < THREADS; i++) {
			own[i] = (struct own_pages){ at, i, false };
			thread[i] = run_thread(mark_own_pages, &own[i]);
		}
		for (i = 0; i < THREADS; i++) {
			pthread_join(thread[i], NULL);
			assert_false(own[i].wrong);
		}
		assert_false(origin_some(at, at + THREADS * TURNS * PAGE));
	}
}

/* ---- chunks of an allocator ---- */

#define CHUNK ((uint64_t)64 << 10) /* the shortest that is noted */

static uint64_t page_up(uint64_t at)
{
	uint64_t page = kedge__page_size();

	return (at + page - 1) / page * page;
}

static void a_chunk_is_known_with_the_pages_at_its_ends(void **state)
{
	const uint64_t begin[] = { 16, 4080, CHUNK - 16, CHUNK, 3 * CHUNK + 4096 };
	const uint64_t length[] = { CHUNK, CHUNK + 8, 20 * CHUNK - 8, 64 * 16 * CHUNK };
	uint64_t page = kedge__page_size(), low, high, start;
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(begin); i++)
		for (k = 0; k < ARRAY_SIZE(length); k++) {
			start = fresh(1) + GIB / 2 + begin[i];
			low = start / page * page;
			high = page_up(start + length[k]);
			chunks_add(start, length[k]);
			assert_true(origin_known(low, high));
			assert_true(origin_known(high - page, high));
			assert_false(origin_known(low - page, high));
			assert_false(origin_known(low, high + page));
			assert_true(origin_some(high - page, high));
			assert_false(origin_some(high, high + page));
			assert_false(origin_some(low - page, low));
			chunks_remove(start + 16);
			assert_true(origin_known(low, high));
			chunks_remove(start);
			assert_false(origin_some(low, high));
		}
}

static void a_page_is_its_chunks_while_one_is_left(void **state)
{
	uint64_t page = kedge__page_size(), at = fresh(1), border = at + 2 * CHUNK;

	chunks_add(at + 16, 2 * CHUNK);
	chunks_add(at + 32 + 2 * CHUNK, 2 * CHUNK);
	assert_true(origin_known(at, at + 4 * CHUNK + page));
	chunks_remove(at + 16);
	assert_true(origin_known(border, border + page));
	assert_false(origin_some(border - page, border));
	chunks_add(at + 16, 2 * CHUNK);
	chunks_remove(at + 32 + 2 * CHUNK);
	assert_true(origin_known(border, border + page));
	assert_false(origin_known(border + page, border + 2 * page));
	chunks_remove(at + 16);
	assert_false(origin_some(at, at + 5 * CHUNK));
}

static void a_chunk_beside_a_mapping(void **state)
{
	uint64_t at = fresh(1), page = kedge__page_size();

	origin_set(at, at + CHUNK);
	chunks_add(at + CHUNK, CHUNK);
	assert_true(origin_known(at, at + 2 * CHUNK));
	origin_set(at + 2 * CHUNK, at + 3 * CHUNK);
	assert_true(origin_known(at, at + 3 * CHUNK));
	assert_false(origin_known(at, at + 3 * CHUNK + page));
	/* The mapping goes with all that is in it. */
	origin_clear(at, at + 3 * CHUNK);
	assert_false(origin_some(at, at + 3 * CHUNK));
}

static void chunks_reach_over_gibs(void **state)
{
	uint64_t at = fresh(2) + GIB - CHUNK / 2;

	chunks_add(at, CHUNK);
	assert_true(origin_known(at, at + CHUNK));
	origin_clear(at + 2 * CHUNK, at + 3 * CHUNK);
	assert_true(origin_known(at, at + CHUNK));
	/* A part of it: nothing is known of the rest. */
	origin_clear(at + CHUNK / 2, at + CHUNK);
	assert_false(origin_some(at, at + CHUNK));
}

static void what_is_no_chunk_is_not_noted(void **state)
{
	uint64_t at = fresh(1);
	int before = mapped;

	chunks_add(at, CHUNK - 1);
	chunks_add(at, 64 * 16 * CHUNK + 1);
	chunks_add(TOP - CHUNK, CHUNK + 1);
	chunks_add(UINT64_MAX - CHUNK, 2 * CHUNK);
	chunks_remove(UINT64_MAX);
	assert_int_equal(mapped, before);
	no_memory = true;
	chunks_add(at, CHUNK);
	no_memory = false;
	assert_false(origin_some(at, at + CHUNK));
}

static void what_is_outside_the_table_is_never_known(void **state)
{
	origin_set(TOP - GIB, TOP);
	assert_true(origin_known(TOP - GIB, TOP));
	origin_set(TOP - PAGE, TOP + PAGE);
	origin_set(TOP, TOP + GIB);
	assert_false(origin_known(TOP - PAGE, TOP + PAGE));
	assert_false(origin_some(TOP, TOP + GIB));
	origin_set(UINT64_MAX - PAGE, UINT64_MAX);
	assert_false(origin_some(UINT64_MAX - PAGE, UINT64_MAX));
	assert_false(origin_known(PAGE, PAGE));
	origin_clear(TOP - GIB, TOP);
}

static char in_bss[3 * 4096];

static bool known(const void *p)
{
	uint64_t at = (uintptr_t)p & ~(PAGE - 1);

	return origin_known(at, at + PAGE);
}

static void what_there_is_from_the_start(void **state)
{
	char on_stack = 1, *grown;
	void *map;

	assert_false(known(in_bss));
	assert_false(known(&on_stack));
	origin_start();
	assert_true(known(in_bss));
	assert_true(known(&on_stack));
	assert_true(known((void *)(uintptr_t)getpid));
	/* Anywhere in the heap, and where it grows. */
	grown = sbrk(1 << 20);
	assert_true(known(grown));
	assert_true(known(grown + (1 << 20) - 1));
	assert_false(known(grown + (1 << 20) + 2 * PAGE));
	sbrk(-(1 << 20));
	map = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_false(known(map));
	munmap(map, PAGE);
}

#define LISTED PLAIN
#include "test_origin.cases.h"
