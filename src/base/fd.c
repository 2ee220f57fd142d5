// SPDX-License-Identifier: BSD-2-Clause
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The library's takes a way through the kernel that costs twice as much; but a
 * sandbox may allow that one alone.
 */
static int stat_of(int fd, struct stat *st)
{
#if defined(SYS_fstat) && defined(__LP64__)
	if (!syscall(SYS_fstat, fd, st))
		return 0;
#endif
	return fstat(fd, st);
}

void fd_note(int fd, struct fd_id *id)
{
	struct stat st;

	if (!stat_of(fd, &st))
		*id = (struct fd_id){ st.st_dev, st.st_ino };
}

bool fd_same(int fd, const struct fd_id *id)
{
	struct fd_id now = { 0, 0 };

	fd_note(fd, &now);
	return now.ino && now.dev == id->dev && now.ino == id->ino;
}

void fd_close(int fd, const struct fd_id *id)
{
	int saved = errno;

	if (fd_same(fd, id))
		close(fd);
	errno = saved;
}

#define HIGH 1024u /* no higher: the kernel's table grows with the number */

int fd_move_up(int fd)
{
	static _Atomic unsigned int turns;
	struct rlimit rl = { HIGH, HIGH };
	unsigned int top, room;
	int saved = errno, moved;

	getrlimit(RLIMIT_NOFILE, &rl);
	top = rl.rlim_cur < HIGH ? (unsigned int)rl.rlim_cur : HIGH;
	room = top / 8 ? top / 8 : 1;
	moved = fcntl(fd, F_DUPFD_CLOEXEC,
		      (int)(top - room + atomic_fetch_add(&turns, 1) % room));
	if (moved < 0)
		moved = fcntl(fd, F_DUPFD_CLOEXEC, (int)(top - room));
	errno = saved;
	if (moved < 0)
		return fd;
	close(fd);
	return moved;
}
