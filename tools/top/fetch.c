// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reading sockets and files to their ends, all at a time: those that do not answer cost SLOW_MS
 * together. AT_ONCE of them are open at a time; what the others have is taken if it is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/base.h"
#include "tools/top/top.h"

#define SLOW_MS	 2000
#define AT_ONCE	 256
#define TEXT_MAX ((size_t)16 << 20)

static int open_socket(const struct fetch *f)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd, rc = 0;

	if (strlen(f->path) >= sizeof(name.sun_path))
		return -ENAMETOOLONG;
	memcpy(name.sun_path, f->path, strlen(f->path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* EAGAIN: its queue is full, as it answers no client. */
	if (connect(fd, (const struct sockaddr *)&name, sizeof(name)))
		rc = errno == EAGAIN ? -ETIMEDOUT : -errno;
	else if (f->has_owner && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) ||
				  peer.uid != f->owner))
		rc = -EPERM;
	/* Of two processes at one path the other has it. */
	else if (f->has_owner && peer.pid != f->pid)
		rc = -ESRCH;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* A file is opened before it is looked at, as its name may come to mean another meanwhile; but no
 * device, and nothing of /proc, which reading may change. */
static int open_file(const struct fetch *f, const struct stat *was)
{
	struct statfs fs;
	struct stat st;
	int fd;

	fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
				   (f->has_owner ? O_NOFOLLOW : 0));
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == was->st_ino &&
	    !fstatfs(fd, &fs) && fs.f_type != PROC_SUPER_MAGIC &&
	    (!f->has_owner || st.st_uid == f->owner))
		return fd;
	close(fd);
	return -EPERM;
}

static int open_path(const struct fetch *f)
{
	struct stat st;

	if (stat(f->path, &st))
		return -errno;
	if (S_ISSOCK(st.st_mode))
		return open_socket(f);
	/* Not to wait for the other end of a pipe, or move a tape. */
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	/* A path that a stranger's process names. */
	if (f->has_owner && st.st_uid != f->owner)
		return -EPERM;
	return open_file(f, &st);
}

static void finish(struct fetch *f, int rc)
{
	f->status = rc;
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	if (!rc)
		return;
	free(f->text);
	f->text = NULL;
	f->len = 0;
}

static int grow(struct fetch *f)
{
	char *more;

	if (f->len < f->room)
		return 0;
	if (f->room >= TEXT_MAX)
		return -EFBIG;
	f->room = f->room ? 2 * f->room : 16384;
	more = realloc(f->text, f->room);
	if (!more)
		return -ENOMEM;
	f->text = more;
	return 0;
}

/* Reads the present text. A file is read to its end, as is a socket that is full all the time. */
static void read_some(struct fetch *f, uint64_t end)
{
	ssize_t n = 1;
	int rc = 0;

	while (!rc && n) {
		rc = grow(f);
		if (rc)
			break;
		n = read(f->fd, f->text + f->len, f->room - f->len);
		if (n > 0)
			f->len += (size_t)n;
		else if (n < 0 && errno == EAGAIN)
			return;
		else if (n < 0 && errno != EINTR)
			rc = -errno;
		if (n > 0 && clock_ns() >= end)
			rc = -ETIMEDOUT;
	}
	finish(f, rc);
}

static void begin(struct fetch *f, uint64_t end)
{
	f->text = NULL;
	f->len = f->room = 0;
	f->fd = open_path(f);
	if (f->fd >= 0)
		read_some(f, end);
	else
		finish(f, f->fd);
}

/* Until all have ended, or it is time. */
static void wait_for_all(struct fetch *f, size_t cnt, uint64_t end)
{
	struct pollfd p[AT_ONCE];
	uint64_t now;
	size_t i, open;

	for (;;) {
		for (i = open = 0; i < cnt; i++) {
			p[i] = (struct pollfd){ .fd = f[i].fd, .events = POLLIN };
			open += f[i].fd >= 0;
		}
		now = clock_ns();
		if (!open || now >= end || poll(p, cnt, (int)((end - now) / 1000000) + 1) < 0)
			break;
		for (i = 0; i < cnt; i++)
			if (f[i].fd >= 0 && p[i].revents)
				read_some(&f[i], end);
	}
	for (i = 0; i < cnt; i++)
		if (f[i].fd >= 0)
			finish(&f[i], -ETIMEDOUT);
}

void fetch_all(struct fetch *f, size_t cnt)
{
	const uint64_t end = clock_ns() + SLOW_MS * 1000000ull;
	size_t at, i, n;

	for (at = 0; at < cnt; at += n) {
		n = cnt - at < AT_ONCE ? cnt - at : AT_ONCE;
		for (i = at; i < at + n; i++)
			begin(&f[i], end);
		wait_for_all(f + at, n, end);
	}
}
