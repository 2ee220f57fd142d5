// SPDX-License-Identifier: BSD-2-Clause
/* See cache_pages.h. */
#include "cache_pages.h"

struct nodev *dev;
struct kedge_notifier *nf;
struct kedge_cache *cache;
char *mem;
size_t page;

static char *whole;
static uint32_t more_flags; /* of each cache */

void open_with(struct kedge_cache_opts o)
{
	o.size = sizeof(o);
	o.flags |= more_flags;
	if (!o.chunk_bytes)
		o.chunk_bytes = CHUNK * page;
	/* Not ummunot, which tells of all that a huge page might have had. */
	nf = open_uffd();
	assert_int_equal(kedge_cache_open(dev->dev, nf, &o, &cache), 0);
}

static int setup_with(unsigned int what)
{
	page = page_len();
	whole = new_pages(PAGES + CHUNK);
	mem = (char *)((addr_of(whole) + CHUNK * page - 1) &
		       ~(uint64_t)(CHUNK * page - 1));
	cache = NULL;
	nf = NULL;
	dev = nodev_new_with(what);
	return 0;
}

int setup(void **state)
{
	return setup_with(0);
}

int setup_windows(void **state)
{
	return setup_with(NODEV_WINDOWS);
}

int teardown(void **state)
{
	kedge_cache_close(cache);
	kedge_notifier_close(nf);
	assert_int_equal(dev->live, 0);
	assert_int_equal(dev->wrong, 0);
	nodev_free(dev);
	free_pages(whole, PAGES + CHUNK);
	return 0;
}

char *at(size_t n)
{
	return mem + n * page;
}

struct kedge_cache_stats stats(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.registrations - st.deregistrations, st.regions);
	assert_int_equal(st.regions, dev->live);
	return st;
}

const struct kedge_mr *get(size_t first, size_t cnt, uint32_t access)
{
	const struct kedge_mr *mr = NULL;

	assert_int_equal(kedge_cache_get(cache, at(first), cnt * page, access,
					 &mr), 0);
	assert_true(mr->addr <= addr_of(at(first)));
	assert_true(mr->addr + mr->len >= addr_of(at(first + cnt)));
	assert_int_equal(mr->access & access, access);
	assert_true(dev->alive[mr->device_handle]);
	return mr;
}

void get_put(size_t first, size_t cnt, uint32_t access)
{
	kedge_cache_put(cache, get(first, cnt, access));
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
