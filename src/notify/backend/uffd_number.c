// SPDX-License-Identifier: BSD-2-Clause
/*
 * The number of a userfaultfd. A program may close descriptors that it does not know. Then a lookup
 * that asks gets EBADF, or ENOTTY from the descriptor that has the number by then, and the process
 * does without hits from then on. If that descriptor is another userfaultfd, the answer is about
 * another's changes. So the number is a high one, which is not given twice in a row (fd_move_up()),
 * and differs from that of a second copy of this library, in another namespace of the linker
 * (dlmopen(), a plug-in that has libkedge.a inside): the monitor of that copy holds its userfaultfd
 * under the same number in a table of its own, where the program cannot close it. That a program
 * puts a userfaultfd of its own in the place of ours by dup2() libkedge-hooks tells.
 *
 * To look at the descriptor's inode at each question was ruled out: it costs a second system call,
 * more than the question.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "notify/backend/uffd.h"

#define TRIES 64 /* more than the copies that a process has */

struct number {
	int fd;
	const struct uffd *u;
};

typedef bool look_fn(int tasks, int tid, const struct number *n);

/* True if @look is, of a thread of the process. */
static bool any_thread(look_fn *look, const struct number *n)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *d;
	bool found = false;

	if (!tasks)
		return false;
	while (!found && (d = readdir(tasks)))
		found = atoi(d->d_name) > 0 && look(dirfd(tasks), atoi(d->d_name), n);
	closedir(tasks);
	return found;
}

static bool stat_there(int tasks, int tid, int fd, struct stat *st)
{
	char path[64];

	snprintf(path, sizeof(path), "%d/fd/%d", tid, fd);
	return !fstatat(tasks, path, st, 0);
}

static bool has_name(int tasks, int tid, const char *line)
{
	char path[64], comm[32];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "%d/comm", tid);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, comm, sizeof(comm));
	close(fd);
	return got == (ssize_t)strlen(line) && !memcmp(comm, line, strlen(line));
}

/* True if that thread is the monitor of a copy that has the number. */
static bool is_monitors(int tasks, int tid, const struct number *n)
{
	struct stat st;

	return has_name(tasks, tid, UFFD_MONITOR_NAME "\n") &&
	       stat_there(tasks, tid, n->fd, &st);
}

int uffd_number(int fd)
{
	struct number n = { .fd = fd };
	int tries = TRIES;

	do
		n.fd = fd_move_up(n.fd);
	while (any_thread(is_monitors, &n) && --tries);
	return n.fd;
}

/* True if that thread is not the monitor, and has the descriptor under its number. */
static bool has_ours(int tasks, int tid, const struct number *n)
{
	struct stat st;

	return tid != atomic_load(&n->u->tid) && stat_there(tasks, tid, n->fd, &st) &&
	       st.st_dev == n->u->id.dev && st.st_ino == n->u->id.ino;
}

/*
 * The answer is looked for once in a thread: it has a table of its own, and each of its lookups
 * would read the list of threads again. What the process loses later the other threads find out.
 */
bool uffd_number_is_held(const struct uffd *u)
{
	static _Thread_local bool has_own_table;
	struct number n = { .fd = u->fd, .u = u };
	int saved = errno;

	has_own_table = has_own_table || (u->unique && any_thread(has_ours, &n));
	errno = saved;
	return has_own_table;
}
