// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* UMMUNOT_SWAP_PAGES: what changes places, and what is refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ummunot.h>

#include "../kselftest_harness.h"

#define HUGE (2UL << 20)

FIXTURE(swap)
{
	int fd;
	size_t page;
	char *a;
	char *b;
};

static int swap_pages(int fd, void *a, void *b, size_t len, uint64_t flags)
{
	struct ummunot_swap_ioctl r = {
		.a = (uintptr_t)a,
		.b = (uintptr_t)b,
		.len = len,
		.flags = flags,
	};

	return ioctl(fd, UMMUNOT_SWAP_PAGES, &r) ? -errno : 0;
}

/* Two huge pages' room, of a mapping of its own. */
static char *room(void)
{
	char *p = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	if (p == MAP_FAILED)
		return p;
	p = (char *)(((uintptr_t)p + HUGE) & ~(HUGE - 1));
	return mmap(p, 2 * HUGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

FIXTURE_SETUP(swap)
{
	self->page = sysconf(_SC_PAGESIZE);
	self->fd = open("/dev/ummunot", O_RDONLY | O_CLOEXEC);
	if (self->fd < 0 && errno == ENOENT)
		SKIP(return, "no /dev/ummunot: CONFIG_UMMUNOT");
	ASSERT_LE(0, self->fd);
	if (swap_pages(self->fd, NULL, NULL, 0, 0) == -ENOTTY)
		SKIP(return, "no UMMUNOT_SWAP_PAGES: CONFIG_UMMUNOT_SWAP");
	self->a = room();
	self->b = room();
	ASSERT_NE(MAP_FAILED, self->a);
	ASSERT_NE(MAP_FAILED, self->b);
}

FIXTURE_TEARDOWN(swap)
{
	close(self->fd);
}

TEST_F(swap, single_pages)
{
	madvise(self->a, 2 * HUGE, MADV_NOHUGEPAGE);
	madvise(self->b, 2 * HUGE, MADV_NOHUGEPAGE);
	memset(self->a, 1, HUGE);
	memset(self->b, 2, HUGE);
	ASSERT_EQ(0, swap_pages(self->fd, self->a, self->b, HUGE, 0));
	EXPECT_EQ(2, self->a[HUGE - 1]);
	EXPECT_EQ(1, self->b[0]);
	ASSERT_EQ(0, swap_pages(self->fd, self->a, self->b + self->page, HUGE,
				0));
	EXPECT_EQ(1, self->a[0]);
	EXPECT_EQ(2, self->b[self->page]);
	EXPECT_EQ(0, self->a[HUGE - 1]);
}

TEST_F(swap, huge_pages)
{
	madvise(self->a, 2 * HUGE, MADV_HUGEPAGE);
	madvise(self->b, 2 * HUGE, MADV_HUGEPAGE);
	memset(self->a, 1, 2 * HUGE);
	ASSERT_EQ(0, swap_pages(self->fd, self->a, self->b, 2 * HUGE, 0));
	EXPECT_EQ(1, self->b[2 * HUGE - 1]);
	EXPECT_EQ(0, self->a[0]);
}

TEST_F(swap, what_a_pipe_holds_goes_along)
{
	struct iovec v = { self->a, 1 };
	int pipes[2];
	char got;

	/* A huge page with such a reference cannot be split. */
	madvise(self->a, 2 * HUGE, MADV_NOHUGEPAGE);
	madvise(self->b, 2 * HUGE, MADV_NOHUGEPAGE);
	self->a[0] = 1;
	self->b[0] = 2;
	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(1, vmsplice(pipes[1], &v, 1, 0));
	ASSERT_EQ(0, swap_pages(self->fd, self->a, self->b, self->page, 0));
	self->b[0] = 3;
	ASSERT_EQ(1, read(pipes[0], &got, 1));
	EXPECT_EQ(3, got);
}

TEST_F(swap, refused)
{
	int fd = self->fd;
	size_t page = self->page;
	char *a = self->a, *b = self->b;
	pid_t pid;

	a[0] = 1;
	EXPECT_EQ(-EINVAL, swap_pages(fd, a, b, 0, 0));
	EXPECT_EQ(-EINVAL, swap_pages(fd, a, b, page, 1 << 1));
	EXPECT_EQ(-EINVAL, swap_pages(fd, a, b + 1, page, 0));
	EXPECT_EQ(-EINVAL, swap_pages(fd, a, a + page, 2 * page, 0));
	EXPECT_EQ(-EFAULT, swap_pages(fd, a, NULL, page, 0));
	mprotect(b, page, PROT_READ);
	EXPECT_EQ(-EACCES, swap_pages(fd, a, b, page, 0));
	EXPECT_EQ(-ERANGE, swap_pages(fd, b, a, 2 * page, 0));
	b = mmap(NULL, page, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT_EQ(-EOPNOTSUPP, swap_pages(fd, a, b, page, 0));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	EXPECT_EQ(-EMLINK, swap_pages(fd, a, a + page, page, 0));
	EXPECT_EQ(1, a[0]);
}

TEST_HARNESS_MAIN
