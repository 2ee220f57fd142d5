/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What io_uring pins for all processes of a user counts as one against ulimit -l, and some tests
 * pin all that they may. Where it binds, those run one at a time, as each has a lock to its end,
 * and leave 2 MiB of the usual 8 to tests that pin little, which take no lock. The kernel unpins a
 * moment after a process has ended.
 */
#ifndef TESTS_ALONE_H
#define TESTS_ALONE_H

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIN_MOST ((rlim_t)6 << 20)

static inline void pin_alone(void)
{
	struct rlimit rl;
	static int fd = -1;

	if (!geteuid() || fd >= 0)
		return;
	fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	flock(fd, LOCK_EX);
	usleep(100000);
	if (getrlimit(RLIMIT_MEMLOCK, &rl) || rl.rlim_cur <= PIN_MOST)
		return;
	rl.rlim_cur = PIN_MOST;
	setrlimit(RLIMIT_MEMLOCK, &rl);
}

#endif /* TESTS_ALONE_H */
