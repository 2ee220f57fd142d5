// SPDX-License-Identifier: BSD-2-Clause
/*
 * The processors that the monitor runs on: all that the process may use, as others wait for it.
 * But where the process has one thread, which is bound to one processor, the monitor goes there.
 * No other thread waits for an answer, and the processor is free meanwhile. On an idle virtual
 * machine it takes ten times as long to wake another processor, and then this one again.
 *
 * The process may have a second thread later, and the first one real-time priority, and never
 * pause. Then the monitor waits for as long as the kernel lets such a thread run, a second at the
 * most, and sees both. So it stays away where the kernel sets no such limit.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "notify/backend/uffd_place.h"

#define CPU_WORDS    128
#define CPU_BYTES    (CPU_WORDS * sizeof(unsigned long))
#define LOOK_NS	     100000000u
#define FOLDER_LINKS 2 /* of /proc/self/task; the others are threads */

/*
 * Others wait for this thread, so it must not wait for the CPU that its creator
 * was bound to, nor as one that has time. A refused call is ignored.
 */
static void run_anywhere(void)
{
	struct sched_param none = { 0 };
	unsigned long cpus[CPU_WORDS];
	int policy = sched_getscheduler(0);

	memset(cpus, 0xff, sizeof(cpus));
	syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus);
	if (policy == SCHED_IDLE || policy == SCHED_BATCH)
		sched_setscheduler(0, SCHED_OTHER, &none);
	if (getpriority(PRIO_PROCESS, 0) > 0)
		setpriority(PRIO_PROCESS, 0, 0);
}

static bool real_time_is_limited(void)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/kernel/sched_rt_runtime_us",
			      O_RDONLY | O_CLOEXEC);
	char text[24] = "-1";
	long n;

	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	return n > 0 && atol(text) >= 0;
}

/* The process's thread is bound to one processor, which @cpus has then. */
static bool is_bound(unsigned long cpus[CPU_WORDS])
{
	long bytes = syscall(SYS_sched_getaffinity, getpid(), CPU_BYTES, cpus);
	int policy = sched_getscheduler(getpid()), cnt = 0;
	long i;

	for (i = 0; i < bytes / (long)sizeof(cpus[0]); i++)
		cnt += __builtin_popcountl(cpus[i]);
	return cnt == 1 && (policy == SCHED_OTHER || policy == SCHED_BATCH);
}

/* Besides the monitor. */
static bool has_one_thread(void)
{
	struct stat st;

	return !stat("/proc/self/task", &st) && st.st_nlink == FOLDER_LINKS + 2;
}

void uffd_place_first(struct uffd_place *p)
{
	run_anywhere();
	p->may = real_time_is_limited();
}

void uffd_place_again(struct uffd_place *p, uint64_t now)
{
	unsigned long cpus[CPU_WORDS] = { 0 };
	bool was = p->is;

	if (!p->may || now < p->next_ns)
		return;
	p->next_ns = now + LOOK_NS;
	p->is = has_one_thread() && is_bound(cpus);
	if (p->is)
		syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus);
	else if (was)
		run_anywhere();
}
