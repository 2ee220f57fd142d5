// SPDX-License-Identifier: BSD-2-Clause
/* The interval tree against a list that is searched from end to end. */
#include "cases.h"
#include "base/base.h"
#include "base/tree.h"

#define CNT    400
#define SPACE  1000u /* small, so that ranges overlap and touch */
#define ROUNDS 20000

static uint64_t seed = 0x853c49e6748fea9bull;

static uint32_t pick(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

struct model {
	struct tree tree;
	struct tree_node node[CNT];
	bool in[CNT];
};

static void put_in(struct model *m, unsigned int i)
{
	m->node[i].start = pick(SPACE);
	m->node[i].end = m->node[i].start + 1 + pick(pick(20) ? 30 : SPACE);
	tree_insert(&m->tree, &m->node[i]);
	m->in[i] = true;
}

static bool overlaps(const struct tree_node *n, uint64_t start, uint64_t end)
{
	return n->start < end && n->end > start;
}

static unsigned int expected(const struct model *m, uint64_t start,
			     uint64_t end)
{
	unsigned int i, n = 0;

	for (i = 0; i < CNT; i++)
		n += m->in[i] && overlaps(&m->node[i], start, end);
	return n;
}

/* Each overlapping node once, in order of start, and no other. */
static void check_overlaps(const struct model *m)
{
	uint64_t start = pick(2 * SPACE), end = start + 1 + pick(50), last = 0;
	struct tree_node *n = tree_first_overlap(&m->tree, start, end);
	unsigned int found = 0;

	for (; n; n = tree_next_overlap(n, start, end)) {
		assert_true(overlaps(n, start, end));
		assert_true(n->start >= last);
		last = n->start;
		found++;
	}
	assert_int_equal(found, expected(m, start, end));
}

static void check_order(const struct model *m)
{
	struct tree_node *n, *before = NULL;
	size_t cnt = 0;

	for (n = tree_first(&m->tree); n; n = tree_next(n)) {
		assert_ptr_equal(tree_prev(n), before);
		assert_true(!before || before->start <= n->start);
		before = n;
		cnt++;
	}
	assert_int_equal(cnt, m->tree.cnt);
}

static void check_at_or_after(const struct model *m)
{
	uint64_t start = pick(SPACE + 10);
	struct tree_node *n = tree_at_or_after(&m->tree, start);
	unsigned int i;

	assert_true(!n || n->start >= start);
	for (i = 0; i < CNT; i++)
		if (m->in[i] && m->node[i].start >= start)
			assert_true(n && n->start <= m->node[i].start);
}

static void it_finds_what_a_list_finds(void **state)
{
	static struct model m;
	unsigned int round, i;

	for (round = 0; round < ROUNDS; round++) {
		i = pick(CNT);
		if (!m.in[i]) {
			put_in(&m, i);
		} else {
			tree_remove(&m.tree, &m.node[i]);
			m.in[i] = false;
		}
		check_overlaps(&m);
		check_at_or_after(&m);
		if (round % 64 == 0) {
			assert_true(tree_check(&m.tree));
			check_order(&m);
		}
	}
}

static void a_resized_node_is_found_where_it_is(void **state)
{
	struct tree_node n[3] = { { .start = 10, .end = 20 },
				  { .start = 30, .end = 40 },
				  { .start = 50, .end = 60 } };
	struct tree t = { NULL, 0 };
	int i;

	for (i = 0; i < 3; i++)
		tree_insert(&t, &n[i]);
	tree_resize(&t, &n[1], 30, 49);
	assert_ptr_equal(tree_first_overlap(&t, 45, 46), &n[1]);
	tree_resize(&t, &n[1], 35, 36);
	assert_null(tree_first_overlap(&t, 45, 46));
	assert_null(tree_first_overlap(&t, 30, 35));
	assert_true(tree_check(&t));
}

static void an_empty_tree_and_an_empty_range_have_nothing(void **state)
{
	struct tree_node n = { .start = 1, .end = UINT64_MAX };
	struct tree t = { NULL, 0 };

	assert_null(tree_first(&t));
	assert_null(tree_at_or_after(&t, 0));
	assert_null(tree_first_overlap(&t, 0, UINT64_MAX));
	tree_insert(&t, &n);
	assert_null(tree_first_overlap(&t, 5, 5));
	assert_null(tree_first_overlap(&t, 0, 1));
	assert_ptr_equal(tree_first_overlap(&t, 0, 2), &n);
	tree_remove(&t, &n);
	assert_int_equal(t.cnt, 0);
	assert_null(t.root);
}

#define LISTED PLAIN
#include "test_tree.cases.h"
