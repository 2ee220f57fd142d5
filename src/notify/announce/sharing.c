// SPDX-License-Identifier: BSD-2-Clause
/*
 * Processes that share this one's address space: clone(CLONE_VM) without CLONE_THREAD, as PiP makes
 * them. The kernel tells a userfaultfd what they change, but for two cases: where one is killed
 * within such a call, its event is withdrawn, and where one drops pages while the mapping is
 * renewed, threads.c does not see the end of that call. So no registration is kept while there is
 * one. All that were kept are told when it is about to be made.
 *
 * Each watch asks whether such a process lives still, while there may be one. kcmp() says of two
 * tasks whether they have the same memory: no longer after the end of a task, or its exec. A
 * process's first thread may end before others; then /proc says that it is a zombie with threads.
 * If the kernel does not answer, the process is taken to share as long as its number is in use.
 */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/page.h"
#include "notify/announce/announce.h"
#include "notify/internal.h"

#define SHARING_MAX 256
#define EVERYTHING  (UINT64_MAX - 65536)

/* Zero in a forked child, which shares its memory with none of the parent's. */
struct sharers {
	_Atomic uint32_t cnt; /* calls under way and processes; seq_cst: see announce_shared() */
	_Atomic int pids[SHARING_MAX]; /* 0: no process */
};

static void *_Atomic page; /* a struct sharers */
static _Atomic bool unknown; /* there was no memory for it */

static bool is_zombie(int pid)
{
	char path[32], buf[512];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, buf, sizeof(buf) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	state = strrchr(buf, ')');
	return state && !strncmp(state, ") Z", 3);
}

static bool has_other_threads(int pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	return !stat(path, &st) && st.st_nlink > 3;
}

static bool shares(int pid)
{
	long rc = syscall(SYS_kcmp, (int)syscall(SYS_gettid), pid, KCMP_VM, 0, 0);

	if (rc >= 0)
		return !rc || (is_zombie(pid) && has_other_threads(pid));
	return errno != ESRCH && (!kill(pid, 0) || errno != ESRCH);
}

static bool add(struct sharers *s, int pid)
{
	size_t i;

	for (i = 0; i < SHARING_MAX; i++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&s->pids[i], &none, pid))
			return true;
	}
	return false;
}

void kedge_hook_sharing(int pid)
{
	struct kedge_hook hook;
	int saved = errno;
	struct sharers *s = page_once(&page);

	if (!s) {
		atomic_store(&unknown, true);
	} else if (!pid) {
		atomic_fetch_add(&s->cnt, 1);
	} else if (pid < 0) {
		atomic_fetch_sub(&s->cnt, 1);
	} else if (!add(s, pid)) {
		kedge__log(KEDGE_LOG_WARN,
			   "more than %d processes share this one's memory: nothing is cached "
			   "any more", SHARING_MAX);
	}
	if (!pid) {
		kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, NULL, EVERYTHING);
		kedge_hook_end(&hook);
	}
	errno = saved;
}

/*
 * The caller's watch is in its tree. If it does not see the process, then kedge_hook_sharing()
 * counted it later, so that what that announces reaches the watch.
 */
bool announce_shared(void)
{
	struct sharers *s = atomic_load(&page);
	int saved = errno;
	size_t i;

	if (likely(!s || !atomic_load(&s->cnt)))
		return atomic_load(&unknown);
	for (i = 0; i < SHARING_MAX; i++) {
		int pid = atomic_load(&s->pids[i]);

		if (pid && !shares(pid) && atomic_compare_exchange_strong(&s->pids[i], &pid, 0))
			atomic_fetch_sub(&s->cnt, 1);
	}
	errno = saved;
	return atomic_load(&s->cnt) || atomic_load(&unknown);
}
