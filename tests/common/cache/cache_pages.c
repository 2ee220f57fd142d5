// SPDX-License-Identifier: BSD-2-Clause
/* See cache_pages.h. */
#include "cache_pages.h"

struct nodev *dev;
struct kedge_cache *cache;
char *mem;
size_t page;

static uint32_t more_flags; /* of each cache */

void close_cache(void)
{
	kedge_cache_close(cache);
	cache = NULL;
}

void open_cache(const struct kedge_cache_opts *user)
{
	struct kedge_cache_opts o = { .size = sizeof(o) };

	close_cache();
	if (user)
		o = *user;
	o.size = sizeof(o);
	o.flags |= more_flags;
	assert_int_equal(kedge_cache_open(dev->dev, nf, user || o.flags ? &o : NULL, &cache), 0);
}

void open_with(struct kedge_cache_opts o)
{
	if (!o.chunk_bytes)
		o.chunk_bytes = CHUNK * page;
	close_cache();
	kedge_notifier_close(nf);
	/* Not ummunot, which tells of all that a huge page might have had. */
	nf = open_uffd();
	open_cache(&o);
}

int pages_setup(unsigned int what, size_t cnt)
{
	char *whole = new_pages(cnt + PAGES);

	page = page_len();
	mem = (char *)((addr_of(whole) + PAGES * page - 1) &
		       ~(uint64_t)(PAGES * page - 1));
	cache = NULL;
	nf = NULL;
	dev = nodev_new_with(what);
	return 0;
}

int setup(void **state)
{
	return pages_setup(0, PAGES);
}

int setup_windows(void **state)
{
	return pages_setup(NODEV_WINDOWS, PAGES);
}

int setup_open(void **state)
{
	setup(state);
	open_with((struct kedge_cache_opts){ 0 });
	return 0;
}

int setup_plain(void **state)
{
	setup(state);
	open_cache(NULL);
	return 0;
}

void device_with(unsigned int what)
{
	close_cache();
	nodev_free(dev);
	dev = nodev_new_with(what);
}

int teardown(void **state)
{
	kedge_cache_close(cache);
	kedge_notifier_close(nf);
	assert_int_equal(dev->windows, 0);
	assert_int_equal(dev->live, 0);
	assert_int_equal(dev->wrong, 0);
	nodev_free(dev);
	return 0;
}

char *at(size_t n)
{
	return mem + n * page;
}

struct kedge_cache_stats raw_stats(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.gets, st.hits + st.misses);
	return st;
}

struct kedge_cache_stats stats(void)
{
	const struct kedge_cache_stats st = raw_stats();

	assert_int_equal(st.registrations - st.deregistrations, st.regions);
	assert_int_equal(st.regions, dev->live);
	return st;
}

const struct kedge_mr *get_at(const void *p, size_t len, uint32_t access)
{
	const struct kedge_mr *mr = NULL;

	assert_int_equal(kedge_cache_get(cache, p, len, access, &mr), 0);
	assert_non_null(mr);
	assert_true(mr->addr <= addr_of(p));
	assert_true(mr->addr + mr->len >= addr_of(p) + len);
	assert_int_equal(mr->access & access, access);
	assert_true(dev->alive[mr->device_handle]);
	return mr;
}

const struct kedge_mr *get(size_t first, size_t cnt, uint32_t access)
{
	return get_at(at(first), cnt * page, access);
}

void put(const struct kedge_mr *mr)
{
	kedge_cache_put(cache, mr);
}

void get_put(size_t first, size_t cnt, uint32_t access)
{
	put(get(first, cnt, access));
}

bool is_hit(size_t first, size_t cnt, uint32_t access)
{
	uint64_t before = dev->regs;

	get_put(first, cnt, access);
	return dev->regs == before;
}

int cache_pages_begin(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "single"))
		more_flags = KEDGE_CACHE_SINGLE_THREAD;
	return need_uffd();
}

bool is_single(void)
{
	return more_flags;
}
