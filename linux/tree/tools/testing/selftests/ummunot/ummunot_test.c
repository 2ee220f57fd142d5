// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* /dev/ummunot as a program uses it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ummunot.h>

#include "../kselftest_harness.h"

#define PAGES 8

FIXTURE(ummunot)
{
	int fd;
	const uint64_t *counter;
	uint64_t first;
	char *m;
	size_t page;
};

static int watch(int fd, const void *start, size_t len, uint64_t cookie)
{
	struct ummunot_register_ioctl r = {
		.start = (uintptr_t)start,
		.end = (uintptr_t)start + len,
		.user_cookie = cookie,
	};

	return ioctl(fd, UMMUNOT_REGISTER_REGION, &r) ? -errno : 0;
}

FIXTURE_SETUP(ummunot)
{
	self->page = sysconf(_SC_PAGESIZE);
	self->fd = open("/dev/ummunot", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (self->fd < 0 && errno == ENOENT)
		SKIP(return, "no /dev/ummunot: CONFIG_UMMUNOT");
	ASSERT_LE(0, self->fd);
	self->counter = mmap(NULL, self->page, PROT_READ, MAP_SHARED, self->fd,
			     0);
	ASSERT_NE(MAP_FAILED, self->counter);
	self->first = *self->counter;
	self->m = mmap(NULL, PAGES * self->page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->m);
	madvise(self->m, PAGES * self->page, MADV_NOHUGEPAGE);
	memset(self->m, 1, PAGES * self->page);
	ASSERT_EQ(0, watch(self->fd, self->m, PAGES * self->page, 7));
}

FIXTURE_TEARDOWN(ummunot)
{
	close(self->fd);
}

static uint64_t now(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

/* An event for pages [from, to), and a LAST that tells all. */
#define EXPECT_TOLD(from, to) do {					     \
	struct ummunot_event ev[4];					     \
									     \
	EXPECT_LT(self->first, now(self->counter));			     \
	ASSERT_EQ(2 * sizeof(ev[0]), read(self->fd, ev, sizeof(ev)));	     \
	EXPECT_EQ(UMMUNOT_EVENT_TYPE_INVAL, ev[0].type);		     \
	EXPECT_EQ(7, ev[0].user_cookie_counter);			     \
	EXPECT_EQ((uintptr_t)self->m + (from) * self->page, ev[0].hint_start); \
	EXPECT_EQ((uintptr_t)self->m + (to) * self->page, ev[0].hint_end);    \
	EXPECT_EQ(UMMUNOT_EVENT_TYPE_LAST, ev[1].type);			     \
	EXPECT_EQ(now(self->counter), ev[1].user_cookie_counter);	     \
} while (0)

TEST_F(ummunot, munmap_is_told)
{
	munmap(self->m + self->page, 2 * self->page);
	EXPECT_TOLD(1, 3);
}

TEST_F(ummunot, dontneed_is_told)
{
	madvise(self->m + 3 * self->page, self->page, MADV_DONTNEED);
	EXPECT_TOLD(3, 4);
}

TEST_F(ummunot, mremap_is_told)
{
	char *to = mmap(NULL, self->page, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_EQ(to, mremap(self->m, self->page, self->page,
			     MREMAP_MAYMOVE | MREMAP_FIXED, to));
	EXPECT_TOLD(0, 1);
}

TEST_F(ummunot, a_vfork_childs_munmap_is_told)
{
	char *at = self->m;
	size_t len = self->page;
	pid_t pid = vfork();

	if (!pid) {
		munmap(at, len);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	EXPECT_TOLD(0, 1);
}

TEST_F(ummunot, what_leaves_the_pages_is_silent)
{
	struct ummunot_event ev;

	mprotect(self->m, self->page, PROT_READ);
	EXPECT_EQ(self->first, now(self->counter));
	EXPECT_EQ(-1, read(self->fd, &ev, sizeof(ev)));
	EXPECT_EQ(EAGAIN, errno);
}

TEST_F(ummunot, a_child_may_only_poll)
{
	struct pollfd p = { .fd = self->fd, .events = POLLIN };
	struct ummunot_event ev;
	int status;
	pid_t pid;

	munmap(self->m, self->page);
	pid = fork();
	if (!pid)
		_exit(poll(&p, 1, 0) != 1 || !(p.revents & POLLIN) ||
		      read(self->fd, &ev, sizeof(ev)) != -1 || errno != ESRCH);
	waitpid(pid, &status, 0);
	EXPECT_EQ(0, status);
	EXPECT_TOLD(0, 1);
}

TEST_F(ummunot, bad_requests_are_refused)
{
	uint64_t cookie = 8;

	EXPECT_EQ(-EINVAL, watch(self->fd, self->m, 0, 8));
	EXPECT_EQ(-EINVAL, watch(self->fd, (void *)-4096l, 4095, 8));
	EXPECT_EQ(-EEXIST, watch(self->fd, self->m, 1, 7));
	EXPECT_EQ(-1, ioctl(self->fd, UMMUNOT_UNREGISTER_REGION, &cookie));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, self->page, PROT_READ, MAP_PRIVATE,
				   self->fd, 0));
	EXPECT_EQ(-1, open("/dev/ummunot", O_RDWR));
	EXPECT_EQ(EINVAL, errno);
}

/* More than a callback tells itself. */
TEST_F(ummunot, every_watch_of_a_page_is_told)
{
	static bool told[1001];
	struct ummunot_event ev[64];
	unsigned int i, cnt = 0;
	uint64_t last = 0;
	ssize_t n;

	for (i = 100; i < 1000; i++)
		ASSERT_EQ(0, watch(self->fd, self->m + i, self->page, i));
	munmap(self->m, self->page);
	while (last != now(self->counter)) {
		n = read(self->fd, ev, sizeof(ev));
		ASSERT_LT(0, n);
		for (i = 0; i < n / sizeof(ev[0]); i++) {
			if (ev[i].type == UMMUNOT_EVENT_TYPE_LAST) {
				last = ev[i].user_cookie_counter;
				continue;
			}
			ASSERT_GT(1001, ev[i].user_cookie_counter);
			cnt += !told[ev[i].user_cookie_counter];
			told[ev[i].user_cookie_counter] = true;
		}
	}
	EXPECT_EQ(901, cnt);
}

TEST_HARNESS_MAIN
