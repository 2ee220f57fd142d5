// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tests of what changes tell, without an address space: starts and ends are called
 * by hand, readers are the file's own functions.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "internal.h"

#define P PAGE_SIZE

struct bench {
	struct space space;
	struct file_state file;
	struct watch watch[BATCH_MAX];
	unsigned int cnt;
};

static int bench_init(struct kunit *test)
{
	struct bench *b = kunit_kzalloc(test, sizeof(*b), GFP_KERNEL);
	struct changes *c;

	KUNIT_ASSERT_NOT_NULL(test, b);
	c = &b->space.changes;
	changes_init(c);
	c->shown = (void *)get_zeroed_page(GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, c->shown);
	c->log_max = 4;
	c->log = kunit_kcalloc(test, c->log_max, sizeof(*c->log), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, c->log);
	mutex_init(&b->space.resolving);
	INIT_LIST_HEAD(&b->space.files);
	b->file.space = &b->space;
	file_join(&b->file);
	test->priv = b;
	return 0;
}

static void bench_exit(struct kunit *test)
{
	struct bench *b = test->priv;

	if (b)
		free_page((unsigned long)b->space.changes.shown);
}

/* The pages [from, to). */
static struct watch *add(struct bench *b, unsigned long from, unsigned long to,
			 bool protection)
{
	struct watch *w = &b->watch[b->cnt];

	INIT_LIST_HEAD(&w->queued);
	w->file = &b->file;
	w->cookie = b->cnt++;
	w->range.start = from * P;
	w->range.last = to * P - 1;
	w->protection = protection;
	spin_lock(&b->space.changes.lock);
	changes_add(&b->space.changes, w);
	spin_unlock(&b->space.changes.lock);
	return w;
}

static void remove(struct bench *b, struct watch *w)
{
	spin_lock(&b->space.changes.lock);
	changes_del(&b->space.changes, w);
	list_del_init(&w->queued);
	spin_unlock(&b->space.changes.lock);
}

static bool start(struct bench *b, unsigned long from, unsigned long to)
{
	return changes_start(&b->space.changes, from * P, to * P - 1, false);
}

static bool end(struct bench *b, unsigned long from, unsigned long to)
{
	return changes_end(&b->space.changes, from * P, to * P - 1, false);
}

/* Events that a drain brings; *last is what the LAST carried, or 0. */
static unsigned int drain(struct bench *b, u64 *last)
{
	struct ummunot_event ev[8];
	unsigned int n, i, cnt = 0;

	*last = 0;
	space_resolve(&b->space, false);
	while ((n = watch_take(&b->file, ev, ARRAY_SIZE(ev), true))) {
		for (i = 0; i < n; i++) {
			if (ev[i].type == UMMUNOT_EVENT_TYPE_LAST) {
				*last = ev[i].user_cookie_counter;
				return cnt;
			}
			cnt++;
		}
	}
	return cnt;
}

static void a_change_is_told_at_both_ends(struct kunit *test)
{
	struct bench *b = test->priv;
	u64 last, before = b->space.changes.counter;

	add(b, 1, 4, false);
	KUNIT_EXPECT_TRUE(test, start(b, 2, 3));
	KUNIT_EXPECT_EQ(test, drain(b, &last), 1);
	/* Not settled: the old one, once more. */
	KUNIT_EXPECT_EQ(test, last, before);
	KUNIT_EXPECT_TRUE(test, end(b, 2, 3));
	KUNIT_EXPECT_EQ(test, drain(b, &last), 1);
	KUNIT_EXPECT_EQ(test, last, b->space.changes.counter);
	KUNIT_EXPECT_EQ(test, *b->space.changes.shown, last);
	KUNIT_EXPECT_EQ(test, last, before + 2);
}

static void what_is_beside_is_not(struct kunit *test)
{
	struct bench *b = test->priv;
	u64 last;

	add(b, 1, 4, false);
	KUNIT_EXPECT_FALSE(test, start(b, 4, 9));
	KUNIT_EXPECT_FALSE(test, start(b, 0, 1));
	KUNIT_EXPECT_FALSE(test, end(b, 4, 9));
	KUNIT_EXPECT_FALSE(test, end(b, 0, 1));
	KUNIT_EXPECT_EQ(test, drain(b, &last), 0);
	KUNIT_EXPECT_EQ(test, last, 0);
}

static void protection_is_told_to_those_who_asked(struct kunit *test)
{
	struct bench *b = test->priv;
	struct watch *strict;

	add(b, 1, 4, false);
	KUNIT_EXPECT_FALSE(test, changes_start(&b->space.changes, P, 2 * P - 1,
					       true));
	strict = add(b, 1, 4, true);
	/* It runs, but this one is concerned by it. */
	KUNIT_EXPECT_FALSE(test, list_empty(&strict->queued));
	KUNIT_EXPECT_TRUE(test, changes_end(&b->space.changes, P, 2 * P - 1,
					    true));
}

static void one_that_is_added_joins_what_runs(struct kunit *test)
{
	struct bench *b = test->priv;
	u64 last;

	KUNIT_EXPECT_FALSE(test, start(b, 2, 3));
	add(b, 1, 4, false);
	KUNIT_EXPECT_EQ(test, drain(b, &last), 1);
	KUNIT_EXPECT_LT(test, last, b->space.changes.counter);
	KUNIT_EXPECT_TRUE(test, end(b, 2, 3));
	KUNIT_EXPECT_EQ(test, drain(b, &last), 1);
	KUNIT_EXPECT_EQ(test, last, b->space.changes.counter);
}

/* More than a callback tells itself: the log has them. */
static void the_rest_is_told_by_the_reader(struct kunit *test)
{
	struct bench *b = test->priv;
	unsigned int i;
	u64 last;

	for (i = 0; i < ARRAY_SIZE(b->watch); i++)
		add(b, 1, 2 + i, i % 2);
	start(b, 1, 2);
	KUNIT_EXPECT_EQ(test, changes_pending(&b->space.changes), 1);
	end(b, 1, 2);
	KUNIT_EXPECT_EQ(test, changes_pending(&b->space.changes), 1);
	KUNIT_EXPECT_EQ(test, drain(b, &last), ARRAY_SIZE(b->watch));
	KUNIT_EXPECT_EQ(test, last, b->space.changes.counter);
}

/* It forgets nothing, and tells more than has changed. */
static void a_log_that_is_full_is_widened(struct kunit *test)
{
	struct bench *b = test->priv;
	unsigned int i;
	u64 last;

	for (i = 0; i < ARRAY_SIZE(b->watch); i++)
		add(b, 0, 100, false);
	for (i = 0; i < 20; i++) {
		start(b, 4 * i, 4 * i + 1);
		end(b, 4 * i, 4 * i + 1);
	}
	KUNIT_EXPECT_EQ(test, changes_pending(&b->space.changes), 4);
	KUNIT_EXPECT_EQ(test, drain(b, &last), ARRAY_SIZE(b->watch));
	KUNIT_EXPECT_EQ(test, b->watch[40].hint_start, 0);
	KUNIT_EXPECT_EQ(test, b->watch[40].hint_last, 77 * P - 1);
}

static void more_than_there_are_slots_are_one(struct kunit *test)
{
	struct bench *b = test->priv;
	unsigned int i;
	u64 last;

	for (i = 0; i < RUNNING_MAX + 3; i++)
		KUNIT_EXPECT_FALSE(test, start(b, i, i + 1));
	/* It joins those without a slot, and none with one. */
	add(b, RUNNING_MAX + 1, RUNNING_MAX + 2, false);
	KUNIT_EXPECT_EQ(test, drain(b, &last), 1);
	for (i = 0; i < RUNNING_MAX + 3; i++) {
		KUNIT_EXPECT_LT(test, b->file.told, b->space.changes.counter);
		end(b, i, i + 1);
	}
	KUNIT_EXPECT_EQ(test, b->space.changes.over_cnt, 0);
	KUNIT_EXPECT_EQ(test, b->space.changes.unsettled, 0);
	drain(b, &last);
	KUNIT_EXPECT_EQ(test, last, b->space.changes.counter);
}

/* One that is removed while it would be told next. */
static void removing_moves_the_cursor(struct kunit *test)
{
	struct bench *b = test->priv;
	struct changes *c = &b->space.changes;
	unsigned int i, entries;
	u64 last;

	for (i = 0; i < ARRAY_SIZE(b->watch); i++)
		add(b, i, ARRAY_SIZE(b->watch) + 1, false);
	start(b, ARRAY_SIZE(b->watch), ARRAY_SIZE(b->watch) + 1);
	end(b, ARRAY_SIZE(b->watch), ARRAY_SIZE(b->watch) + 1);
	entries = changes_pending(c);
	KUNIT_EXPECT_TRUE(test, changes_resolve_some(c, &entries));
	/* A batch leaves the last one. */
	KUNIT_EXPECT_EQ(test, changes_pending(c), 1);
	remove(b, &b->watch[ARRAY_SIZE(b->watch) - 1]);
	KUNIT_EXPECT_EQ(test, changes_pending(c), 0);
	KUNIT_EXPECT_EQ(test, drain(b, &last), ARRAY_SIZE(b->watch) - 1);
	KUNIT_EXPECT_EQ(test, last, c->counter);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(a_change_is_told_at_both_ends),
	KUNIT_CASE(what_is_beside_is_not),
	KUNIT_CASE(protection_is_told_to_those_who_asked),
	KUNIT_CASE(one_that_is_added_joins_what_runs),
	KUNIT_CASE(the_rest_is_told_by_the_reader),
	KUNIT_CASE(a_log_that_is_full_is_widened),
	KUNIT_CASE(more_than_there_are_slots_are_one),
	KUNIT_CASE(removing_moves_the_cursor),
	{}
};

static struct kunit_suite suite = {
	.name = "ummunot",
	.init = bench_init,
	.exit = bench_exit,
	.test_cases = cases,
};

kunit_test_suite(suite);
