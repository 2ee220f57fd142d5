// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges of many registrations, and making good what was lost: pieces, chunks,
 * holes, and a device that swaps pages under one handle.
 */
#include <sys/resource.h>

#include "cache_pages.h"
#include "clock.h"

#define CHUNKS (PAGES / CHUNK)

static void open_on(unsigned int what, uint32_t flags)
{
	device_with(what);
	open_with((struct kedge_cache_opts){ .flags = flags });
}

/* @cnt pieces that lie one after the other and are what was asked for. */
static void check_pieces(const struct kedge_piece *p, size_t cnt,
			 const void *addr, size_t len)
{
	uint64_t next = addr_of(addr);
	size_t i;

	for (i = 0; i < cnt; i++) {
		assert_int_equal(p[i].addr, next);
		assert_true(p[i].len > 0);
		assert_true(p[i].mr->addr <= p[i].addr);
		assert_true(p[i].addr + p[i].len <= p[i].mr->addr + p[i].mr->len);
		assert_true(dev->alive[p[i].mr->device_handle]);
		next += p[i].len;
	}
	assert_int_equal(next, addr_of(addr) + len);
}

static size_t getv(const void *addr, size_t len, struct kedge_piece *p,
		   size_t max)
{
	ssize_t n = kedge_cache_getv(cache, addr, len, WRITE, p, max);

	assert_true(n > 0 && (size_t)n <= max);
	check_pieces(p, (size_t)n, addr, len);
	return (size_t)n;
}

static size_t getv_put(const void *addr, size_t len)
{
	struct kedge_piece p[PAGES];
	size_t n = getv(addr, len, p, PAGES);

	kedge_cache_putv(cache, p, n);
	return n;
}

static void hint_all(void)
{
	assert_int_equal(kedge_cache_hint(cache, mem, PAGES * page, WRITE),
			 PAGES * page);
}

static void chunks_come_as_pieces(void **state)
{
	uint64_t regs;

	hint_all();
	regs = dev->regs;
	assert_int_equal(getv_put(mem, PAGES * page), CHUNKS);
	assert_int_equal(getv_put(mem + 100, PAGES * page - 200), CHUNKS);
	assert_int_equal(getv_put(at(CHUNK) - 1, 2), 2);
	assert_int_equal(getv_put(at(3), 10), 1);
	assert_int_equal(dev->regs, regs);
	assert_int_equal(stats().misses, 0);
	assert_int_equal(stats().hits, 2 * CHUNKS + 3);
}

static void what_is_missing_is_registered_in_chunks(void **state)
{
	assert_int_equal(getv_put(at(CHUNK / 2), CHUNK * page), 2);
	assert_int_equal(dev->regs, 2);
	/* Between what is there and the chunks' ends. */
	assert_int_equal(getv_put(mem, 2 * CHUNK * page), 4);
	assert_int_equal(dev->regs, 4);
	assert_int_equal(getv_put(mem, 2 * CHUNK * page), 4);
	assert_int_equal(dev->regs, 4);
}

static void a_long_range_is_one_call(void **state)
{
	dev->attr.max_len = CHUNK * page / 2;
	kedge_cache_close(cache);
	assert_int_equal(kedge_cache_open(dev->dev, nf, NULL, &cache), 0);
	assert_int_equal(getv_put(mem, PAGES * page), 2 * CHUNKS);
	assert_int_equal(getv_put(mem, PAGES * page), 2 * CHUNKS);
	assert_int_equal(dev->regs, 2 * CHUNKS);
}

static void too_few_pieces_hold_nothing(void **state)
{
	struct kedge_piece p[CHUNKS];

	hint_all();
	assert_int_equal(kedge_cache_getv(cache, mem, PAGES * page, WRITE, p,
					  CHUNKS - 1), -ENOBUFS);
	assert_non_null(strstr(kedge_strerror(-ENOBUFS), "pieces"));
	assert_int_equal(kedge_cache_getv(cache, mem, 1, WRITE, p, 0),
			 -ENOBUFS);
	assert_int_equal(kedge_cache_flush(cache), CHUNKS);
	assert_int_equal(dev->live, 0);
}

static void bad_arguments_are_einval(void **state)
{
	struct kedge_piece p;

	assert_int_equal(kedge_cache_getv(NULL, mem, 1, 0, &p, 1), -EINVAL);
	assert_int_equal(kedge_cache_getv(cache, mem, 1, 0, NULL, 1), -EINVAL);
	assert_int_equal(kedge_cache_getv(cache, mem, 0, 0, &p, 1), -EINVAL);
	assert_int_equal(kedge_cache_getv(cache, mem, SIZE_MAX, 0, &p, 1),
			 -EINVAL);
	assert_int_equal(kedge_cache_getv(cache, mem, 1, 1u << 20, &p, 1),
			 -EINVAL);
	assert_int_equal(kedge_cache_resync(NULL, NULL, 0), -EINVAL);
	assert_int_equal(kedge_cache_resync(cache, mem, 0), -EINVAL);
	assert_int_equal(kedge_cache_resync(cache, mem, SIZE_MAX), -EINVAL);
	kedge_cache_putv(cache, NULL, 3);
	kedge_cache_putv(NULL, &p, 1);
}

/* A piece that cannot be had gives back those before it. */
static void a_gap_in_the_mapping_is_efault(void **state)
{
	struct kedge_piece p[PAGES];

	assert_int_equal(munmap(at(40), page), 0);
	assert_int_equal(kedge_cache_getv(cache, mem, PAGES * page, WRITE, p,
					  PAGES), -EFAULT);
	kedge_cache_flush(cache);
	assert_int_equal(dev->live, 0);
	assert_int_equal(stats().failures, 1);
	pages_at(at(40), 1);
	getv_put(mem, PAGES * page);
}

#define WIDE (UINT64_C(1) << 44) /* takes minutes to try chunk by chunk */

/* A hole of terabytes with one chunk mapped at its end. */
static char *new_hole(void)
{
	char *p = mmap(NULL, WIDE, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	p += -addr_of(p) & (CHUNK * page - 1);
	assert_int_equal(munmap(p, WIDE - 2 * CHUNK * page), 0);
	pages_at(p + WIDE - 2 * CHUNK * page, CHUNK);
	return p;
}

static void a_hole_takes_no_time(void **state)
{
	size_t len = WIDE - CHUNK * page;
	struct kedge_piece p[1];
	char *hole = new_hole();
	uint64_t regs;

	/* Helpers would have their stacks in the hole. */
	open_with((struct kedge_cache_opts){ .hint_threads = 1 });
	if (!hole)
		skip();
	assert_int_equal(kedge_cache_getv(cache, hole, len, WRITE, p, 1), -EFAULT);
	assert_int_equal(dev->regs, 0);
	/* An allocator may have mapped some in it by now. */
	assert_true(kedge_cache_hint(cache, hole, len, WRITE) >= (ssize_t)(CHUNK * page));
	regs = dev->regs;
	assert_int_equal(getv_put(hole + len - CHUNK * page, CHUNK * page), 1);
	assert_int_equal(dev->regs, regs);
	assert_int_equal(kedge_cache_hint(cache, hole, CHUNK * page, WRITE), -EFAULT);
	munmap(hole + len - CHUNK * page, CHUNK * page);
}

static void a_hole_is_a_piece(void **state)
{
	uint64_t regs;

	hint_all();
	regs = dev->regs;
	pages_at(at(40), 1);
	assert_int_equal(getv_put(mem, PAGES * page), CHUNKS + 2);
	assert_int_equal(dev->regs, regs + 1);
	assert_int_equal(dev->last_len, page);
}

/* Where there is no room for so many, the chunk is made anew. */
static void holes_close_where_room_is_short(void **state)
{
	struct kedge_piece p[CHUNKS];

	hint_all();
	pages_at(at(40), 1);
	pages_at(at(44), 1);
	assert_int_equal(getv(mem, PAGES * page, p, CHUNKS), CHUNKS);
	kedge_cache_putv(cache, p, CHUNKS);
	assert_int_equal(dev->last_len, CHUNK * page);
}

static void resync_replaces_what_changed(void **state)
{
	uint64_t regs;

	hint_all();
	regs = dev->regs;
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 0);
	pages_at(at(40), 1);
	pages_at(at(43), 2);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), CHUNK * page);
	assert_int_equal(dev->regs, regs + 1);
	assert_int_equal(dev->last_addr, addr_of(at(CHUNK)));
	assert_int_equal(dev->last_len, CHUNK * page);
	assert_int_equal(dev->live, CHUNKS);
	assert_int_equal(getv_put(mem, PAGES * page), CHUNKS);
	assert_int_equal(dev->regs, regs + 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 0);
	assert_int_equal(stats().resynced, 1);
	assert_int_equal(stats().replaced, 0);
}

static void resync_keeps_to_its_area(void **state)
{
	hint_all();
	pages_at(at(1), 1);
	pages_at(at(PAGES - 1), 1);
	assert_int_equal(kedge_cache_resync(cache, at(CHUNK), page), 0);
	assert_int_equal(kedge_cache_resync(cache, at(5), 1), CHUNK * page);
	assert_int_equal(kedge_cache_resync(cache, mem, PAGES * page),
			 CHUNK * page);
}

/* Small ones and those that lost most of their pages, too. */
static void what_went_whole_comes_back(void **state)
{
	uint64_t regs;

	get_put(0, 1, WRITE);
	assert_int_equal(kedge_cache_hint(cache, at(CHUNK), CHUNK * page,
					  WRITE), CHUNK * page);
	pages_at(mem, 1);
	pages_at(at(CHUNK), CHUNK);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0),
			 (CHUNK + 1) * page);
	regs = dev->regs;
	getv_put(mem, page);
	getv_put(at(CHUNK), CHUNK * page);
	assert_int_equal(dev->regs, regs);
}

static void what_is_gone_is_forgotten(void **state)
{
	hint_all();
	assert_int_equal(munmap(at(0), 4 * page), 0);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 0);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 0);
	/* The rest of the chunk serves on. */
	assert_int_equal(getv_put(at(4), (PAGES - 4) * page), CHUNKS);
	assert_int_equal(dev->regs, CHUNKS);
	pages_at(at(0), 4);
}

/* Of one that is longer than a chunk, a chunk is made anew. */
static void a_long_region_is_resynced_in_chunks(void **state)
{
	get_put(0, PAGES, WRITE);
	pages_at(at(100), 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), CHUNK * page);
	assert_int_equal(dev->last_addr, addr_of(at(96)));
	assert_int_equal(getv_put(mem, PAGES * page), 3);
	assert_int_equal(dev->regs, 2);
}

static void what_is_in_flight_keeps_its_pages(void **state)
{
	struct kedge_piece old[CHUNKS], now[CHUNKS];
	size_t i;

	open_on(NODEV_REPLACE, 0);
	hint_all();
	assert_int_equal(getv(mem, PAGES * page, old, CHUNKS), CHUNKS);
	pages_at(at(40), 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), CHUNK * page);
	/* Held: not by the device, whatever it can do. */
	assert_int_equal(dev->replaces, 0);
	assert_int_equal(getv(mem, PAGES * page, now, CHUNKS), CHUNKS);
	for (i = 0; i < CHUNKS; i++)
		assert_int_equal(old[i].mr != now[i].mr, i == 1);
	assert_true(dev->alive[old[1].mr->device_handle]);
	assert_int_equal(dev->deregs, 0);
	kedge_cache_putv(cache, old, CHUNKS);
	assert_int_equal(dev->deregs, 1);
	kedge_cache_putv(cache, now, CHUNKS);
	assert_int_equal(dev->live, CHUNKS);
}

static void a_device_swaps_under_one_handle(void **state)
{
	struct kedge_piece p[CHUNKS];
	uint64_t handle;

	open_on(NODEV_REPLACE, 0);
	hint_all();
	getv(at(CHUNK), page, p, 1);
	handle = p[0].mr->device_handle;
	kedge_cache_putv(cache, p, 1);
	pages_at(at(40), 1);
	pages_at(at(43), 2);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), CHUNK * page);
	assert_int_equal(dev->replaces, 1);
	assert_int_equal(dev->changed, addr_of(at(40)));
	assert_int_equal(dev->changed_len, 5 * page);
	assert_int_equal(dev->regs, CHUNKS);
	assert_int_equal(getv(mem, PAGES * page, p, CHUNKS), CHUNKS);
	assert_int_equal(p[1].mr->device_handle, handle);
	kedge_cache_putv(cache, p, CHUNKS);
	assert_int_equal(stats().replaced, 1);
	assert_int_equal(stats().bytes, PAGES * page);
	/* And once more, as often as one likes. */
	pages_at(at(40), 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), CHUNK * page);
	assert_int_equal(dev->replaces, 2);
}

static void where_it_cannot_there_is_the_other_way(void **state)
{
	open_on(NODEV_REPLACE, 0);
	hint_all();
	dev->replace_rc = -EIO;
	pages_at(at(40), 1);
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), CHUNK * page);
	assert_int_equal(dev->regs, CHUNKS + 1);
	assert_int_equal(dev->live, CHUNKS);
	assert_int_equal(getv_put(mem, PAGES * page), CHUNKS);
}

/* Pages that change while the device swaps are not believed. */
static void change_again(struct nodev *d, void *addr, size_t len)
{
	d->on_reg = NULL;
	pages_at(at(50), 1);
}

static void a_change_during_the_swap_is_not_believed(void **state)
{
	uint64_t regs;

	open_on(NODEV_REPLACE, 0);
	hint_all();
	pages_at(at(40), 1);
	dev->on_reg = change_again;
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), 0);
	assert_int_equal(dev->live, CHUNKS - 1);
	regs = dev->regs;
	getv_put(at(50), page);
	assert_int_equal(dev->regs, regs + 1);
}

static void errors_of_the_device_come_back(void **state)
{
	hint_all();
	pages_at(at(40), 1);
	dev->fail_rc = -EIO;
	dev->fail_cnt = -1;
	assert_int_equal(kedge_cache_resync(cache, NULL, 0), -EIO);
	dev->fail_cnt = 0;
	assert_int_equal(getv_put(mem, PAGES * page), CHUNKS + 2);
}

/* More losses than are remembered cost registrations by their gets. */
static void losses_without_end(void **state)
{
	size_t i;

	for (i = 0; i < 3000; i++) {
		getv_put(at(i % PAGES), page);
		pages_at(at(i % PAGES), 1);
	}
	assert_true(kedge_cache_resync(cache, NULL, 0) > 0);
	getv_put(mem, PAGES * page);
}

static void a_thread_does_it_by_itself(void **state)
{
	int round;

	open_on(0, KEDGE_CACHE_RESYNC);
	hint_all();
	for (round = 1; round <= 3; round++) {
		pages_at(at(40), 1);
		WAIT_FOR(raw_stats().resynced >= (uint64_t)round);
		assert_int_equal(getv_put(mem, PAGES * page), CHUNKS);
		assert_int_equal(raw_stats().misses, 0);
	}
}

/* The number of times that a thread of this process has gone to sleep. */
static uint64_t sleeps(void)
{
	struct rusage ru;

	assert_int_equal(getrusage(RUSAGE_SELF, &ru), 0);
	return (uint64_t)ru.ru_nvcsw;
}

/* Their events keep the descriptor readable until they read them. */
static void the_thread_sleeps_through_others_events(void **state)
{
	struct pollfd p = { .events = POLLIN };
	uint64_t start, before;

	open_on(0, KEDGE_CACHE_RESYNC);
	assert_int_equal(kedge_watch_add(nf, at(0), page, 1), 0);
	kedge_cache_hint(cache, at(CHUNK), CHUNK * page, WRITE);
	p.fd = kedge_notifier_fd(nf);
	pages_at(at(0), 1);
	assert_int_equal(poll(&p, 1, 10000), 1);
	usleep(10000);
	start = now_ns();
	before = sleeps();
	usleep(200000);
	/* It would be once in a millisecond, or two. */
	assert_in_range(sleeps() - before, 0, (now_ns() - start) / 20000000 + 20);
	assert_int_equal(poll(&p, 1, 0), 1);

	/* Its own it does not miss. */
	pages_at(at(CHUNK), 1);
	WAIT_FOR(raw_stats().resynced);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
}

static void the_thread_outlives_its_descriptors(void **state)
{
	unsigned int before = threads_now();
	int fd;

	test_clock_begin();
	open_on(0, KEDGE_CACHE_RESYNC);
	hint_all();
	/* As a daemon does that wants to inherit nothing. */
	for (fd = 3; fd < 1024; fd++)
		close(fd);
	test_clock_hurry(100);
	close_cache();
	kedge_notifier_close(nf);
	test_clock_rest();
	test_clock_end();
	nf = NULL;
	assert_true(threads_are(before));
}

#define LISTED OPEN
#define NEEDED need_uffd
#include "test_cache_pieces.cases.h"
