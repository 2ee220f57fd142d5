// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory whose pages are dropped, announced: it is let go of before, and watched
 * again by the next lookup that relies on it, with any memory that has come there meanwhile.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "cases.h"

#include <kedge/hooks.h>

#include "notify/announce/rearm.h"
#include "notify/internal.h"

#define PAGES 16
#define ACCESS KEDGE_ACCESS_LOCAL_WRITE

static struct kedge_notifier *nf;
static struct nodev *dev;
static struct kedge_cache *cache;
static char *guard, *mem; /* a mapping that no other touches */
static size_t len;

static void map_at(char *at, size_t bytes, int prot, int flags)
{
	long got = syscall(SYS_mmap, at, bytes, prot,
			   flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);

	assert_ptr_equal((void *)got, at);
}

static int setup(void **state)
{
	len = PAGES * page_len();
	guard = mmap(NULL, 4 * len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	mem = guard + len;
	map_at(mem, len, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	memset(mem, 1, len);
	nf = open_uffd();
	dev = nodev_new();
	return kedge_cache_open(dev->dev, nf, NULL, &cache);
}

static int teardown(void **state)
{
	kedge_cache_close(cache);
	nodev_free(dev);
	kedge_notifier_close(nf);
	return munmap(guard, 4 * len);
}

/* The number of registrations that a get makes. */
static uint64_t regs_of(const char *at, size_t bytes)
{
	uint64_t before = dev->regs;
	const struct kedge_mr *mr;

	assert_int_equal(kedge_cache_get(cache, at, bytes, ACCESS, &mr), 0);
	kedge_cache_put(cache, mr);
	return dev->regs - before;
}

static void drop_raw(char *at, size_t bytes)
{
	assert_int_equal(syscall(SYS_madvise, at, bytes, MADV_DONTNEED), 0);
}

static void drop_announced(char *at, size_t bytes)
{
	struct kedge_hook hook;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, at, bytes);
	drop_raw(at, bytes);
	kedge_hook_end(&hook);
}

static void expect_kept(const char *at, size_t bytes)
{
	/* While a raw drop may be under way nothing is kept. */
	WAIT_FOR(!regs_of(at, bytes));
}

/* It is watched: what goes unannounced is noticed. */
static void expect_watched(char *at, size_t bytes)
{
	expect_kept(at, bytes);
	drop_raw(at, bytes);
	assert_int_equal(regs_of(at, bytes), 1);
	expect_kept(at, bytes);
	assert_int_equal(syscall(SYS_munmap, at, bytes), 0);
	map_at(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	assert_int_equal(regs_of(at, bytes), 1);
}

static void what_was_dropped_is_kept_and_watched_again(void **state)
{
	int i;

	assert_int_equal(regs_of(mem, len), 1);
	for (i = 0; i < 3; i++) {
		drop_announced(mem, len);
		assert_int_equal(regs_of(mem, len), 1);
		assert_int_equal(regs_of(mem, len), 0);
	}
	expect_watched(mem, len);
}

static void so_is_a_part_of_a_mapping(void **state)
{
	char *part = mem + len / 4;

	assert_int_equal(regs_of(part, len / 2), 1);
	drop_announced(part, len / 2);
	assert_int_equal(regs_of(part, len / 2), 1);
	assert_int_equal(regs_of(part, len / 2), 0);
	expect_watched(part, len / 2);
}

static void a_part_leaves_no_seam(void **state)
{
	unsigned int before;

	assert_int_equal(regs_of(mem, len), 1);
	before = map_lines();
	drop_announced(mem + len / 4, len / 4);
	assert_int_equal(map_lines(), before);
}

static bool part_is_armed(void)
{
	const uint64_t start = addr_of(mem) + len / 4;
	bool is;

	sig_lock(&nf->lock);
	is = armed_whole(nf, start, start + len / 4);
	sig_unlock(&nf->lock);
	return is;
}

static void a_part_is_armed_by_the_end_of_its_drop(void **state)
{
	assert_int_equal(regs_of(mem, len), 1);
	drop_announced(mem + len / 4, len / 4);
	assert_true(part_is_armed());
	expect_watched(mem + len / 4, len / 4);
}

static void (*on_looked)(void);

void rearm_looked(void)
{
	void (*fn)(void) = on_looked;

	on_looked = NULL;
	if (fn)
		fn();
}

static void exchange_part(void)
{
	map_at(mem + len / 4, len / 4, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void a_part_that_is_exchanged_then_is_not(void **state)
{
	assert_int_equal(regs_of(mem, len), 1);
	on_looked = exchange_part;
	drop_announced(mem + len / 4, len / 4);
	assert_null(on_looked);
	assert_false(part_is_armed());
	assert_int_equal(regs_of(mem + len / 4, len / 4), 1);
	assert_int_equal(regs_of(mem + len / 4, len / 4), 1);
}

static void nor_is_shared_memory_that_came_during_the_drop(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(regs_of(mem, len), 1);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, mem + len / 4, len / 4);
	exchange_part();
	kedge_hook_end(&hook);
	assert_false(part_is_armed());
	assert_int_equal(regs_of(mem + len / 4, len / 4), 1);
	assert_int_equal(regs_of(mem + len / 4, len / 4), 1);
}

/* It came while nothing was registered, so no event tells of it. */
static void shared_memory_in_its_place_is_not_kept(void **state)
{
	assert_int_equal(regs_of(mem, len), 1);
	drop_announced(mem, len);
	map_at(mem, len, PROT_READ | PROT_WRITE, MAP_SHARED);
	assert_int_equal(regs_of(mem, len), 1);
	assert_int_equal(regs_of(mem, len), 1);
}

static void shared_memory_that_comes_during_the_drop_is_not_kept(void **state)
{
	struct kedge_hook hook;

	assert_int_equal(regs_of(mem, len), 1);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, mem, len);
	map_at(mem, len, PROT_READ | PROT_WRITE, MAP_SHARED);
	kedge_hook_end(&hook);
	assert_int_equal(regs_of(mem, len), 1);
	assert_int_equal(regs_of(mem, len), 1);
}

/* The kernel registers around a hole and says nothing. */
static void a_hole_that_is_filled_is_watched(void **state)
{
	char *hole = mem + len / 2;

	assert_int_equal(regs_of(mem, len), 1);
	drop_announced(mem, len);
	assert_int_equal(syscall(SYS_munmap, hole, page_len()), 0);
	assert_int_equal(regs_of(mem, page_len()), 1);
	expect_kept(mem, page_len());
	map_at(hole, page_len(), PROT_READ | PROT_WRITE, MAP_PRIVATE);
	assert_int_equal(regs_of(hole, page_len()), 1);
	expect_watched(hole, page_len());
}

static void a_longer_mapping_in_its_place_is_watched(void **state)
{
	assert_int_equal(regs_of(mem, len), 1);
	drop_announced(mem, len);
	map_at(mem, 2 * len, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	assert_int_equal(regs_of(mem, 2 * len), 1);
	expect_watched(mem, 2 * len);
}

/* A former piece is asked for as one, and refused; then as it is now. */
static void a_stranger_in_the_other_half_refuses_his_alone(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = {
		.range = { addr_of(mem) + len / 2, len / 2 },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode */);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	assert_int_equal(regs_of(mem, len), 1);
	drop_announced(mem, len);
	map_at(mem + len / 2, len / 2, PROT_READ, MAP_PRIVATE);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), 0);
	assert_int_equal(regs_of(mem, len / 2), 1);
	assert_int_equal(regs_of(mem, len / 2), 0);
	expect_watched(mem, len / 2);
	assert_int_equal(regs_of(mem + len / 2, len / 2), 1);
	assert_int_equal(regs_of(mem + len / 2, len / 2), 1);
	close(fd);
}

/* Somebody else's watch there lives on: it is not added anew. */
static void a_watch_of_its_own_goes_on_being_told(void **state)
{
	struct kedge_event ev[2];

	assert_int_equal(kedge_watch_add(nf, mem, len, 1), 0);
	drop_announced(mem, len);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	drop_raw(mem, page_len());
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].kind, KEDGE_EVENT_REMOVE);
	assert_int_equal(ev[0].end, addr_of(mem) + page_len());
}

#define NEEDED need_uffd
#include "test_rearm.cases.h"
