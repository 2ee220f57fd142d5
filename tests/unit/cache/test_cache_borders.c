// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cache's rules at their borders, where a slip of one character would go
 * unnoticed elsewhere: rights side by side, exactly half of a region, two losses
 * in one, a put in a forked child.
 */
#include "cache_pages.h"

/* Returns the number of pieces; each gives the access asked for. */
static size_t getv(size_t first, size_t cnt, uint32_t access)
{
	struct kedge_piece p[PAGES];
	ssize_t n = kedge_cache_getv(cache, at(first), cnt * page, access, p,
				     PAGES), i;

	assert_true(n > 0);
	for (i = 0; i < n; i++)
		assert_int_equal(p[i].mr->access & access, access);
	kedge_cache_putv(cache, p, (size_t)n);
	return (size_t)n;
}

static void pieces_give_the_access_asked_for(void **state)
{
	assert_int_equal(getv(0, 2 * CHUNK, 0), 2);
	assert_int_equal(getv(CHUNK, 2 * CHUNK, WRITE), 2);
	assert_int_equal(getv(0, 3 * CHUNK, WRITE), 3);
	assert_int_equal(getv(0, 3 * CHUNK, 0), 3);
	/* One each, and once more for the two that could only be read. */
	assert_int_equal(dev->regs, 5);
	/* Of a region with holes, too. */
	pages_at(at(1), 1);
	assert_int_equal(getv(2, 4, 0), 1);
	assert_int_equal(dev->regs, 5);
	get_put(4 * CHUNK, CHUNK, 0);
	pages_at(at(4 * CHUNK + 1), 1);
	getv(4 * CHUNK + 2, 4, WRITE);
}

static void rights_side_by_side_are_kept_apart(void **state)
{
	get_put(0, 1, WRITE);
	get_put(1, 1, 0);
	assert_true(is_hit(0, 1, WRITE));
	assert_true(is_hit(1, 1, 0));
	get_put(10, 1, 0);
	get_put(11, 1, WRITE);
	assert_true(is_hit(10, 1, 0));
	assert_int_equal(dev->last_len, page);
	assert_int_equal(stats().merges, 0);
	assert_int_equal(dev->live, 4);
}

static void half_of_a_region_is_worth_keeping(void **state)
{
	get_put(0, CHUNK, WRITE);
	/* Exactly half, in two parts: the rest goes on serving. */
	pages_at(at(0), CHUNK / 4);
	get_put(CHUNK / 2, CHUNK / 2, WRITE);
	pages_at(at(CHUNK / 4), CHUNK / 4);
	assert_true(is_hit(CHUNK / 2, CHUNK / 2, WRITE));
	assert_int_equal(dev->deregs, 0);
	/* A page more, and it goes. */
	pages_at(at(CHUNK / 2), 1);
	assert_false(is_hit(CHUNK - 1, 1, WRITE));
	assert_int_equal(dev->deregs, 1);
}

static void a_small_region_goes_whole(void **state)
{
	size_t small = ((size_t)64 << 10) / page;

	get_put(0, small, WRITE);
	pages_at(at(0), 1);
	assert_false(is_hit(small - 1, 1, WRITE));
	get_put(CHUNK, small + 1, WRITE);
	pages_at(at(CHUNK), 1);
	assert_true(is_hit(CHUNK + small, 1, WRITE));
}

static void two_losses_in_one_region_are_made_good(void **state)
{
	get_put(0, 4 * CHUNK, WRITE);
	pages_at(at(1), 1);
	get_put(4, 1, WRITE); /* the one is read before the other comes */
	pages_at(at(2 * CHUNK + 1), 1);
	get_put(4, 1, WRITE);
	assert_int_equal(dev->regs, 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 2 * CHUNK * page);
	assert_int_equal(dev->regs, 3);
	assert_true(is_hit(0, CHUNK, WRITE));
	assert_true(is_hit(2 * CHUNK, CHUNK, WRITE));
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 0);
	assert_int_equal(stats().resynced, 2);
}

/* A region that began in the middle of a chunk is made good from there on. */
static void a_resync_keeps_to_the_region(void **state)
{
	get_put(CHUNK / 4, CHUNK + CHUNK / 2, WRITE);
	pages_at(at(CHUNK / 4), 1);
	get_put(CHUNK / 2, 1, WRITE); /* or they would be one loss */
	pages_at(at(CHUNK + CHUNK / 2), 1);
	assert_int_equal(kedge_cache_resync(cache, at(0), CHUNK * page),
			 CHUNK / 4 * 3 * page);
	assert_int_equal(dev->last_addr, addr_of(at(CHUNK / 4)));
	/* Not a chunk that begins where the area ends. */
	assert_int_equal(kedge_cache_resync(cache, at(0), CHUNK * page), 0);
	assert_int_equal(kedge_cache_resync(cache, at(2 * CHUNK), page), 0);
	assert_int_equal(kedge_cache_resync(cache, at(CHUNK), page),
			 CHUNK / 4 * 3 * page);
	assert_int_equal(dev->last_addr, addr_of(at(CHUNK)));
}

static void chunks_are_powers_of_two(void **state)
{
	open_with((struct kedge_cache_opts){ .chunk_bytes = 3 * page });
	assert_int_equal(kedge_cache_hint(cache, at(0), 8 * page, WRITE),
			 8 * page);
	assert_int_equal(dev->regs, 4);
}

/* Unwatched memory costs its users nothing. */
static void what_was_flushed_is_not_watched(void **state)
{
	uint64_t before;

	get_put(0, CHUNK, WRITE);
	pages_at(at(0), 1);
	get_put(0, CHUNK, WRITE);
	assert_int_equal(kedge_cache_flush(cache), 1);
	before = kedge_notifier_generation(nf);
	pages_at(at(0), CHUNK);
	assert_int_equal(kedge_notifier_generation(nf), before);
}

static void a_wrong_length_is_no_hit(void **state)
{
	const struct kedge_mr *mr = NULL;
	struct kedge_piece p;

	get_put(0, 4, WRITE);
	assert_int_equal(kedge_cache_get(cache, at(1), 0, 0, &mr), -EINVAL);
	assert_int_equal(kedge_cache_get(cache, at(1), SIZE_MAX, 0, &mr),
			 -EINVAL);
	assert_int_equal(kedge_cache_get(cache, at(1), SIZE_MAX - addr_of(mem),
					 0, &mr), -EINVAL);
	assert_int_equal(kedge_cache_getv(cache, at(1), 0, 0, &p, 1), -EINVAL);
	assert_null(mr);
	/* A byte too many, at either end, after a hit. */
	assert_true(is_hit(0, 4, WRITE));
	assert_int_equal(kedge_cache_get(cache, at(3), page + 1, 0, &mr), 0);
	assert_true(mr->addr + mr->len > addr_of(at(4)));
	kedge_cache_put(cache, mr);
	get_put(10, 1, WRITE);
	assert_int_equal(kedge_cache_get(cache, at(10) - 1, 2, 0, &mr), 0);
	assert_true(mr->addr < addr_of(at(10)));
	kedge_cache_put(cache, mr);
}

static const struct kedge_mr *held;

static int put_in_child(void *arg)
{
	kedge_cache_put(cache, held);
	CHILD_CHECK(dev->deregs == 0);
	kedge_cache_close(cache);
	CHILD_CHECK(dev->deregs == 0);
	return 0;
}

static void a_child_ends_nothing_that_is_dying(void **state)
{
	need_threads_after_fork(); /* before anything is held */
	held = get(0, 1, WRITE);
	assert_int_equal(kedge_cache_flush(cache), 0);
	assert_int_equal(in_child(put_in_child, NULL), 0);
	assert_int_equal(in_raw_child(put_in_child, NULL), 0);
	assert_int_equal(dev->live, 1);
	kedge_cache_put(cache, held);
	assert_int_equal(dev->live, 0);
}

/* ---- caches that were given no notifier ---- */

/* Two devices, each with a cache of NULL options, and one buffer. */
static int both_keep_it(void)
{
	struct nodev *d[2] = { nodev_new_with(0), nodev_new_with(0) };
	char *p = new_pages(16);
	struct kedge_cache *c[2];
	const struct kedge_mr *mr;
	int i, j, bad = 0;

	for (i = 0; i < 2; i++)
		bad += !!kedge_cache_open(d[i]->dev, NULL, NULL, &c[i]);
	for (j = 0; j < 2 && !bad; j++)
		for (i = 0; i < 2 && !bad; i++) {
			bad += !!kedge_cache_get(c[i], p, 16 * page_len(),
						 WRITE, &mr);
			kedge_cache_put(c[i], mr);
		}
	bad += d[0]->regs != 1 || d[1]->regs != 1;
	for (i = 0; i < 2; i++)
		kedge_cache_close(c[i]);
	nodev_free(d[0]);
	nodev_free(d[1]);
	free_pages(p, 16);
	return bad;
}

static void caches_without_a_notifier_share_one(void **state)
{
	struct nodev *d;
	struct kedge_cache *c;
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(both_keep_it(), 0);
	/* A child has one of its own, and closes what it has of its parent's. */
	d = nodev_new_with(0);
	assert_int_equal(kedge_cache_open(d->dev, NULL, NULL, &c), 0);
	pid = fork();
	if (!pid) {
		CHILD_CHECK(!both_keep_it());
		kedge_cache_close(c);
		CHILD_CHECK(!both_keep_it());
		_exit(0);
	}
	ended_well(pid);
	kedge_cache_close(c);
	nodev_free(d);
	assert_int_equal(both_keep_it(), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(caches_without_a_notifier_share_one),
		OPEN(pieces_give_the_access_asked_for),
		OPEN(rights_side_by_side_are_kept_apart),
		OPEN(half_of_a_region_is_worth_keeping),
		OPEN(a_small_region_goes_whole),
		OPEN(two_losses_in_one_region_are_made_good),
		OPEN(a_resync_keeps_to_the_region),
		OPEN(chunks_are_powers_of_two),
		OPEN(what_was_flushed_is_not_watched),
		OPEN(a_wrong_length_is_no_hit),
		OPEN(a_child_ends_nothing_that_is_dying),
	};

	return RUN_CASES(tests, argc, argv);
}
