// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region whose owner registers its memory with a device of its own, by a cache: the pages that a
 * move puts behind the region are those that the device has from the next get on. The cache keeps
 * the registration between two moves; without the module it does until the region has a handle.
 *
 * The device keeps pages as adapters do: by a second mapping, which stays whatever becomes of the
 * first one.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "core.h"

/* Each registration locks it once more, and all are to fit in ulimit -l. */
#define LEN ((size_t)128 << 10)
#define SOON_MS 600000

static struct {
	char *view;
	unsigned int regs;
	unsigned int deregs;
} adapter;

static char *at;

/* mremap() of no bytes maps the pages of a shared mapping once more. */
static int look_at_pages(void *addr, size_t len)
{
	void *view = mremap(addr, 0, len, MREMAP_MAYMOVE);

	if (view == MAP_FAILED)
		return -EFAULT;
	if (addr == at)
		adapter.view = view;
	return 0;
}

static int reg(void *ctx, void *addr, size_t len, uint32_t access, struct kedge_device_mr *mr)
{
	mr->handle = ++adapter.regs;
	return look_at_pages(addr, len);
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
	adapter.deregs++;
}

static struct kedge_region *region;
static struct kedge_device *dev;
static struct kedge_cache *cache;

static void begin(void)
{
	static const struct kedge_device_ops ops = { .size = sizeof(ops), .name = "kept",
						     .reg = reg, .dereg = dereg };
	const struct kedge_region_opts big = { .size = sizeof(big), .max_len = LEN };
	struct kedge_region_info info = { .size = sizeof(info) };

	memset(&adapter, 0, sizeof(adapter));
	assert_int_equal(kedge_region_create(LEN, &big, &region), 0);
	assert_int_equal(kedge_region_query(region, &info), 0);
	at = (char *)(uintptr_t)info.addr;
	assert_int_equal(kedge_device_open(&ops, NULL, &dev), 0);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
}

static void end(void)
{
	kedge_cache_close(cache);
	kedge_device_close(dev);
	kedge_region_close(region);
	assert_int_equal(adapter.deregs, adapter.regs);
}

/* The device and the program have the same pages; the registration is given back. */
static void same_pages(void)
{
	static char next;
	const struct kedge_mr *mr;

	assert_int_equal(kedge_cache_get(cache, at, LEN, KEDGE_ACCESS_LOCAL_WRITE, &mr), 0);
	at[5] = ++next;
	at[LEN - 5] = next;
	assert_int_equal(adapter.view[5], next);
	assert_int_equal(adapter.view[LEN - 5], next);
	adapter.view[6] = next;
	assert_int_equal(at[6], next);
	kedge_cache_put(cache, mr);
}

static void the_device_has_the_pages_of_a_region_that_was_moved(void **state)
{
	struct kedge_handle h;
	int i;

	begin();
	for (i = 0; i < 4; i++) {
		same_pages();
		same_pages();
		if (i == 1)
			assert_int_equal(kedge_region_advertise(region, NULL, &h), 0);
		assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
		same_pages();
		assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
		assert_int_equal(kedge_region_grow(region, LEN), 0);
	}
	end();
}

/* While a drop of pages may be under way nothing is: a move makes one. */
static bool is_kept(void)
{
	unsigned int regs;

	same_pages();
	regs = adapter.regs;
	same_pages();
	return adapter.regs == regs;
}

/* Shared memory, that is, by userfaultfd: Linux 5.19. */
static void need_watch(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = 1u << 12 };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode */);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		skip();
	close(fd);
}

static uint32_t level(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier *nf;
	uint32_t is;

	assert_int_equal(kedge_notifier_open(NULL, &nf), 0);
	assert_int_equal(kedge_notifier_info(nf, &info), 0);
	is = info.level;
	kedge_notifier_close(nf);
	return is;
}

static void until_it_has_a_handle_it_is_kept(void **state)
{
	struct kedge_handle h;

	need_watch();
	begin();
	WAIT_FOR(is_kept());
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	WAIT_FOR(is_kept());
	assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
	assert_int_equal(kedge_region_grow(region, LEN), 0);
	WAIT_FOR(is_kept());
	assert_int_equal(kedge_region_advertise(region, NULL, &h), 0);
	assert_int_equal(is_kept(), level() == KEDGE_LEVEL_EXACT);
	end();
}

static void what_the_program_puts_in_its_place_is_seen(void **state)
{
	need_watch();
	begin();
	WAIT_FOR(is_kept());
	assert_int_equal(syscall(SYS_munmap, at, LEN), 0);
	assert_ptr_equal((void *)syscall(SYS_mmap, at, LEN, PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0L), at);
	same_pages();
	assert_int_equal(is_kept(), level() == KEDGE_LEVEL_EXACT);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	munmap(at, LEN);
	kedge_region_close(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_device_has_the_pages_of_a_region_that_was_moved),
		cmocka_unit_test(until_it_has_a_handle_it_is_kept),
		cmocka_unit_test(what_the_program_puts_in_its_place_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
