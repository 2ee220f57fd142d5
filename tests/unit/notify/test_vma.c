// SPDX-License-Identifier: BSD-2-Clause
/*
 * Memory that may be watched, by both ways of asking: a descriptor that knows
 * PROCMAP_QUERY, and none, so that /proc/self/maps is read.
 */
#include "cases.h"
#include "notify/internal.h"

#define PAGE  ((uint64_t)4096)
#define PAGES 16

static int fds[2]; /* -1: the kernel's answer is EBADF, so it is read */
static char *mem;

static int setup(void **state)
{
	fds[0] = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	fds[1] = -1;
	/* A hole before and behind, so that nothing melts with it. */
	mem = mmap(NULL, (PAGES + 2) * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fds[0] < 0 || mem == MAP_FAILED)
		return -1;
	munmap(mem, PAGE);
	mem += PAGE;
	return munmap(mem + PAGES * PAGE, PAGE);
}

static int teardown(void **state)
{
	close(fds[0]);
	return munmap(mem, PAGES * PAGE);
}

static void expect(unsigned int first, unsigned int cnt, int rc)
{
	uint64_t start = (uintptr_t)mem + first * PAGE;
	struct vma_span whole;
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(vma_check(fds[i], start, start + cnt * PAGE,
					   &whole), rc);
}

static void over(unsigned int page, int prot, int flags, int fd)
{
	assert_true(mmap(mem + page * PAGE, PAGE, prot, flags | MAP_FIXED, fd,
			 0) != MAP_FAILED);
}

static void private_memory_is_good(void **state)
{
	uint64_t start = (uintptr_t)mem;
	struct vma_span whole;
	int i;

	expect(0, PAGES, 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(vma_check(fds[i], start + 3 * PAGE,
					   start + 5 * PAGE, &whole), 0);
		assert_int_equal(whole.start, start);
		assert_int_equal(whole.end, start + PAGES * PAGE);
	}
}

static void several_mappings_are_one_range(void **state)
{
	assert_int_equal(mprotect(mem + 4 * PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(mprotect(mem + 6 * PAGE, PAGE, PROT_NONE), 0);
	expect(0, PAGES, 0);
	expect(4, 1, 0);
}

static void a_hole_is_a_fault(void **state)
{
	assert_int_equal(munmap(mem + 5 * PAGE, PAGE), 0);
	expect(0, 5, 0);
	expect(6, PAGES - 6, 0);
	expect(5, 1, -EFAULT);
	expect(0, PAGES, -EFAULT);
	expect(0, 6, -EFAULT);
	expect(5, 2, -EFAULT);
	expect(PAGES - 1, 2, -EFAULT);
}

static void shared_memory_is_refused(void **state)
{
	over(2, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1);
	expect(0, 2, 0);
	expect(2, 1, -EOPNOTSUPP);
	expect(0, PAGES, -EOPNOTSUPP);
}

static void files_are_refused(void **state)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int memfd = memfd_create("a name  with blanks", MFD_CLOEXEC);

	assert_true(file >= 0 && memfd >= 0);
	assert_int_equal(ftruncate(memfd, PAGE), 0);
	over(2, PROT_READ, MAP_PRIVATE, file);
	over(4, PROT_READ | PROT_WRITE, MAP_PRIVATE, memfd);
	over(6, PROT_READ | PROT_WRITE, MAP_SHARED, memfd);
	close(file);
	close(memfd);
	expect(2, 1, -EOPNOTSUPP);
	expect(4, 1, -EOPNOTSUPP);
	expect(6, 1, -EOPNOTSUPP);
	expect(3, 1, 0);
	expect(0, PAGES, -EOPNOTSUPP);
}

#include "test_vma.cases.h"

int main(void)
{
	if (sysconf(_SC_PAGESIZE) != (long)PAGE) {
		print_message("skipped: written for pages of 4 KiB\n");
		return 77;
	}
	return RUN(cases);
}
