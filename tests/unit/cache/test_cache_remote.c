// SPDX-License-Identifier: BSD-2-Clause
/* Remote access: registrations and windows that a peer gets a key of. */
#include "cache_pages.h"

#define FEW    64 /* pages */
#define REMOTE (KEDGE_ACCESS_REMOTE_READ | KEDGE_ACCESS_REMOTE_WRITE)

static void open_on(unsigned int what, uint32_t dev_flags, uint32_t flags)
{
	device_with(what);
	dev->attr.flags = dev_flags;
	open_cache(&(struct kedge_cache_opts){ .flags = flags });
}

static void access_ends_with_the_put(void **state)
{
	const struct kedge_mr *mr;
	uint64_t handle;

	open_on(0, KEDGE_DEVICE_EXACT, 0);
	mr = get_at(mem, 100, REMOTE);
	handle = mr->device_handle;
	put(mr);
	assert_false(dev->alive[handle]);
	assert_int_equal(dev->live, 0);
	assert_int_equal(raw_stats().lent, 1);
	assert_int_equal(raw_stats().uncached, 0);
	assert_int_equal(raw_stats().gets, 1);
}

static void not_a_byte_beyond(void **state)
{
	const struct kedge_mr *mr;

	open_on(0, KEDGE_DEVICE_EXACT, 0);
	mr = get_at(mem + 7, 4097, REMOTE);
	assert_int_equal(mr->addr, addr_of(mem + 7));
	assert_int_equal(mr->len, 4097);
	assert_int_equal(mr->offset, addr_of(mem + 7));
	assert_int_equal(dev->last_addr, addr_of(mem + 7));
	assert_int_equal(dev->last_len, 4097);
	assert_int_equal(dev->last_access, REMOTE);
	put(mr);
}

static void whole_pages_where_the_device_knows_no_less(void **state)
{
	const struct kedge_mr *mr;

	open_on(0, 0, 0);
	mr = get_at(mem + 7, 4097, REMOTE);
	assert_int_equal(mr->addr, addr_of(mem));
	assert_int_equal(mr->len, 2 * page);
	put(mr);
	assert_int_equal(dev->live, 0);
}

/* Each get has a key of its own: its holder has it for all that it covers. */
static void each_get_has_its_own_key(void **state)
{
	const struct kedge_mr *all, *part, *again;

	open_on(0, KEDGE_DEVICE_EXACT, 0);
	all = get_at(mem, FEW * page, REMOTE);
	part = get_at(mem, 64, REMOTE);
	again = get_at(mem, 64, REMOTE);
	assert_int_equal(part->len, 64);
	assert_int_not_equal(part->device_handle, all->device_handle);
	assert_int_not_equal(part->device_handle, again->device_handle);
	put(part);
	assert_false(dev->alive[part->device_handle]);
	assert_true(dev->alive[all->device_handle]);
	assert_true(dev->alive[again->device_handle]);
	put(all);
	put(again);
}

static void local_access_is_kept_beside_it(void **state)
{
	const struct kedge_mr *local, *remote;

	open_on(0, KEDGE_DEVICE_EXACT, 0);
	local = get_at(mem, page, WRITE);
	remote = get_at(mem, page, REMOTE | WRITE);
	assert_ptr_not_equal(local, remote);
	put(remote);
	put(local);
	put(get_at(mem, page, WRITE));
	assert_int_equal(dev->regs, 2);
	assert_int_equal(local->access & REMOTE, 0);
}

static void *put_it(void *mr)
{
	put(mr);
	return NULL;
}

static void a_put_by_another_thread_ends_it(void **state)
{
	const struct kedge_mr *mr;

	open_on(0, KEDGE_DEVICE_EXACT, 0);
	skip_if(is_single(), "there is no other thread");
	mr = get_at(mem, 100, REMOTE);
	in_thread(put_it, (void *)mr);
	assert_int_equal(dev->live, 0);
}

static void a_window_over_what_is_kept(void **state)
{
	const struct kedge_mr *a, *b;
	uint64_t handle;
	int i;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	for (i = 0; i < 10; i++) {
		a = get_at(mem + 100, 200, KEDGE_ACCESS_REMOTE_WRITE);
		assert_int_equal(a->addr, addr_of(mem + 100));
		assert_int_equal(a->len, 200);
		assert_int_equal(dev->last_len, 200);
		b = get_at(mem + 300, 8, KEDGE_ACCESS_REMOTE_READ);
		assert_int_equal(dev->windows, 2);
		handle = a->device_handle;
		put(a);
		assert_false(dev->alive[handle]);
		assert_int_equal(dev->windows, 1);
		put(b);
	}
	assert_int_equal(dev->binds, 20);
	assert_int_equal(dev->windows, 0);
	/* For reading, and then for writing too, as a peer's write needs. */
	assert_in_range(dev->regs, 1, 2);
	assert_int_equal(raw_stats().lent, 20);
}

/* The pages under an open window are not deregistered, whatever happens. */
static void a_window_holds_its_pages(void **state)
{
	const struct kedge_mr *mr;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	mr = get_at(mem, page, KEDGE_ACCESS_REMOTE_WRITE);
	pages_at(mem, 1);
	kedge_cache_flush(cache);
	assert_int_equal(dev->live, 1);
	put(mr);
	assert_int_equal(dev->windows, 0);
	assert_int_equal(dev->live, 0);
}

static void without_a_window_there_is_the_other_way(void **state)
{
	const struct kedge_mr *mr;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	dev->bind_rc = -EIO;
	mr = get_at(mem, 100, REMOTE);
	assert_int_equal(dev->windows, 0);
	assert_int_equal(mr->len, 100);
	put(mr);
	assert_false(dev->alive[mr->device_handle]);
	/* The local one that was to be its base stays. */
	assert_int_equal(dev->live, 1);
}

static void both_ways_may_fail(void **state)
{
	const struct kedge_mr *const before = (const struct kedge_mr *)0x1;
	const struct kedge_mr *mr = before;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	dev->fail_rc = -EIO;
	dev->fail_cnt = -1;
	assert_int_equal(kedge_cache_get(cache, mem, 1, REMOTE, &mr), -EIO);
	assert_ptr_equal(mr, before);
	dev->fail_cnt = 0;
	put(get_at(mem, 1, REMOTE));
	assert_int_equal(raw_stats().failures, 1);
}

static void trusted_peers_keep_their_key(void **state)
{
	const struct kedge_mr *mr;
	uint64_t handle;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, KEDGE_CACHE_TRUSTED_PEERS);
	mr = get_at(mem, 100, REMOTE);
	handle = mr->device_handle;
	put(mr);
	assert_true(dev->alive[handle]);
	assert_int_equal(get_at(mem + 10, 50, REMOTE)->device_handle, handle);
	assert_int_equal(dev->regs, 1);
	assert_int_equal(dev->binds, 0);
	put(mr);
	/* Until the memory goes. */
	pages_at(mem, 1);
	put(get_at(mem, 1, 0));
	assert_false(dev->alive[handle]);
}

/* A range that was asked for with less never comes under a peer's key. */
static void merging_never_widens(void **state)
{
	const struct kedge_mr *mr;
	size_t p = page;

	open_on(0, 0, KEDGE_CACHE_TRUSTED_PEERS);
	put(get_at(mem, p, WRITE));
	put(get_at(mem + 2 * p, p, WRITE));
	mr = get_at(mem + p, p, WRITE | REMOTE);
	assert_int_equal(mr->addr, addr_of(mem + p));
	assert_int_equal(mr->len, p);
	put(mr);
	/* Its neighbours may grow together over it, without the peers. */
	mr = get_at(mem, 3 * p, WRITE);
	assert_int_equal(mr->access & REMOTE, 0);
	put(mr);
}

/* Memory mapped in a hole was never given to a peer. */
static void a_hole_inherits_no_access(void **state)
{
	const struct kedge_mr *mr;
	size_t p = page;

	open_on(0, 0, KEDGE_CACHE_TRUSTED_PEERS);
	put(get_at(mem, FEW * p, WRITE | REMOTE));
	pages_at(mem + 40 * p, 1);
	mr = get_at(mem + 39 * p, 3 * p, WRITE);
	assert_true(mr->addr <= addr_of(mem + 40 * p));
	assert_true(mr->addr + mr->len > addr_of(mem + 40 * p));
	assert_int_equal(mr->access & REMOTE, 0);
	put(mr);
}

static void a_hint_wants_the_local_part(void **state)
{
	size_t len = FEW * page;
	const struct kedge_mr *mr;
	uint64_t regs;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	assert_int_equal(kedge_cache_hint(cache, mem, len, REMOTE), len);
	assert_int_equal(dev->last_access, WRITE);
	regs = dev->regs;
	mr = get_at(mem, 1, REMOTE);
	assert_int_equal(dev->regs, regs);
	put(mr);
}

static void pieces_are_lent(void **state)
{
	struct kedge_piece p[FEW];
	ssize_t n;

	open_on(0, KEDGE_DEVICE_EXACT, 0);
	assert_int_equal(kedge_cache_getv(cache, mem + 5, 3 * page, REMOTE, p,
					  FEW), 1);
	assert_int_equal(p[0].mr->len, 3 * page);
	kedge_cache_putv(cache, p, 1);
	assert_int_equal(dev->live, 0);

	/* No longer than the device takes at once. */
	dev->attr.max_len = 2 * page;
	open_cache(NULL);
	n = kedge_cache_getv(cache, mem + 5, 5 * page, REMOTE, p, FEW);
	assert_int_equal(n, 3);
	assert_int_equal(p[2].len, page);
	assert_int_equal(p[2].addr, addr_of(mem + 5 + 4 * page));
	assert_int_equal(p[2].mr->addr, p[2].addr);
	kedge_cache_putv(cache, p, 3);
	assert_int_equal(dev->live, 0);
}

/* The pages that hold a piece are no more than the device takes, either. */
static void pieces_in_whole_pages(void **state)
{
	struct kedge_piece p[FEW];
	size_t i;
	ssize_t n;

	open_on(0, 0, 0);
	dev->attr.max_len = 2 * page;
	open_cache(NULL);
	n = kedge_cache_getv(cache, mem + 5, 5 * page, REMOTE, p, FEW);
	assert_int_equal(n, 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(p[i].mr->addr, addr_of(mem + 2 * i * page));
		assert_int_equal(p[i].mr->len, 2 * page);
	}
	assert_int_equal(p[0].len + p[1].len + p[2].len, 5 * page);
	kedge_cache_putv(cache, p, 3);
	assert_int_equal(dev->live, 0);
}

/* Windows that are lent take places too; without any left nothing is half made. */
static void no_place_for_a_window(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o), .max_regions = 1 };
	const struct kedge_mr **mr = calloc(100000, sizeof(*mr));
	size_t n = 0, i;
	int rc = 0;

	assert_non_null(mr);
	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	open_cache(&o);
	while (n < 100000 && !rc) {
		rc = kedge_cache_get(cache, mem, 8, REMOTE, &mr[n]);
		n += !rc;
	}
	assert_int_equal(rc, -ENOSPC);
	assert_true(n > 1000);
	assert_int_equal(dev->windows, n);
	assert_int_equal(dev->live, 1);
	put(mr[--n]);
	mr[n] = get_at(mem, 8, REMOTE);
	for (i = 0; i <= n; i++)
		put(mr[i]);
	assert_int_equal(dev->windows, 0);
	free(mr);
}

static void windows_over_chunks(void **state)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };
	struct kedge_piece p[FEW];
	ssize_t n, i;

	open_on(NODEV_WINDOWS, KEDGE_DEVICE_EXACT, 0);
	o.chunk_bytes = 16 * page;
	open_cache(&o);
	n = kedge_cache_getv(cache, mem, FEW * page, REMOTE, p, FEW);
	assert_in_range(n, 4, 5);
	assert_int_equal(dev->windows, n);
	assert_int_equal(raw_stats().gets, n);
	for (i = 0; i < n; i++) {
		assert_int_equal(p[i].mr->addr, p[i].addr);
		assert_int_equal(p[i].mr->len, p[i].len);
	}
	kedge_cache_putv(cache, p, (size_t)n);
	assert_int_equal(dev->windows, 0);
	assert_int_equal(dev->live, n);
}

#include "test_cache_remote.cases.h"

/* With "single": all of it in a cache with a single thread. */
int main(int argc, char **argv)
{
	return RUN_CASES(cases, argc, argv);
}
