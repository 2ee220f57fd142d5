// SPDX-License-Identifier: BSD-2-Clause
#include "base/process/child.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 100000000
#define NAPS   100

/* It ends by itself, too: a filter may forbid prctl() or kill(). */
static void wait_for_the_end(long parent)
{
	const struct timespec nap = { 0, NAP_NS };
	int i;

	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	for (i = 0; i < NAPS && syscall(SYS_getppid) == parent; i++)
		syscall(SYS_nanosleep, &nap, NULL);
	syscall(SYS_exit_group, 0);
}

pid_t child_start(void)
{
	const long parent = syscall(SYS_getpid);
	/* No stack: its own copy of this one. No signal as it ends. */
	long pid = syscall(SYS_clone, CLONE_FILES | CLONE_FS, 0, 0, 0, 0);

	if (!pid)
		wait_for_the_end(parent);
	return pid < 0 ? -errno : (pid_t)pid;
}

void child_end(pid_t pid)
{
	syscall(SYS_kill, pid, SIGKILL);
	child_reap(pid);
}

void child_reap(pid_t pid)
{
	while (syscall(SYS_wait4, pid, NULL, __WALL, NULL) < 0 && errno == EINTR)
		;
}
