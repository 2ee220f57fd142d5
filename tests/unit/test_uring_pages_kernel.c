// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the io_uring device does to pages, on the kernel that runs: data that a
 * request put into lazily freed pages outlive their registration, and the
 * refusals are those of the pin alone.
 */
#include <errno.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <liburing.h>

#include <cmocka.h>

#include <kedge/kedge.h>
#include <kedge/uring.h>

#define HUGE_LEN ((size_t)2 << 20)
#define ROUNDS	 10

static struct io_uring ring;
static int file; /* HUGE_LEN of 'F' */

/* A range of @len whose pages were written, and then freed lazily. */
static char *freed_pages(size_t len, int advice)
{
	char *raw = mmap(NULL, len + HUGE_LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p;

	assert_ptr_not_equal(raw, MAP_FAILED);
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

/*
 * Read into freed pages through a cache over a device with @flags, let go of
 * the registration, reclaim: how many of ROUNDS lost bytes.
 */
static int rounds_lost(uint32_t flags, size_t len, int advice)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts), .flags = flags };
	const struct kedge_mr *mr;
	struct kedge_device *dev;
	struct kedge_cache *cache;
	int round, lost = 0;
	size_t i;
	char *p;

	assert_int_equal(kedge_device_open_uring(&ring, &opts, &dev), 0);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	for (round = 0; round < ROUNDS; round++) {
		p = freed_pages(len, advice);
		assert_int_equal(kedge_cache_get(cache, p, len,
						 KEDGE_ACCESS_LOCAL_WRITE, &mr),
				 0);
		read_fixed(p, len, mr->device_handle);
		kedge_cache_put(cache, mr);
		assert_true(kedge_cache_flush(cache) >= 0);
		/* A kernel that lets go late does so at the latest now. */
		kedge_cache_close(cache);
		kedge_device_close(dev);
		madvise(p, len, MADV_PAGEOUT);
		for (i = 0; i < len && p[i] == 'F'; i++)
			;
		lost += i < len;
		munmap(p, len);
		assert_int_equal(kedge_device_open_uring(&ring, &opts, &dev),
				 0);
		assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	}
	kedge_cache_close(cache);
	kedge_device_close(dev);
	return lost;
}

static void data_outlive_the_registration(size_t len, int advice)
{
	/* Without the marks data are lost, or reclaim cannot be had here. */
	if (!rounds_lost(KEDGE_URING_NO_MADV_FREE, len, advice)) {
		print_message("skipped: no page is reclaimed here\n");
		skip();
	}
	assert_int_equal(rounds_lost(0, len, advice), 0);
}

static void data_in_freed_pages_outlive_the_registration(void **state)
{
	data_outlive_the_registration(64 << 10, MADV_NOHUGEPAGE);
}

static void data_in_freed_huge_pages_outlive_the_registration(void **state)
{
	data_outlive_the_registration(HUGE_LEN, MADV_HUGEPAGE);
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

/* Two buffers by turns, of which the limit allows one: 0, or what is wrong. */
static int take_turns(void)
{
	const size_t len = 640 << 10;
	struct rlimit rl = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
	struct io_uring tight;
	struct kedge_cache *cache;
	struct kedge_device *dev;
	const struct kedge_mr *mr;
	char *p;
	int i;

	drop_ipc_lock();
	if (setrlimit(RLIMIT_MEMLOCK, &rl) ||
	    io_uring_queue_init(8, &tight, 0) ||
	    kedge_device_open_uring(&tight, NULL, &dev) ||
	    kedge_cache_open(dev, NULL, NULL, &cache))
		return 1;
	/* Apart, or the two would be registered as one. */
	p = mmap(NULL, 4 * len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
	int status, rc;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		rc = take_turns();
		if (rc)
			fprintf(stderr, "step %d: %s\n", rc,
				kedge_strerror(-ENOMEM));
		_exit(rc);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- what is registered is not changed otherwise ---- */

static void marking_keeps_every_byte(void **state)
{
	const size_t len = 64 << 10;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	struct kedge_device *dev;
	size_t i;
	char *p;

	assert_int_equal(kedge_device_open_uring(&ring, NULL, &dev), 0);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	for (i = 0; i < len; i++)
		p[i] = (char)(i * 7 + i / 4096);
	assert_int_equal(kedge_cache_get(cache, p, len,
					 KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	for (i = 0; i < len; i++)
		assert_int_equal(p[i], (char)(i * 7 + i / 4096));
	kedge_cache_put(cache, mr);
	kedge_cache_close(cache);
	kedge_device_close(dev);
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

/* What is refused is refused as ever, and not populated for it. */
static void what_cannot_be_pinned_is_not_touched(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), len = 8 * page;
	struct kedge_cache *cache;
	const struct kedge_mr *mr;
	struct kedge_device *dev;
	char *p;

	assert_int_equal(kedge_device_open_uring(&ring, NULL, &dev), 0);
	assert_int_equal(kedge_cache_open(dev, NULL, NULL, &cache), 0);
	p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(kedge_cache_get(cache, p, len,
					 KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 -EFAULT);
	assert_int_equal(resident(p, len), 0);
	/* A hole behind: the error is the hole's. */
	assert_int_equal(mprotect(p, len, PROT_READ | PROT_WRITE), 0);
	munmap(p + 4 * page, page);
	assert_int_equal(kedge_cache_get(cache, p, len,
					 KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 -EFAULT);
	assert_int_equal(resident(p + 5 * page, 3 * page), 0);
	kedge_cache_close(cache);
	kedge_device_close(dev);
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
		cmocka_unit_test(
			data_in_freed_huge_pages_outlive_the_registration),
		cmocka_unit_test(eviction_makes_room_below_the_limit),
		cmocka_unit_test(marking_keeps_every_byte),
		cmocka_unit_test(what_cannot_be_pinned_is_not_touched),
	};
	struct kedge_device *dev;
	int rc;

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
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
