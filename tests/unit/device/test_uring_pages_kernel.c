// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device's effects on pages, on the kernel that runs: data that a
 * request put into lazily freed pages outlive their registration, and the
 * refusals are those of the pin alone.
 */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <liburing.h>

#include <kedge/uring.h>

#include "../../process/alone.h"
#include "cases.h"
#include "clock.h"

#define HUGE_LEN ((size_t)2 << 20)
#define ROUNDS	 10

static struct io_uring ring;
static int file; /* HUGE_LEN of 'F' */

/* A range of @len whose pages were written, and then freed lazily. */
static char *freed_pages(size_t len, int advice)
{
	char *raw = new_map(len + HUGE_LEN);
	char *p;

	p = raw + (HUGE_LEN - (uintptr_t)raw % HUGE_LEN) % HUGE_LEN;
	if (p > raw)
		munmap(raw, (size_t)(p - raw));
	munmap(p + len, HUGE_LEN - (size_t)(p - raw));
	madvise(p, len, advice);
	memset(p, 'o', len);
	assert_int_equal(madvise(p, len, MADV_FREE), 0);
	return p;
}

static void read_fixed(char *p, size_t len, uint64_t slot)
{
	struct io_uring_cqe *cqe;

	io_uring_prep_read_fixed(io_uring_get_sqe(&ring), file, p,
				 (unsigned int)len, 0, (int)slot);
	assert_int_equal(io_uring_submit_and_wait(&ring, 1), 1);
	assert_int_equal(io_uring_wait_cqe(&ring, &cqe), 0);
	assert_int_equal(cqe->res, len);
	io_uring_cqe_seen(&ring, cqe);
}

/* A device and a cache over it, as an application has them. */
static struct kedge_device *dev;
static struct kedge_cache *cache;

static void begin(uint32_t flags)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts), .flags = flags };

	assert_int_equal(
		kedge_device_open_uring(&ring, flags ? &opts : NULL, &dev), 0);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
}

static void end(void)
{
	kedge_cache_close(cache);
	kedge_device_close(dev);
}

static const struct kedge_mr *get(char *p, size_t len)
{
	const struct kedge_mr *mr;

	assert_int_equal(kedge_cache_get(cache, p, len, KEDGE_ACCESS_LOCAL_WRITE, &mr), 0);
	return mr;
}

static void read_through(char *p, size_t len)
{
	const struct kedge_mr *mr = get(p, len);

	read_fixed(p, len, mr->device_handle);
	kedge_cache_put(cache, mr);
}

/* True: reclaim takes a byte of it. */
static bool is_lost(char *p, size_t len)
{
	size_t i;

	madvise(p, len, MADV_PAGEOUT);
	for (i = 0; i < len && p[i] == 'F'; i++)
		;
	return i < len;
}

/* A way in which a registration ends; true if data are lost. */
typedef bool (*ending)(char *p, size_t len);

static bool by_flush(char *p, size_t len)
{
	read_through(p, len);
	assert_int_equal(kedge_cache_flush(cache), 1);
	/* A kernel that lets go late does so at the latest now. */
	end();
	return is_lost(p, len);
}

static bool by_close(char *p, size_t len)
{
	read_through(p, len);
	end();
	return is_lost(p, len);
}

/* The cache is closed, and somebody holds it still. */
static bool by_close_while_held(char *p, size_t len)
{
	const struct kedge_mr *mr = get(p, len);

	read_fixed(p, len, mr->device_handle);
	end();
	return is_lost(p, len);
}

static bool by_eviction(char *p, size_t len)
{
	struct kedge_cache_opts opts = { .size = sizeof(opts),
					 .max_regions = 1 };
	struct kedge_cache_stats st = { .size = sizeof(st) };
	char *other = freed_pages(len, MADV_NOHUGEPAGE);

	kedge_cache_close(cache);
	assert_int_equal(kedge_cache_open(dev, NULL, &opts, &cache), 0);
	read_through(p, len);
	read_through(other, len);
	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.evictions, 1);
	end();
	munmap(other, len);
	return is_lost(p, len);
}

/* A page beside what was written is dropped: the rest is data. */
static bool by_a_neighbours_end(char *p, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	read_through(p, len);
	assert_int_equal(madvise(p, page, MADV_DONTNEED), 0);
	assert_int_equal(munmap(p + len - page, page), 0);
	kedge_cache_flush(cache);
	end();
	return is_lost(p + page, len - 2 * page);
}

/* It is part of a larger one, which ends later. */
static bool within_a_larger_one(char *p, size_t len)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	read_through(p, len / 2);
	read_through(p + len / 2, len / 2);
	assert_int_equal(kedge_cache_stats(cache, &st), 0);
	assert_int_equal(st.merges, 1);
	madvise(p, len, MADV_PAGEOUT);
	kedge_cache_flush(cache);
	end();
	return is_lost(p, len);
}

static bool where_mremap_took_it(char *p, size_t len)
{
	char *to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool lost;

	read_through(p, len);
	assert_ptr_equal(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to),
			 to);
	kedge_cache_flush(cache);
	end();
	lost = is_lost(to, len);
	/* Where the caller unmaps it. */
	assert_ptr_equal(mremap(to, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, p),
			 p);
	return lost;
}

/* Made read-only, which no mark can be had for, until the close. */
static bool by_the_end_of_its_writing(char *p, size_t len)
{
	bool lost;

	read_through(p, len);
	assert_int_equal(mprotect(p, len, PROT_READ), 0);
	kedge_cache_flush(cache);
	lost = is_lost(p, len);
	assert_int_equal(mprotect(p, len, PROT_READ | PROT_WRITE), 0);
	end();
	return lost || is_lost(p, len);
}

/* Moved in that state, when nobody watches it any more; then others come and go. */
static bool by_a_move_while_read_only(char *p, size_t len)
{
	char *to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *other = mmap(NULL, page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool lost;
	int i;

	read_through(p, len);
	assert_int_equal(mprotect(p, len, PROT_READ), 0);
	kedge_cache_flush(cache);
	assert_ptr_equal(mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to),
			 to);
	/* Owed slots are looked at every 100 ms, and at a close. */
	for (i = 0; i < 3; i++) {
		test_clock_move_ms(110);
		kedge_cache_put(cache, get(other, page));
		kedge_cache_flush(cache);
	}
	lost = is_lost(to, len);
	assert_int_equal(mprotect(to, len, PROT_READ | PROT_WRITE), 0);
	end();
	lost = lost || is_lost(to, len);
	assert_ptr_equal(mremap(to, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, p),
			 p);
	munmap(other, page);
	return lost;
}

static int rounds_lost(uint32_t flags, size_t len, int advice, ending how)
{
	int round, lost = 0;
	char *p;

	for (round = 0; round < ROUNDS; round++) {
		p = freed_pages(len, advice);
		begin(flags);
		lost += how(p, len);
		munmap(p, len);
	}
	return lost;
}

static void data_outlive(size_t len, int advice, ending how)
{
	/* Without the marks data are lost, or reclaim cannot be had here. */
	skip_if(!rounds_lost(KEDGE_URING_NO_MADV_FREE, len, advice, how),
		"no page is reclaimed here");
	assert_int_equal(rounds_lost(0, len, advice, how), 0);
}

static void data_in_freed_pages_outlive_the_registration(void **state)
{
	data_outlive(64 << 10, MADV_NOHUGEPAGE, by_flush);
}

static void data_in_freed_huge_pages_outlive_the_registration(void **state)
{
	data_outlive(HUGE_LEN, MADV_HUGEPAGE, by_flush);
}

#define OUTLIVE(how)                                            \
	static void data_outlive_##how(void **state)            \
	{                                                       \
		data_outlive(64 << 10, MADV_NOHUGEPAGE, how);   \
	}
OUTLIVE(by_close)
OUTLIVE(by_a_move_while_read_only)
OUTLIVE(by_close_while_held)
OUTLIVE(by_eviction)
OUTLIVE(by_a_neighbours_end)
OUTLIVE(within_a_larger_one)
OUTLIVE(where_mremap_took_it)
OUTLIVE(by_the_end_of_its_writing)

/* Pinned pages are no reclaim's, even unmarked; the design rests on that. */
static void what_is_pinned_is_not_reclaimed(void **state)
{
	const size_t len = 64 << 10;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		char *p = freed_pages(len, MADV_NOHUGEPAGE);
		const struct kedge_mr *mr;

		begin(KEDGE_URING_NO_MADV_FREE);
		mr = get(p, len);
		read_fixed(p, len, mr->device_handle);
		assert_false(is_lost(p, len));
		kedge_cache_put(cache, mr);
		end();
		munmap(p, len);
	}
}

/* ---- what the application gave back is not populated ---- */

static size_t resident(char *p, size_t len);

static void a_dropped_range_stays_empty(void **state)
{
	const size_t len = 64 << 10;
	char *p = freed_pages(len, MADV_NOHUGEPAGE);

	begin(0);
	read_through(p, len);
	assert_int_equal(madvise(p, len, MADV_DONTNEED), 0);
	kedge_cache_flush(cache);
	assert_int_equal(resident(p, len), 0);
	end();
	assert_int_equal(resident(p, len), 0);
	munmap(p, len);
}

static void a_part_that_was_dropped_stays_empty(void **state)
{
	const size_t len = 64 << 10, page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = freed_pages(len, MADV_NOHUGEPAGE);

	begin(0);
	read_through(p, len);
	/* Of what lies between two, the cache does not know. */
	assert_int_equal(madvise(p + page, page, MADV_DONTNEED), 0);
	assert_int_equal(madvise(p + 4 * page, page, MADV_DONTNEED), 0);
	end();
	assert_int_equal(resident(p + page, page), 0);
	assert_int_equal(resident(p + 4 * page, page), 0);
	assert_false(is_lost(p + 2 * page, 2 * page));
	munmap(p, len);
}

static void what_is_mapped_there_now_stays_empty(void **state)
{
	const size_t len = 64 << 10;
	const struct kedge_mr *mr;
	char *p = freed_pages(len, MADV_NOHUGEPAGE);
	int held;

	/* Also where it was held when the cache was flushed. */
	for (held = 0; held < 2; held++) {
		begin(0);
		mr = get(p, len);
		read_fixed(p, len, mr->device_handle);
		if (held)
			kedge_cache_flush(cache);
		else
			kedge_cache_put(cache, mr);
		munmap(p, len);
		assert_ptr_equal(mmap(p, len, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				      -1, 0),
				 p);
		if (held)
			kedge_cache_put(cache, mr);
		end();
		assert_int_equal(resident(p, len), 0);
	}
	munmap(p, len);
}

/* Pages that MADV_FREE took after the device wrote may go. */
static void what_was_freed_last_may_be_reclaimed(void **state)
{
	const size_t len = 64 << 10;
	char *p = freed_pages(len, MADV_NOHUGEPAGE);

	begin(0);
	read_through(p, len);
	assert_int_equal(madvise(p, len, MADV_FREE), 0);
	end();
	skip_if(!is_lost(p, len), "no page is reclaimed here");
	munmap(p, len);
}

/* ---- the limit on locked memory ---- */

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct h = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	memset(d, 0, sizeof(d));
	syscall(SYS_capget, &h, d);
	d[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	d[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	syscall(SYS_capset, &h, d);
}

/*
 * All of a user's rings share its RLIMIT_MEMLOCK, and this test may run twice at a time:
 * the rings are those of a user that nobody else is, with root's capabilities. A process
 * that may not change users has no other program beside it.
 */
static void become_a_user_alone(void)
{
	uid_t uid = 1000000 + (uid_t)getpid();

	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) || setresuid(uid, uid, uid))
		return;
	prctl(PR_SET_DUMPABLE, 1);
}

/* Two buffers by turns, of which the limit allows one: 0, or what is wrong. */
static int take_turns(void)
{
	const size_t len = 640 << 10;
	struct rlimit rl = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	struct io_uring tight;
	const struct kedge_mr *mr;
	char *p;
	int i;

	become_a_user_alone();
	drop_ipc_lock();
	if (setrlimit(RLIMIT_MEMLOCK, &rl) ||
	    io_uring_queue_init(8, &tight, 0) ||
	    kedge_device_open_uring(&tight, NULL, &dev) ||
	    kedge_cache_open(dev, NULL, NULL, &cache))
		return 1;
	/* Apart, or the two would be registered as one. */
	p = mmap(NULL, 4 * len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return 2;
	/* A huge page would count whole. */
	madvise(p, 4 * len, MADV_NOHUGEPAGE);
	/* A page, a few times: the device sees how the kernel lets go. */
	for (i = 0; i < 4; i++) {
		if (kedge_cache_get(cache, p, 1, 0, &mr))
			return 3;
		kedge_cache_put(cache, mr);
		kedge_cache_flush(cache);
	}
	for (i = 0; i < 4; i++) {
		if (kedge_cache_get(cache, p + (i % 2) * 2 * len, len,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr))
			return 4;
		kedge_cache_put(cache, mr);
	}
	return 0;
}

/* Also where what was evicted is unpinned a second later. */
static void eviction_makes_room_below_the_limit(void **state)
{
	int rc;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		rc = take_turns();
		if (rc)
			fprintf(stderr, "step %d: %s\n", rc,
				kedge_strerror(-ENOMEM));
		_exit(rc);
	}
	ended_well(pid);
}

/* ---- what is registered is not changed otherwise ---- */

static void marking_keeps_every_byte(void **state)
{
	const size_t len = 64 << 10;
	const struct kedge_mr *mr;
	size_t i;
	char *p;

	begin(0);
	p = new_map(len);
	for (i = 0; i < len; i++)
		p[i] = (char)(i * 7 + i / 4096);
	assert_int_equal(kedge_cache_get(cache, p, len, KEDGE_ACCESS_LOCAL_WRITE, &mr), 0);
	for (i = 0; i < len; i++)
		assert_int_equal(p[i], (char)(i * 7 + i / 4096));
	kedge_cache_put(cache, mr);
	end();
	munmap(p, len);
}

static size_t resident(char *p, size_t len)
{
	unsigned char vec[16];
	size_t i, n = 0, page = (size_t)sysconf(_SC_PAGESIZE);

	assert_true(len <= sizeof(vec) * page);
	if (mincore(p, len, vec))
		return 0;
	for (i = 0; i < len / page; i++)
		n += vec[i] & 1;
	return n;
}

/* Memory that is refused is so as ever, and not populated for it. */
static void what_cannot_be_pinned_is_not_touched(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), len = 8 * page;
	const struct kedge_mr *mr;
	char *p;

	begin(0);
	p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(kedge_cache_get(cache, p, len, KEDGE_ACCESS_LOCAL_WRITE, &mr), -EFAULT);
	assert_int_equal(resident(p, len), 0);
	/* A hole behind: the error is the hole's. */
	assert_int_equal(mprotect(p, len, PROT_READ | PROT_WRITE), 0);
	munmap(p + 4 * page, page);
	assert_int_equal(kedge_cache_get(cache, p, len, KEDGE_ACCESS_LOCAL_WRITE, &mr), -EFAULT);
	assert_int_equal(resident(p + 5 * page, 3 * page), 0);
	end();
	munmap(p, len);
}

static int make_file(void)
{
	char buf[65536];
	size_t n;

	memset(buf, 'F', sizeof(buf));
	file = memfd_create("data", MFD_CLOEXEC);
	if (file < 0)
		return -1;
	for (n = 0; n < HUGE_LEN; n += sizeof(buf))
		if (write(file, buf, sizeof(buf)) != (ssize_t)sizeof(buf))
			return -1;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_in_freed_pages_outlive_the_registration),
		cmocka_unit_test(data_in_freed_huge_pages_outlive_the_registration),
		cmocka_unit_test(data_outlive_by_a_move_while_read_only),
		cmocka_unit_test(data_outlive_by_close),
		cmocka_unit_test(data_outlive_by_close_while_held),
		cmocka_unit_test(data_outlive_by_eviction),
		cmocka_unit_test(data_outlive_by_a_neighbours_end),
		cmocka_unit_test(data_outlive_within_a_larger_one),
		cmocka_unit_test(data_outlive_where_mremap_took_it),
		cmocka_unit_test(data_outlive_by_the_end_of_its_writing),
		cmocka_unit_test(what_is_pinned_is_not_reclaimed),
		cmocka_unit_test(a_dropped_range_stays_empty),
		cmocka_unit_test(a_part_that_was_dropped_stays_empty),
		cmocka_unit_test(what_is_mapped_there_now_stays_empty),
		cmocka_unit_test(what_was_freed_last_may_be_reclaimed),
		cmocka_unit_test(eviction_makes_room_below_the_limit),
		cmocka_unit_test(marking_keeps_every_byte),
		cmocka_unit_test(what_cannot_be_pinned_is_not_touched),
	};
	int rc;

	pin_alone();
	rc = io_uring_queue_init(8, &ring, 0);
	if (rc) {
		printf("skipped: no io_uring here: %s\n", strerror(-rc));
		return 77;
	}
	rc = kedge_device_open_uring(&ring, NULL, &dev);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return 77;
	}
	kedge_device_close(dev);
	if (make_file()) {
		perror("memfd");
		return 1;
	}
	test_clock_begin();
	return RUN(tests);
}
