// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cache as its user sees it, over a device that registers nothing and
 * counts. The teardown of every case checks that nothing was left or lost.
 */
#include "cache_pages.h"

/* All that the device was asked for is the cache's. */
static int ends(void **state)
{
	struct kedge_cache_stats st;

	if (cache) {
		st = stats();
		assert_int_equal(st.registrations, dev->regs);
		assert_int_equal(st.deregistrations, dev->deregs);
	}
	return teardown(state);
}

/* True: the notifier that the cache takes here is the kernel module. */
static bool exact(void)
{
	struct kedge_backend_info info = { .size = sizeof(info) };

	return !kedge_backend_probe(0, &info) && !info.rc;
}

static const struct kedge_mr *get_bytes(const void *p, size_t len)
{
	const struct kedge_mr *mr = get_at(p, len, WRITE);

	assert_int_equal(mr->addr % page, 0);
	assert_int_equal(mr->len % page, 0);
	assert_int_equal(mr->offset, mr->addr);
	return mr;
}

/* True: a get of it is a hit; it is put again. */
static bool hits(const void *p, size_t len)
{
	uint64_t regs = dev->regs;

	put(get_bytes(p, len));
	return dev->regs == regs;
}

static void a_range_within_a_region_is_a_hit(void **state)
{
	const struct kedge_mr *a, *b;
	struct kedge_cache_stats st;

	a = get_bytes(at(4) + 100, 2 * page);
	assert_int_equal(a->addr, addr_of(at(4)));
	assert_int_equal(a->len, 3 * page);
	b = get_bytes(at(5), 1);
	assert_ptr_equal(a, b);
	put(b);
	b = get_bytes(at(6) + page - 1, 1);
	assert_ptr_equal(a, b);
	put(b);
	put(a);
	assert_true(hits(at(4), 3 * page));
	assert_false(hits(at(7), 1));
	st = stats();
	assert_int_equal(st.gets, 5);
	assert_int_equal(st.hits, 3);
	assert_int_equal(st.misses, 2);
	assert_int_equal(st.uncached, 0);
	put(NULL);
}

static void bytes_are_counted(void **state)
{
	struct kedge_cache_stats st;

	put(get_bytes(at(0), page));
	put(get_bytes(at(8), 2 * page));
	st = stats();
	assert_int_equal(st.bytes, 3 * page);
	assert_int_equal(st.bytes_peak, 3 * page);
	assert_int_equal(kedge_cache_flush(cache), 2);
	st = stats();
	assert_int_equal(st.bytes, 0);
	assert_int_equal(st.bytes_peak, 3 * page);
	assert_int_equal(st.regions, 0);
}

static void more_access_is_another_registration(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };
	const struct kedge_mr *ro, *rw;

	o.flags = KEDGE_CACHE_TRUSTED_PEERS;
	open_cache(&o);
	ro = get_at(at(0), 2 * page, KEDGE_ACCESS_REMOTE_READ);
	rw = get_at(at(0), page, WRITE);
	assert_ptr_not_equal(ro, rw);
	/* The new one serves both; the old one lives while it is held. */
	assert_int_equal(rw->access & KEDGE_ACCESS_REMOTE_READ,
			 KEDGE_ACCESS_REMOTE_READ);
	assert_true(dev->alive[ro->device_handle]);
	put(ro);
	put(rw);
	assert_true(hits(at(0), page));
	put(get_at(at(0), page, KEDGE_ACCESS_REMOTE_READ));
	assert_int_equal(dev->regs, 2);
}

static void neighbours_merge_into_one_region(void **state)
{
	struct kedge_cache_stats st;
	size_t i;

	/* However small the steps, a page is registered O(log n) times. */
	for (i = 0; i < PAGES; i++)
		put(get_bytes(at(i), page));
	st = stats();
	assert_true(st.merges > 0);
	assert_true(st.regions < PAGES / 2);
	assert_true(st.bytes < 3 * PAGES * page);
	put(get_bytes(mem, PAGES * page));
	st = stats();
	assert_int_equal(st.regions, 1);
	assert_int_equal(st.bytes, PAGES * page);
}

static void a_merge_leaves_what_is_in_flight(void **state)
{
	const struct kedge_mr *old, *merged;
	uint64_t handle;

	old = get_bytes(at(0), page);
	handle = old->device_handle;
	merged = get_bytes(at(1), page);
	assert_int_equal(merged->addr, addr_of(at(0)));
	assert_int_equal(merged->len, 2 * page);
	assert_int_equal(stats().merges, 1);
	assert_int_equal(old->device_handle, handle);
	assert_int_equal(old->len, page);
	assert_true(dev->alive[handle]);
	put(old);
	assert_false(dev->alive[handle]);
	put(merged);
	assert_true(hits(at(0), 2 * page));
}

static void merge_bytes_bounds_it(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };
	const struct kedge_mr *mr;

	o.merge_bytes = 2 * page;
	open_cache(&o);
	put(get_bytes(at(0), page));
	put(get_bytes(at(1), page));
	mr = get_bytes(at(2), page);
	assert_int_equal(mr->len, page);
	put(mr);
	/* A range asked for at once is registered at once. */
	mr = get_bytes(at(0), 8 * page);
	assert_int_equal(mr->len, 8 * page);
	put(mr);
}

static void an_unmap_ends_what_nobody_holds(void **state)
{
	struct kedge_cache_stats st;
	const struct kedge_mr *mr;

	mr = get_bytes(at(0), page);
	put(mr);
	pages_at(at(0), 1);
	assert_false(hits(at(0), page));
	st = stats();
	assert_int_equal(st.invalidations, 1);
	assert_true(st.resyncs >= 1);
	assert_int_equal(st.regions, 1);
}

static void what_is_held_outlives_an_unmap(void **state)
{
	const struct kedge_mr *old, *new;

	old = get_bytes(at(0), page);
	pages_at(at(0), 1);
	new = get_bytes(at(0), page);
	assert_ptr_not_equal(old, new);
	assert_true(dev->alive[old->device_handle]);
	put(old);
	assert_int_equal(dev->live, 1);
	put(new);
	assert_int_equal(dev->live, 1);
	assert_true(hits(at(0), page));
}

static void an_unmapped_range_is_efault(void **state)
{
	const struct kedge_mr *mr = NULL;

	put(get_bytes(at(0), 2 * page));
	assert_int_equal(munmap(at(1), page), 0);
	assert_int_equal(kedge_cache_get(cache, at(1), 1, 0, &mr), -EFAULT);
	assert_int_equal(kedge_cache_get(cache, at(0), 2 * page, 0, &mr),
			 -EFAULT);
	assert_null(mr);
	assert_int_equal(stats().failures, 2);
	assert_int_equal(kedge_cache_hint(cache, at(1), 1, 0), -EFAULT);
}

static void of_a_large_region_only_the_pages_go(void **state)
{
	uint64_t regs;

	put(get_bytes(mem, PAGES * page));
	pages_at(at(20), 1);
	regs = dev->regs;
	assert_true(hits(at(0), 20 * page));
	assert_true(hits(at(21), (PAGES - 21) * page));
	assert_int_equal(dev->regs, regs);
	assert_false(hits(at(20), 1));
	assert_int_equal(dev->last_len, page);
	assert_true(hits(at(20), 1));
	assert_int_equal(dev->regs, regs + 1);
	/* Over both: neither serves it alone. */
	assert_false(hits(at(19), 3 * page));
	assert_true(hits(at(19), 3 * page));
}

#define GIB	 ((size_t)1 << 30)
#define LARGE	 ((size_t)16 << 20)
#define HUGE	 ((size_t)2 << 20)

static void a_hint_registers_in_chunks(void **state)
{
	char *big = mmap(NULL, GIB, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct kedge_cache_opts o = { .size = sizeof(o) };
	size_t i, near;

	assert_ptr_not_equal(big, MAP_FAILED);
	o.chunk_bytes = LARGE;
	open_cache(&o);
	assert_int_equal(kedge_cache_hint(cache, big, GIB,
					  WRITE), GIB);
	assert_in_range(dev->regs, GIB / LARGE, GIB / LARGE + 1);
	assert_int_equal(stats().bytes, GIB);
	for (i = 0; i < GIB; i += (size_t)1 << 20)
		assert_true(hits(big + i, page));
	/* Hinted again: nothing to do. */
	i = dev->regs;
	assert_int_equal(kedge_cache_hint(cache, big, GIB,
					  WRITE), GIB);
	assert_int_equal(dev->regs, i);
	/* One page exchanged costs one chunk at the most. */
	pages_at(big + GIB / 2, 1);
	assert_true(hits(big, 1));
	/*
	 * The kernel module is told of the whole huge page that the new
	 * mapping's border might split.
	 */
	near = exact() ? HUGE : page;
	assert_true(hits(big + GIB / 2 - near, page));
	assert_true(hits(big + GIB / 2 + near, page));
	assert_false(hits(big + GIB / 2, page));
	assert_int_equal(dev->regs, i + 1);
	assert_true(dev->last_len <= LARGE);
	assert_true(hits(big + GIB - page, page));
	assert_int_equal(munmap(big, GIB), 0);
}

static void limited(uint64_t bytes, uint64_t regions)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };

	o.max_bytes = bytes;
	o.max_regions = regions;
	open_cache(&o);
}

/* Pages 0, 2, 4, 6 are registered in this order; 0 is used again. */
static void fill_four(void)
{
	size_t i;

	for (i = 0; i < 4; i++)
		put(get_bytes(at(2 * i), page));
	assert_int_equal(dev->regs, 4);
	assert_true(hits(at(0), 1));
}

static void expect_lru_gone(void)
{
	assert_false(hits(at(8), page));
	assert_int_equal(dev->live, 4);
	assert_int_equal(stats().evictions, 1);
	assert_true(hits(at(0), 1));
	assert_true(hits(at(4), 1));
	assert_true(hits(at(6), 1));
	assert_true(hits(at(8), 1));
	assert_false(hits(at(2), 1));
}

static void the_least_used_goes_beyond_max_regions(void **state)
{
	limited(0, 4);
	fill_four();
	expect_lru_gone();
}

static void the_least_used_goes_beyond_max_bytes(void **state)
{
	limited(4 * page, 0);
	fill_four();
	expect_lru_gone();
}

static void a_long_one_costs_one_place(void **state)
{
	limited(0, 4);
	fill_four();
	/* One place is needed: it is one that goes, whatever its length. */
	put(get_bytes(at(16), 16 * page));
	assert_int_equal(dev->live, 4);
	assert_int_equal(stats().evictions, 1);
	assert_true(hits(at(16), 16 * page));
}

static void what_never_fits_drives_nothing_out(void **state)
{
	limited(4 * page, 0);
	fill_four();
	put(get_bytes(at(16), 16 * page));
	assert_int_equal(stats().uncached, 1);
	assert_int_equal(dev->live, 4);
	assert_true(hits(at(0), 1));
	assert_int_equal(stats().evictions, 0);
}

static void what_is_held_is_not_evicted(void **state)
{
	const struct kedge_mr *held[4], *mr;
	size_t i;

	limited(4 * page, 0);
	for (i = 0; i < 4; i++)
		held[i] = get_bytes(at(2 * i), page);
	/* All in use: this one lives until its put. */
	mr = get_bytes(at(8), page);
	for (i = 0; i < 4; i++)
		assert_true(dev->alive[held[i]->device_handle]);
	put(mr);
	assert_int_equal(dev->live, 4);
	assert_int_equal(stats().uncached, 1);
	for (i = 0; i < 4; i++)
		put(held[i]);
	assert_true(hits(at(6), 1));
}

/* Only the kernel module sees what happens to a file behind a mapping. */
static void a_file_mapping_is_not_kept_unseen(void **state)
{
	int fd = memfd_create("kedge-test", MFD_CLOEXEC);
	struct kedge_cache_stats st;
	char *p;

	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_false(hits(p, page));
	if (exact()) {
		assert_true(hits(p, page));
		*p = 1;
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(ftruncate(fd, (off_t)page), 0);
		assert_false(hits(p, page));
		goto out;
	}
	assert_false(hits(p, page));
	assert_int_equal(dev->live, 0);
	st = stats();
	assert_int_equal(st.uncached, 2);
	assert_int_equal(st.misses, 2);
	assert_int_equal(kedge_cache_hint(cache, p, 1, 0), -EOPNOTSUPP);
	assert_int_equal(dev->live, 0);
out:
	munmap(p, page);
	close(fd);
}

static void a_flush_leaves_what_is_held(void **state)
{
	const struct kedge_mr *mr;

	put(get_bytes(at(0), page));
	mr = get_bytes(at(8), page);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_true(dev->alive[mr->device_handle]);
	assert_int_equal(dev->live, 1);
	/* It left the index. */
	assert_false(hits(at(8), page));
	put(mr);
	assert_int_equal(dev->live, 1);
	assert_int_equal(kedge_cache_flush(cache), 1);
	assert_int_equal(kedge_cache_flush(cache), 0);
}

/* Memory that is dropped and used again, over and over, is soon kept again. */
static void dropped_memory_is_kept_again(void **state)
{
	size_t kept = 0, i;

	for (i = 0; i < 200; i++) {
		mem[0] = 1;
		put(get_bytes(mem, page));
		assert_int_equal(madvise(mem, page, MADV_DONTNEED), 0);
		mem[0] = 1;
		assert_false(hits(mem, page));
		kept += hits(mem, page);
	}
	print_message("kept after a drop: %zu of 200\n", kept);
	pages_at(mem, 1);
	/* A sanitizer's thread may have to be seen outside of the last drop. */
	WAIT_FOR(hits(mem, page));
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, setup_plain, ends)
#include "test_cache.cases.h"

/* With "single": all of it in a cache with a single thread. */
int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
