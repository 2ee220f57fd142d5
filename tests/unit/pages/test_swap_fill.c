// SPDX-License-Identifier: BSD-2-Clause
/*
 * New pages with contents: all of it where there is nothing, up to the first page
 * where there is something, and nothing where others watch; no neighbour changes.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "cases.h"
#include "pages/swap.h"

#define PAGES 64u

static size_t page;
static char *src, *dst; /* dst: one page more on either side */

static int setup(void **state)
{
	size_t i;

	page = page_len();
	src = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	dst = mmap(NULL, (PAGES + 2) * page, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (src == MAP_FAILED || dst == MAP_FAILED)
		return -1;
	madvise(dst, (PAGES + 2) * page, MADV_NOHUGEPAGE);
	dst += page;
	for (i = 0; i < PAGES * page; i++)
		src[i] = (char)(i * 7 + i / page);
	return 0;
}

static int teardown(void **state)
{
	munmap(src, PAGES * page);
	munmap(dst - page, (PAGES + 2) * page);
	return 0;
}

static bool is_there(const char *at)
{
	unsigned char c = 0;

	assert_int_equal(mincore((void *)at, page, &c), 0);
	return c & 1;
}

static void what_is_new_gets_everything(void **state)
{
	unsigned int before;

	/* The means of its work are kept. */
	skip_if(!pages_fill(dst, src, page), "userfaultfd is not to be had");
	madvise(dst, page, MADV_DONTNEED);
	before = map_lines();
	assert_int_equal(pages_fill(dst, src, PAGES * page), PAGES * page);
	assert_memory_equal(dst, src, PAGES * page);
	assert_false(is_there(dst - page));
	assert_false(is_there(dst + PAGES * page));
	assert_int_equal(map_lines(), before);
	/* They are the application's like any others. */
	dst[0]++;
	assert_int_equal(src[0] + 1, dst[0]);
}

static void it_stops_where_something_is(void **state)
{
	size_t at = 5 * page;

	if (!pages_fill(dst, src, page))
		skip();
	madvise(dst, page, MADV_DONTNEED);
	memset(dst + at, 0x55, page);
	assert_int_equal(pages_fill(dst, src, PAGES * page), at);
	assert_memory_equal(dst, src, at);
	assert_int_equal(dst[at], 0x55);
	assert_int_equal(dst[at + page - 1], 0x55);
	assert_false(is_there(dst + at + page));
	assert_int_equal(pages_fill(dst + at, src, page), 0);
}

static void nothing_where_there_is_no_mapping(void **state)
{
	munmap(dst, page);
	assert_int_equal(pages_fill(dst, src, page), 0);
	mmap(dst, page, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	assert_int_equal(pages_fill(dst, (void *)page, page), 0);
	assert_false(is_there(dst));
}

/* Another's userfaultfd keeps what it has. */
static void nothing_where_another_watches(void **state)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = {
		.range = { (uintptr_t)dst + page, page },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    ioctl(fd, UFFDIO_REGISTER, &r))
		skip();
	assert_int_equal(pages_fill(dst, src, 4 * page), 0);
	assert_false(is_there(dst));
	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, &r.range), 0);
	close(fd);
	assert_int_equal(pages_fill(dst, src, 4 * page), 4 * page);
}

/* ---- a thread that the kernel leaves asleep ---- */

static char *asleep_at; /* NULL: the kernel does as it does */
static pthread_t asleep;

static void *touch(void *arg)
{
	return (void *)(uintptr_t)*(volatile char *)arg;
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

/*
 * Where UFFDIO_UNREGISTER wakes before the last fault has begun to wait. That
 * takes a thread that is put off its processor at one instruction; here it begins
 * to wait afterwards, in a registration that ends without a wake.
 */
static void leave_one_asleep(int fd)
{
	struct uffdio_register r = {
		.range = { (uintptr_t)asleep_at, page },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct pollfd p = { .fd = fd, .events = POLLIN };

	madvise(asleep_at, page, MADV_DONTNEED);
	assert_int_equal(__real_ioctl(fd, UFFDIO_REGISTER, &r), 0);
	assert_int_equal(pthread_create(&asleep, NULL, touch, asleep_at), 0);
	while (poll(&p, 1, -1) != 1)
		;
	assert_ptr_equal(mmap(asleep_at, page, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 asleep_at);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	int rc;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	rc = __real_ioctl(fd, request, arg);
	if (request == UFFDIO_UNREGISTER && asleep_at)
		leave_one_asleep(fd);
	return rc;
}

static void who_waits_too_late_is_woken(void **state)
{
	struct timespec limit;

	if (!pages_fill(dst, src, page))
		skip();
	madvise(dst, page, MADV_DONTNEED);
	asleep_at = dst + 3 * page;
	pages_fill(dst, src, PAGES * page);
	asleep_at = NULL;
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 60;
	assert_int_equal(pthread_timedjoin_np(asleep, NULL, &limit), 0);
}

/* ---- a thread that looks meanwhile ---- */

static atomic_uint stop, wrong, looks;

/* A page has all of its contents, or is new and empty because this thread came
 * before. */
static void *look(void *arg)
{
	unsigned int i = 0;
	char first, last;

	while (!atomic_load(&stop)) {
		i = (i + 13) % PAGES;
		first = *(volatile char *)(dst + i * page + 1);
		last = *(volatile char *)(dst + (i + 1) * page - 1);
		if (first && last &&
		    (first != src[i * page + 1] ||
		     last != src[(i + 1) * page - 1]))
			atomic_fetch_add(&wrong, 1);
		atomic_fetch_add(&looks, 1);
	}
	return arg;
}

static void who_looks_meanwhile_waits(void **state)
{
	size_t done, some = 0;
	pthread_t thread;
	int i;

	atomic_store(&stop, 0);
	assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
	for (i = 0; i < 2000; i++) {
		done = pages_fill(dst, src, PAGES * page);
		assert_memory_equal(dst, src, done);
		some += done;
		madvise(dst, PAGES * page, MADV_DONTNEED);
	}
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&wrong), 0);
	assert_true(atomic_load(&looks) > 0);
	printf("%zu of %zu pages, %u looks\n", some / page,
	       (size_t)2000 * PAGES, atomic_load(&looks));
}

#include "test_swap_fill.cases.h"
