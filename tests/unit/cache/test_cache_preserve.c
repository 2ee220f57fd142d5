// SPDX-License-Identifier: BSD-2-Clause
/* Ranges that a cache asks its device to preserve when registrations end. */
#include "notify/internal.h" /* before the fixture's names */
#include "cache_pages.h"

#define UNSURE KEDGE_PRESERVE_UNSURE
#define MOVED  (KEDGE_PRESERVE_UNSURE | KEDGE_PRESERVE_MOVED)

static int begin(void **state)
{
	pages_setup(NODEV_PRESERVE, PAGES);
	/* Its events are named. */
	nf = open_uffd();
	open_cache(NULL);
	return 0;
}

static const struct kedge_mr *hold(size_t from, size_t to, uint32_t access)
{
	return get(from, to - from, access);
}

static bool was_kept(size_t from, size_t to, uint32_t access)
{
	uint64_t before = raw_stats().uncached;
	uint32_t cnt = dev->kept_cnt;

	put(hold(from, to, access));
	if (raw_stats().uncached == before)
		return true;
	dev->kept_cnt = cnt;
	return false;
}

/* Memory that was dropped is cached as soon as that is known to be over. */
static void touch(size_t from, size_t to, uint32_t access)
{
	WAIT_FOR(was_kept(from, to, access));
}

static void drop(size_t from, size_t to)
{
	assert_int_equal(madvise(at(from), (to - from) * page, MADV_DONTNEED),
			 0);
}

static void flush(void)
{
	assert_true(kedge_cache_flush(cache) >= 0);
	assert_int_equal(dev->live, 0);
}

static size_t take_as_before(struct kedge_notifier *n, struct queue *q,
			     struct taken *out, size_t max, uint64_t *drained)
{
	size_t cnt = queue_pop(q, out, max);

	*drained = q->first ? 0
			    : atomic_load(&n->page->generation) + n->trips_seen;
	return cnt;
}

/* The next call that was made was this one. */
static void expect(uint32_t n, size_t from, size_t to, uint32_t flags)
{
	assert_true(dev->kept_cnt > n);
	assert_int_equal(dev->kept[n].start, addr_of(at(from)));
	assert_int_equal(dev->kept[n].end, addr_of(at(to)));
	assert_int_equal(dev->kept[n].flags, flags);
}

static void what_may_have_been_written_is_preserved_at_its_end(void **state)
{
	touch(0, 16, WRITE);
	assert_int_equal(dev->kept_cnt, 0);
	flush();
	assert_int_equal(dev->kept_cnt, 1);
	expect(0, 0, 16, 0);
	touch(0, 16, 0);
	flush();
	assert_int_equal(dev->kept_cnt, 1);
}

static void what_another_one_has_is_preserved_with_that(void **state)
{
	touch(0, 4, WRITE);
	touch(4, 8, WRITE);
	assert_int_equal(dev->regs, 2);
	assert_int_equal(dev->deregs, 1);
	assert_int_equal(dev->kept_cnt, 0);
	flush();
	assert_int_equal(dev->kept_cnt, 1);
	expect(0, 0, 8, 0);
}

/* The larger one knows nothing of changes to the smaller one. */
static void what_was_unsure_before_is_not_in_the_larger_one(void **state)
{
	touch(4, 36, WRITE);
	munmap(at(10), page);
	pages_at(at(10), 1);
	touch(0, 40, WRITE);
	assert_int_equal(dev->deregs, 1);
	assert_int_equal(dev->kept_cnt, 1);
	expect(0, 10, 11, UNSURE);
	flush();
	assert_int_equal(dev->kept_cnt, 2);
	expect(1, 0, 40, 0);
}

static void what_was_dropped_is_not_preserved(void **state)
{
	touch(0, 16, WRITE);
	drop(0, 16);
	flush();
	assert_int_equal(dev->kept_cnt, 0);
	touch(0, 16, WRITE);
	drop(4, 6);
	flush();
	assert_int_equal(dev->kept_cnt, 2);
	expect(0, 0, 4, 0);
	expect(1, 6, 16, 0);
	/* Pages between two drops are not known to be dropped. */
	touch(0, 16, WRITE);
	drop(2, 3);
	drop(8, 9);
	flush();
	assert_int_equal(dev->kept_cnt, 5);
	expect(2, 0, 2, 0);
	expect(3, 2, 9, UNSURE);
	expect(4, 9, 16, 0);
	/* Told one by one they are two ranges, of which one is kept in mind. */
	touch(0, 64, WRITE);
	drop(2, 3);
	touch(40, 50, WRITE);
	drop(8, 9);
	flush();
	assert_int_equal(dev->kept_cnt, 9);
	expect(5, 0, 2, 0);
	expect(6, 3, 8, 0);
	expect(7, 8, 9, UNSURE);
	expect(8, 9, 64, 0);
}

static void what_was_unmapped_or_moved_is_said_to_be(void **state)
{
	char *to = new_pages(2);

	touch(0, 16, WRITE);
	munmap(at(4), page);
	flush();
	assert_int_equal(dev->kept_cnt, 3);
	expect(0, 0, 4, 0);
	expect(1, 4, 5, UNSURE);
	expect(2, 5, 16, 0);
	pages_at(at(4), 1);
	touch(0, 16, WRITE);
	assert_ptr_equal(mremap(at(6), page, page,
				MREMAP_MAYMOVE | MREMAP_FIXED, to),
			 to);
	/* A drop beside it takes nothing back. */
	drop(7, 8);
	flush();
	assert_int_equal(dev->kept_cnt, 6);
	expect(3, 0, 6, 0);
	expect(4, 6, 8, MOVED);
	expect(5, 8, 16, 0);
	pages_at(at(6), 1);
}

/* To find what was moved takes a look at the whole process: once is enough. */
static void what_ends_together_is_looked_for_once(void **state)
{
	char *to = new_pages(3);
	uint32_t i, moved = 0;
	size_t n;

	for (n = 0; n < 3; n++)
		touch(20 * n, 20 * n + 10, WRITE);
	for (n = 0; n < 3; n++)
		assert_ptr_equal(mremap(at(20 * n + 5), page, page,
					MREMAP_MAYMOVE | MREMAP_FIXED,
					to + n * page),
				 to + n * page);
	flush();
	assert_int_equal(dev->kept_cnt, 9);
	for (i = 0; i < 9; i++)
		moved += dev->kept[i].flags == MOVED;
	assert_int_equal(moved, 1);
	for (n = 0; n < 3; n++)
		pages_at(at(20 * n + 5), 1);
}

/* As with the kernel module, which tells that something happened, not what. */
static void what_has_no_name_is_preserved_at_once(void **state)
{
	struct notify_ops unnamed = *nf->ops;
	const struct notify_ops *saved = nf->ops;
	const struct kedge_mr *mr;

	unnamed.take = take_as_before;
	nf->ops = &unnamed;
	mr = hold(0, 16, WRITE);
	assert_int_equal(dev->kept_cnt, 1);
	expect(0, 0, 16, 0);
	put(mr);
	flush();
	nf->ops = saved;
	assert_int_equal(dev->kept_cnt, 1);
}

static void what_happens_while_it_is_held_counts(void **state)
{
	const struct kedge_mr *mr = hold(0, 16, WRITE);

	assert_int_equal(kedge_cache_flush(cache), 0);
	munmap(at(4), page);
	pages_at(at(4), 1);
	put(mr);
	assert_int_equal(dev->live, 0);
	assert_int_equal(dev->kept_cnt, 3);
	expect(1, 4, 5, UNSURE);
}

static void change_once(struct nodev *d)
{
	d->on_preserve = NULL;
	munmap(at(0), 16 * page);
	pages_at(at(0), 16);
}

static void what_happens_meanwhile_has_it_done_anew(void **state)
{
	touch(0, 16, WRITE);
	dev->on_preserve = change_once;
	flush();
	assert_int_equal(dev->kept_cnt, 2);
	expect(0, 0, 16, 0);
	expect(1, 0, 16, UNSURE);
}

static void change_always(struct nodev *d)
{
	/* It is watched still, which an munmap would end; with a gap. */
	drop(0, 1);
	drop(3, 4);
}

static void what_never_ends_is_everywhere(void **state)
{
	touch(0, 16, WRITE);
	dev->on_preserve = change_always;
	flush();
	dev->on_preserve = NULL;
	assert_true(dev->kept_cnt > 2 && dev->kept_cnt < 30);
	expect(dev->kept_cnt - 1, 0, 16, MOVED);
}

static void what_is_not_watched_is_preserved_at_once(void **state)
{
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "none" };
	struct kedge_notifier *none;
	struct kedge_cache *c;
	const struct kedge_mr *mr;

	assert_int_equal(kedge_notifier_open(&o, &none), 0);
	assert_int_equal(kedge_cache_open(dev->dev, none, NULL, &c), 0);
	assert_int_equal(kedge_cache_get(c, mem, page, WRITE, &mr), 0);
	assert_int_equal(dev->kept_cnt, 1);
	expect(0, 0, 1, 0);
	kedge_cache_put(c, mr);
	kedge_cache_close(c);
	assert_int_equal(dev->kept_cnt, 1);
	kedge_notifier_close(none);
}

static void get_the_same(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	touch(0, 16, WRITE);
}

static void what_nobody_got_is_not_preserved(void **state)
{
	dev->on_reg = get_the_same;
	touch(0, 16, WRITE);
	assert_int_equal(dev->regs, 2);
	assert_int_equal(dev->deregs, 1);
	assert_int_equal(dev->kept_cnt, 0);
	flush();
	assert_int_equal(dev->kept_cnt, 1);
}

/* The notifier outlives the cache. */
static void what_is_held_at_the_close_is_not_watched(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	const struct kedge_mr *mr = hold(0, 16, WRITE);
	struct kedge_device_mr raw = { .handle = mr->device_handle };

	close_cache();
	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	assert_int_equal(info.watches, 0);
	drop(0, 16);
	/* The registration is the device's to end. */
	assert_int_equal(dev->live, 1);
	dev->alive[raw.handle % NODEV_HANDLES] = 0;
	dev->live = 0;
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, begin, teardown)
#define NEEDED need_uffd
#include "test_cache_preserve.cases.h"
