// SPDX-License-Identifier: BSD-2-Clause
/* The index against an array with an id for each page. */
#include "cases.h"
#include "cache/internal.h"
#include "fakes/memory.h"

#define PAGE	  ((uint64_t)1 << PAGE_SHIFT)
#define REGIONS	  64u
#define SPACE_CNT 6000u /* pages: more than a leaf */
#define BASE	  (((uint64_t)3 << (LEAF_SHIFT + LEVEL_BITS)) - 1000 * PAGE)
#define ROUNDS	  20000

static uint64_t seed = 0x853c49e6748fea9bull;

static uint32_t pick(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

struct model {
	struct kedge_cache *c;
	uint32_t page[SPACE_CNT]; /* the id that each must name */
	bool in[REGIONS];
};

static int setup(void **state)
{
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->c = calloc(1, sizeof(*m->c));
	assert_non_null(m->c);
	m->c->regions = aligned_alloc(64, REGIONS * sizeof(*m->c->regions));
	assert_non_null(m->c->regions);
	memset(m->c->regions, 0, REGIONS * sizeof(*m->c->regions));
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct model *m = *state;

	no_memory = false;
	index_free(m->c);
	assert_int_equal(mapped, 0);
	free(m->c->regions);
	free(m->c);
	free(m);
	return 0;
}

static uint64_t addr_at(uint32_t page)
{
	return BASE + page * PAGE;
}

/* The region that a lookup of @page would use. */
static uint32_t found(const struct model *m, uint32_t page)
{
	uint64_t addr = addr_at(page);
	uint32_t id = index_find(m->c, addr + 17);
	const struct kedge_mr *mr = &m->c->regions[id].mr;

	return id && addr >= mr->addr && addr < mr->addr + mr->len ? id : 0;
}

static int put_in(struct model *m, uint32_t id, uint32_t first, uint32_t cnt)
{
	struct kedge_mr *mr = &m->c->regions[id].mr;
	uint32_t i;
	int rc;

	mr->addr = addr_at(first);
	mr->len = cnt * PAGE;
	rc = index_set(m->c, id);
	m->in[id] = !rc;
	for (i = first; !rc && i < first + cnt; i++)
		m->page[i] = id;
	return rc;
}

static void take_out(struct model *m, uint32_t id, uint32_t first, uint32_t cnt)
{
	uint64_t cleared = index_clear(m->c, addr_at(first),
				       addr_at(first + cnt), id);
	uint32_t i;

	for (i = first; i < first + cnt; i++) {
		if (m->page[i] != id)
			continue;
		m->page[i] = 0;
		cleared -= PAGE;
	}
	/* More than what was asked for goes only for want of memory. */
	assert_true(no_memory || !cleared);
}

static uint32_t first_of(const struct model *m, uint32_t id)
{
	return (m->c->regions[id].mr.addr - BASE) >> PAGE_SHIFT;
}

static uint32_t cnt_of(const struct model *m, uint32_t id)
{
	return m->c->regions[id].mr.len >> PAGE_SHIFT;
}

/* The next page that begins a block. */
static uint32_t to_block(uint32_t page)
{
	return (round_up(addr_at(page), 1u << BLOCK_SHIFT) - BASE) >>
	       PAGE_SHIFT;
}

/* Aligned to blocks, or not; a few pages, or more than a leaf. */
static void change(struct model *m, uint32_t id)
{
	uint32_t cnt = pick(10) ? 1 + pick(pick(2) ? 16 : 100)
				: 1 + pick(SPACE_CNT - 1);
	uint32_t first = pick(SPACE_CNT - cnt + 1);

	if (!m->in[id]) {
		if (pick(2) && first + 32 <= SPACE_CNT) {
			first = to_block(first);
			cnt = 16;
		}
		assert_int_equal(put_in(m, id, first, cnt), 0);
	} else if (pick(3)) {
		first = first_of(m, id) + pick(cnt_of(m, id));
		cnt = 1 + pick(first_of(m, id) + cnt_of(m, id) - first);
		take_out(m, id, first, cnt);
	} else {
		take_out(m, id, first_of(m, id), cnt_of(m, id));
		m->in[id] = false;
	}
}

static void check_all(const struct model *m)
{
	uint32_t i;

	for (i = 0; i < SPACE_CNT; i++)
		if (found(m, i) != m->page[i])
			fail_msg("page %u names %u, not %u", i, found(m, i),
				 m->page[i]);
}

static void check_run(const struct model *m)
{
	uint32_t first = pick(SPACE_CNT - 40), cnt = 1 + pick(40), i;
	uint32_t id = m->page[first];

	if (!id)
		return;
	/* index_run() is asked only of what the region has. */
	if (first + cnt > first_of(m, id) + cnt_of(m, id))
		cnt = first_of(m, id) + cnt_of(m, id) - first;
	for (i = first; i < first + cnt && m->page[i] == id; i++)
		;
	assert_int_equal(
		index_run(m->c, addr_at(first), addr_at(first + cnt), id),
		addr_at(i));
}

static void like_an_array(void **state)
{
	struct model *m = *state;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		change(m, 1 + pick(REGIONS - 1));
		check_run(m);
		if (i % 16 == 0)
			check_all(m);
	}
	check_all(m);
}

/* An id for the whole block: nothing more is made for it. */
static void block_needs_no_pages(void **state)
{
	struct model *m = *state;
	uint32_t first = to_block(0);
	const struct leaf *leaf;

	assert_int_equal(put_in(m, 1, first, 16), 0);
	assert_int_equal(put_in(m, 2, first + 17, 3), 0);
	leaf = index_leaf(m->c, addr_at(first));
	assert_null(leaf->pages);
	assert_int_equal(found(m, first + 16), 0);
	assert_int_equal(found(m, first + 20), 0);
	check_all(m);
	/* A second one in a block, and a hole. */
	assert_int_equal(put_in(m, 3, first + 20, 1), 0);
	assert_non_null(leaf->pages);
	check_all(m);
	take_out(m, 1, first + 5, 1);
	check_all(m);
}

/* One that has all that the block names takes its place without a split. */
static void larger_takes_over(void **state)
{
	struct model *m = *state;

	assert_int_equal(put_in(m, 1, 3, 2), 0);
	assert_int_equal(put_in(m, 2, 2, 4), 0);
	assert_null(index_leaf(m->c, addr_at(3))->pages);
	check_all(m);
	take_out(m, 1, 3, 2);
	check_all(m);
}

static void exhaust(struct model *m)
{
	m->c->arena.next = m->c->arena.end;
	no_memory = true;
}

static void set_without_memory(void **state)
{
	struct model *m = *state;

	no_memory = true;
	assert_int_equal(put_in(m, 1, 0, 4), -ENOMEM);
	no_memory = false;
	assert_int_equal(put_in(m, 1, 0, 4), 0);
	exhaust(m);
	assert_int_equal(put_in(m, 2, 4, 4), -ENOMEM);
	check_all(m);
	no_memory = false;
	assert_int_equal(put_in(m, 2, 4, 4), 0);
	check_all(m);
}

/* Then a whole block goes rather than one page of it stays. */
static void clear_without_memory(void **state)
{
	struct model *m = *state;
	uint32_t first = to_block(0), i;

	assert_int_equal(put_in(m, 1, first, 32), 0);
	exhaust(m);
	take_out(m, 1, first + 3, 1);
	for (i = 0; i < 16; i++)
		assert_int_equal(found(m, first + i), 0);
	for (; i < 32; i++)
		assert_int_equal(found(m, first + i), 1);
	no_memory = false;
	/* Another may have the block; the first does not come back. */
	memset(&m->page[first], 0, 16 * sizeof(m->page[0]));
	assert_int_equal(put_in(m, 2, first + 4, 2), 0);
	check_all(m);
}

static void beyond_the_address_space(void **state)
{
	struct model *m = *state;

	m->c->regions[1].mr.addr = ((uint64_t)1 << ADDR_BITS) - PAGE;
	m->c->regions[1].mr.len = 2 * PAGE;
	assert_int_equal(index_set(m->c, 1), -EOPNOTSUPP);
	assert_int_equal(index_find(m->c, (uint64_t)1 << ADDR_BITS), 0);
	index_clear(m->c, (uint64_t)1 << ADDR_BITS,
		    ((uint64_t)1 << ADDR_BITS) + PAGE, 1);
}

#include "test_index.cases.h"
