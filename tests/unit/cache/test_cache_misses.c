// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registrations of a miss, at the rules' borders: the neighbours that it takes in,
 * its course when the memory or another thread is faster, and those that go for it.
 */
#include "notify/internal.h"

#include "cache_pages.h"

/* Those within the block that holds the range; what they were is not registered any more. */
static void ranges_over_borders_of_chunks_are_joined(void **state)
{
	assert_int_equal(kedge_cache_hint(cache, at(0), PAGES * page, WRITE), PAGES * page);
	assert_int_equal(dev->regs, PAGES / CHUNK);
	get_put(CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_addr, addr_of(at(0)));
	assert_int_equal(dev->last_len, 2 * CHUNK * page);
	assert_int_equal(dev->live, PAGES / CHUNK - 1);
	assert_true(is_hit(0, 2 * CHUNK, WRITE));
	get_put(2 * CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_addr, addr_of(at(0)));
	assert_int_equal(dev->last_len, 4 * CHUNK * page);
	get_put(5 * CHUNK + 1, 2 * CHUNK, WRITE);
	assert_int_equal(dev->last_addr, addr_of(at(4 * CHUNK)));
	assert_int_equal(dev->last_len, 4 * CHUNK * page);
	get_put(4 * CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, PAGES * page);
	assert_int_equal(dev->live, 1);
	assert_true(is_hit(0, PAGES, WRITE));
}

static void borders_are_joined_up_to_the_devices_limit(void **state)
{
	dev->attr.max_len = 2 * CHUNK * page;
	open_with((struct kedge_cache_opts){ 0 });
	assert_int_equal(kedge_cache_hint(cache, at(0), 4 * CHUNK * page, WRITE),
			 4 * CHUNK * page);
	get_put(CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * CHUNK * page);
	get_put(2 * CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * page);
}

static void no_other_goes_for_a_join(void **state)
{
	open_with((struct kedge_cache_opts){ .max_bytes = 5 * CHUNK * page });
	get_put(4 * CHUNK, CHUNK, WRITE);
	assert_int_equal(kedge_cache_hint(cache, at(0), 2 * CHUNK * page, WRITE),
			 2 * CHUNK * page);
	get_put(CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * CHUNK * page);
	/* With the four chunks beside, six would be registered for a while. */
	get_put(2 * CHUNK, 2 * CHUNK, WRITE);
	get_put(2 * CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * page);
	/* The limit is the device's, and not known before. */
	open_with((struct kedge_cache_opts){ 0 });
	get_put(4 * CHUNK, CHUNK, WRITE);
	assert_int_equal(kedge_cache_hint(cache, at(0), 2 * CHUNK * page, WRITE),
			 2 * CHUNK * page);
	dev->fail_rc = -ENOMEM;
	dev->fail_cnt = 1;
	get_put(CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * page);
	assert_int_equal(stats().evictions, 0);
	assert_true(is_hit(4 * CHUNK, CHUNK, WRITE));
}

/* One chunk is not registered, or has lost a page: the range is registered alone. */
static void a_border_with_a_gap_is_not_joined(void **state)
{
	assert_int_equal(kedge_cache_hint(cache, at(0), 2 * CHUNK * page, WRITE),
			 2 * CHUNK * page);
	get_put(2 * CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * page);
	pages_at(at(1), 1);
	get_put(CHUNK - 1, 2, WRITE);
	assert_int_equal(dev->last_len, 2 * page);
}

static void a_longer_neighbour_is_left_alone(void **state)
{
	get_put(0, 16, WRITE);
	get_put(16, 7, WRITE);
	assert_int_equal(dev->last_len, 7 * page);
	assert_int_equal(stats().merges, 0);
	/* One that is as long is not. */
	get_put(23, 7, WRITE);
	assert_int_equal(dev->last_len, 14 * page);
	assert_int_equal(stats().merges, 1);
}

static void a_neighbour_with_holes_is_left_alone(void **state)
{
	open_with((struct kedge_cache_opts){ .merge_bytes = PAGES * page });
	get_put(0, CHUNK, WRITE);
	pages_at(at(1), 1);
	get_put(CHUNK, CHUNK, WRITE);
	assert_int_equal(dev->last_len, CHUNK * page);
	assert_true(is_hit(2, CHUNK - 2, WRITE));
}

static void merging_goes_up_to_its_limit(void **state)
{
	open_with((struct kedge_cache_opts){ .merge_bytes = 4 * page });
	get_put(0, 2, WRITE);
	get_put(2, 2, WRITE);
	assert_int_equal(dev->last_len, 4 * page);
	get_put(4, 4, WRITE);
	assert_int_equal(dev->last_len, 4 * page);
}

static void merging_goes_up_to_the_devices_limit(void **state)
{
	dev->attr.max_len = 4 * page;
	open_with((struct kedge_cache_opts){ .merge_bytes = PAGES * page });
	get_put(0, 2, WRITE);
	get_put(2, 2, WRITE);
	assert_int_equal(dev->last_len, 4 * page);
	get_put(4, 4, WRITE);
	assert_int_equal(dev->last_len, 4 * page);
	assert_int_equal(stats().merges, 1);
}

/* The neighbour may be why: what was asked for is tried alone. */
static void a_merge_that_fails_is_tried_without(void **state)
{
	get_put(0, 1, WRITE);
	dev->fail_rc = -EIO;
	dev->fail_cnt = 1;
	get_put(1, 1, WRITE);
	assert_int_equal(dev->last_addr, addr_of(at(1)));
	assert_int_equal(dev->last_len, page);
	assert_int_equal(stats().bytes, 2 * page);
	assert_int_equal(stats().failures, 0);
}

/* A right given to a peer has nothing to do with what is kept beside it. */
static void what_is_lent_has_the_access_asked_for(void **state)
{
	const struct kedge_mr *mr;

	get_put(0, 1, WRITE);
	mr = get(0, 1, KEDGE_ACCESS_REMOTE_READ);
	assert_int_equal(dev->last_access, KEDGE_ACCESS_REMOTE_READ);
	assert_int_equal(mr->access, KEDGE_ACCESS_REMOTE_READ);
	kedge_cache_put(cache, mr);
}

static void beneath_windows_access_is_local(void **state)
{
	struct kedge_piece p[2];

	open_with((struct kedge_cache_opts){ 0 });
	assert_int_equal(kedge_cache_getv(cache, at(0), 2 * CHUNK * page,
					  KEDGE_ACCESS_REMOTE_WRITE, p, 2), 2);
	kedge_cache_putv(cache, p, 2);
	assert_int_equal(dev->windows, 0);
	assert_int_equal(kedge_cache_getv(cache, at(0), 2 * CHUNK * page,
					  WRITE, p, 2), 2);
	assert_int_equal(p[0].mr->access, WRITE);
	assert_int_equal(p[1].mr->access, WRITE);
	kedge_cache_putv(cache, p, 2);
	assert_int_equal(dev->regs, 2);
}

/* ---- while the device is at it ---- */

static void get_the_same(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	get_put(0, 4, WRITE);
}

/* As another thread would be: its registration stays, and this one goes. */
static void the_faster_one_stays(void **state)
{
	const struct kedge_mr *mr;

	dev->on_reg = get_the_same;
	mr = get(0, 4, WRITE);
	assert_int_equal(mr->device_handle, 1);
	kedge_cache_put(cache, mr);
	assert_int_equal(dev->regs, 2);
	assert_int_equal(dev->live, 1);
	assert_true(is_hit(0, 4, WRITE));
}

static unsigned int first_change, second_change;

/* Two changes, of which the cache learns one after the other. */
static void change_twice(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	pages_at(at(first_change), 1);
	get_put(2 * CHUNK, 1, WRITE);
	pages_at(at(second_change), 1);
}

static void changes_of_a_merged_range(unsigned int first, unsigned int second)
{
	const struct kedge_mr *mr;
	uint64_t regs;

	get_put(0, 2, WRITE);
	get_put(6, 2, WRITE);
	first_change = first;
	second_change = second;
	dev->on_reg = change_twice;
	regs = dev->regs;
	mr = get(2, 4, WRITE);
	/* The one elsewhere, that whose pages changed, and one more. */
	assert_int_equal(dev->regs, regs + 3);
	kedge_cache_put(cache, mr);
	assert_int_equal(stats().uncached, 0);
}

static void a_change_before_another_counts(void **state)
{
	changes_of_a_merged_range(7, 3);
}

static void a_change_after_another_counts(void **state)
{
	changes_of_a_merged_range(0, 3);
}

/* The first is in what was asked for, and the second is not. */
static void the_first_change_is_not_forgotten(void **state)
{
	changes_of_a_merged_range(3, 7);
}

static void the_first_change_is_not_forgotten_for_one_below(void **state)
{
	changes_of_a_merged_range(3, 0);
}

static void change_always(struct nodev *d, void *addr, size_t len)
{
	pages_at(addr, 1);
}

/* In the end it is used once, and not kept. */
static void what_never_rests_is_not_kept(void **state)
{
	dev->on_reg = change_always;
	get_put(0, 1, WRITE);
	dev->on_reg = NULL;
	assert_int_equal(dev->live, 0);
	assert_int_equal(stats().uncached, 1);
	assert_int_equal(stats().failures, 0);
}

/* ---- who goes ---- */

static void as_many_bytes_go_as_are_short(void **state)
{
	size_t i;

	for (i = 0; i < 5; i++)
		get_put(2 * i, 1, WRITE);
	dev->fail_rc = -ENOMEM;
	dev->fail_cnt = 1;
	get_put(CHUNK, 3, WRITE);
	assert_int_equal(stats().evictions, 3);
}

static void a_hint_drives_nothing_out(void **state)
{
	dev->max_live = 2;
	get_put(0, 1, WRITE);
	get_put(2, 1, WRITE);
	assert_int_equal(kedge_cache_hint(cache, at(CHUNK), page, WRITE),
			 -ENOSPC);
	assert_int_equal(stats().evictions, 0);
	assert_true(is_hit(0, 1, WRITE));
	assert_true(is_hit(2, 1, WRITE));
}

static void pieces_are_uses(void **state)
{
	struct kedge_piece p;

	open_with((struct kedge_cache_opts){ .max_regions = 2 });
	get_put(0, 1, WRITE);
	get_put(2, 1, WRITE);
	assert_int_equal(kedge_cache_getv(cache, at(0), 1, WRITE, &p, 1), 1);
	kedge_cache_putv(cache, &p, 1);
	get_put(4, 1, WRITE);
	assert_true(is_hit(0, 1, WRITE));
	assert_false(is_hit(2, 1, WRITE));
}

static unsigned int asked;

static bool never_settled(struct kedge_notifier *unused)
{
	asked++;
	return false;
}

/* Another thread drops pages without a pause, so each answer is that a change is under way. */
static void a_miss_does_not_wait_for_changes_of_others(void **state)
{
	const struct notify_ops *real = nf->ops;
	struct notify_ops ops = *real;

	get_put(0, 1, WRITE);
	get_put(16, 1, WRITE);
	ops.settled = never_settled;
	nf->ops = &ops;
	sig_lock(&nf->lock);
	notify_must_ask(nf, ASKS_KERNEL);
	sig_unlock(&nf->lock);
	asked = 0;
	get_put(8, 1, WRITE);
	assert_in_range(asked, 1, 2);
	/* Where a registration is lost there is none to wait for. */
	pages_at(at(16), 1);
	asked = 0;
	get_put(16, 1, WRITE);
	assert_in_range(asked, 1, 2);
	/* Here waiting may spare one. */
	asked = 0;
	assert_false(is_hit(0, 1, WRITE));
	assert_true(asked > 2);
	nf->ops = real;
	assert_true(is_hit(0, 1, WRITE));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		OPEN(ranges_over_borders_of_chunks_are_joined),
		OPEN(borders_are_joined_up_to_the_devices_limit),
		OPEN(no_other_goes_for_a_join),
		OPEN(a_border_with_a_gap_is_not_joined),
		OPEN(a_longer_neighbour_is_left_alone),
		OPEN(a_neighbour_with_holes_is_left_alone),
		OPEN(merging_goes_up_to_its_limit),
		OPEN(merging_goes_up_to_the_devices_limit),
		OPEN(a_merge_that_fails_is_tried_without),
		OPEN(what_is_lent_has_the_access_asked_for),
		cmocka_unit_test_setup_teardown(beneath_windows_access_is_local,
						setup_windows, teardown),
		OPEN(the_faster_one_stays),
		OPEN(a_change_before_another_counts),
		OPEN(a_change_after_another_counts),
		OPEN(the_first_change_is_not_forgotten),
		OPEN(the_first_change_is_not_forgotten_for_one_below),
		OPEN(what_never_rests_is_not_kept),
		OPEN(as_many_bytes_go_as_are_short),
		OPEN(a_hint_drives_nothing_out),
		OPEN(pieces_are_uses),
		OPEN(a_miss_does_not_wait_for_changes_of_others),
	};

	return RUN_CASES(tests, argc, argv);
}
