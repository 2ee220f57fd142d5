// SPDX-License-Identifier: BSD-2-Clause
/* Pages for a memfd, by this process and by a child that is ended as it gets them. */
#include "core.h"
#include "region/internal.h"

#define LEN ((uint64_t)1 << 20)

/* Of the calls that are counted, the one that fails, with what; 0: none. */
static unsigned int fail_at, calls;
static int fail_with;
static bool interrupted;     /* the next wait for a child */
static unsigned int kill_at; /* the call at which a child is ended */

extern long __real_syscall(long nr, long a, long b, long c, long d, long e, long f);
extern long __wrap_syscall(long nr, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	if (nr == SYS_fallocate || nr == SYS_clone || nr == SYS_openat || nr == SYS_write) {
		calls++;
		if (calls == kill_at && nr == SYS_fallocate)
			__real_syscall(SYS_kill, __real_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0),
				       SIGKILL, 0, 0, 0, 0);
		if (calls == fail_at) {
			errno = fail_with;
			return -1;
		}
	}
	if (nr == SYS_wait4 && interrupted) {
		interrupted = false;
		errno = EINTR;
		return -1;
	}
	return __real_syscall(nr, a, b, c, d, e, f);
}

static int file(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 * (off_t)LEN), 0);
	return fd;
}

static uint64_t has(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void both_ways_give_pages(void **state)
{
	uint64_t had = 1;
	int fd = file();

	assert_int_equal(region_fill(fd, 0, LEN, false, &had), 0);
	assert_int_equal(has(fd), LEN);
	assert_int_equal(region_fill(fd, LEN, LEN, true, &had), 0);
	assert_int_equal(has(fd), 2 * LEN);
	assert_int_equal(had, 1);
	close(fd);
}

static void a_child_that_is_ended_leaves_what_it_had(void **state)
{
	uint64_t had = 1;
	int fd = file();

	calls = 0;
	kill_at = 4; /* clone, openat, write, fallocate */
	assert_int_equal(region_fill(fd, 0, LEN, true, &had), -ENOMEM);
	kill_at = 0;
	assert_int_equal(had, 0);
	assert_int_equal(region_fill(fd, 0, LEN, true, &had), 0);
	close(fd);
}

static int each_failing(int fd, bool careful, unsigned int step, int with)
{
	uint64_t had = 1;
	int rc;

	calls = 0;
	fail_at = step;
	fail_with = with;
	rc = region_fill(fd, 0, LEN, careful, &had);
	fail_at = 0;
	if (rc)
		assert_int_equal(had, 0);
	return rc;
}

/* A signal only interrupts. */
static void an_error_comes_back(void **state)
{
	int fd = file();

	assert_int_equal(each_failing(fd, false, 1, ENOSPC), -ENOMEM);
	assert_int_equal(each_failing(fd, false, 1, EPERM), -EPERM);
	assert_int_equal(each_failing(fd, true, 1, ENOMEM), -ENOMEM);  /* clone */
	assert_int_equal(each_failing(fd, true, 1, EPERM), -EAGAIN);
	assert_int_equal(each_failing(fd, true, 2, ENOENT), -EAGAIN);  /* openat */
	assert_int_equal(each_failing(fd, true, 3, EACCES), -EAGAIN);  /* write */
	assert_int_equal(each_failing(fd, true, 4, ENOSPC), -ENOMEM);  /* fallocate */
	assert_int_equal(each_failing(fd, true, 4, ENOMEM), -ENOMEM);
	assert_int_equal(has(fd), 0);
	assert_int_equal(each_failing(fd, true, 4, EINTR), 0);
	assert_int_equal(each_failing(fd, false, 1, EINTR), 0);
	interrupted = true;
	assert_int_equal(each_failing(fd, true, 0, 0), 0);
	assert_false(interrupted);
	assert_int_equal(has(fd), LEN);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ways_give_pages),
		cmocka_unit_test(a_child_that_is_ended_leaves_what_it_had),
		cmocka_unit_test(an_error_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
