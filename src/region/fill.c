// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pages for a memfd, where there may not be enough.
 *
 * fallocate() fails where the machine has no page left, but at the limit of a control group
 * it does not: the kernel looks for a process of the group to end, and takes the largest, which
 * is this one as likely as not. So a child does it, a process of its own memory which asks
 * to be ended first (oom_score_adj, which anybody may raise). If it is killed the pages are
 * counted that it got, and given back. The memfd is the same; the pages are charged to the
 * group, in which both are.
 *
 * To make a process costs as much as fork() does, so where there is far more memory than is
 * wanted this one does it itself.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "region/internal.h"

/* A child that is to end hears of it between two of these. */
#define STEP_LEN ((uint64_t)64 << 20)
#define BLOCK_LEN 512u /* of st_blocks */

/* System calls alone: in a child other threads' locks are taken for good. */
static int fill(int fd, uint64_t off, uint64_t len)
{
	uint64_t n;

	for (; len; off += n, len -= n) {
		n = len < STEP_LEN ? len : STEP_LEN;
		while (syscall(SYS_fallocate, fd, 0, (off_t)off, (off_t)n))
			if (errno != EINTR)
				return errno;
	}
	return 0;
}

static void fill_as_child(int fd, uint64_t off, uint64_t len, long parent)
{
	static const char first[] = "1000";
	long file;
	int err = 0;

	/* Connections are here as well, and peers are to hear of their end at once. */
	if (fd > 0)
		syscall(SYS_close_range, 0, fd - 1, 0);
	syscall(SYS_close_range, fd + 1, UINT32_MAX, 0);
	file = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	syscall(SYS_prctl, 1 /* PR_SET_PDEATHSIG */, SIGKILL, 0, 0, 0);
	/* It would be this process's parent that is ended. */
	if (file < 0 || syscall(SYS_write, file, first, sizeof(first) - 1) < 0)
		err = EAGAIN;
	if (!err && syscall(SYS_getppid) == parent)
		err = fill(fd, off, len);
	syscall(SYS_exit_group, err);
}

static uint64_t allocated(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_blocks * BLOCK_LEN;
}

static int fill_by_child(int fd, uint64_t off, uint64_t len)
{
	const long parent = syscall(SYS_getpid);
	/* No stack: its own copy of this one. No signal as it ends. */
	long pid = syscall(SYS_clone, 0, 0, 0, 0, 0);
	int status = 0;

	if (!pid)
		fill_as_child(fd, off, len, parent);
	if (pid < 0)
		return errno == ENOMEM ? ENOMEM : EAGAIN;
	while (syscall(SYS_wait4, pid, &status, __WALL, NULL) < 0)
		if (errno != EINTR)
			return ECHILD;
	return WIFEXITED(status) ? WEXITSTATUS(status) : ENOMEM;
}

int region_fill(int fd, uint64_t off, uint64_t len, bool careful, uint64_t *had)
{
	const uint64_t before = allocated(fd);
	uint64_t now;
	int err = careful ? fill_by_child(fd, off, len) : fill(fd, off, len);

	if (!err)
		return 0;
	now = allocated(fd);
	*had = now > before ? now - before : 0;
	/* tmpfs says so when memory is used up. */
	return err == ENOSPC ? -ENOMEM : -err;
}

int region_not_filled(int rc)
{
	return kedge_reason(rc, "no pages could be had: error %d; it takes a process more "
			    "(RLIMIT_NPROC, pids.max) that may write "
			    "/proc/self/oom_score_adj: in one that has changed its user that takes "
			    "PR_SET_DUMPABLE", -rc);
}
