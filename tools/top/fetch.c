// SPDX-License-Identifier: BSD-2-Clause
/* Reading a socket or a file to its end. A process that does not answer costs SLOW_MS. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/top/top.h"

#define SLOW_MS 2000
#define TEXT_MAX ((size_t)64 << 20)

static int open_socket(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(name.sun_path))
		return -ENAMETOOLONG;
	memcpy(name.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* EAGAIN: its queue is full, as it answers no client. */
	if (connect(fd, (const struct sockaddr *)&name, sizeof(name))) {
		int rc = errno == EAGAIN ? -ETIMEDOUT : -errno;

		close(fd);
		return rc;
	}
	return fd;
}

static int open_path(const char *path, struct stat *st)
{
	int fd;

	if (stat(path, st))
		return -errno;
	if (S_ISSOCK(st->st_mode))
		return open_socket(path);
	/* Not to wait for the other end of a pipe, or move a tape. */
	if (!S_ISREG(st->st_mode))
		return -EBADMSG;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

static int grow(char **text, size_t len, size_t *room)
{
	char *more;

	if (len < *room)
		return 0;
	if (*room >= TEXT_MAX)
		return -EFBIG;
	*room = *room ? 2 * *room : 16384;
	more = realloc(*text, *room);
	if (!more)
		return -ENOMEM;
	*text = more;
	return 0;
}

static bool readable(int fd, uint64_t end)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now = clock_ns();

	return now < end && poll(&p, 1, (int)((end - now) / 1000000) + 1) > 0;
}

static int read_all(int fd, char **text, size_t *len)
{
	const uint64_t end = clock_ns() + SLOW_MS * 1000000ull;
	size_t room = 0;
	ssize_t n;
	int rc;

	for (;;) {
		rc = grow(text, *len, &room);
		if (rc)
			return rc;
		n = read(fd, *text + *len, room - *len);
		if (!n)
			return 0;
		if (n > 0)
			*len += (size_t)n;
		else if (errno != EAGAIN && errno != EINTR)
			return -errno;
		else if (!readable(fd, end))
			return -ETIMEDOUT;
	}
}

int fetch(const char *path, char **text, size_t *len)
{
	struct stat st;
	int fd = open_path(path, &st), rc;

	*text = NULL;
	*len = 0;
	if (fd < 0)
		return fd;
	rc = read_all(fd, text, len);
	close(fd);
	if (!rc)
		return 0;
	free(*text);
	*text = NULL;
	return rc;
}
