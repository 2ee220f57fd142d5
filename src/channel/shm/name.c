// SPDX-License-Identifier: BSD-2-Clause
/*
 * Binding a listener to a path, so that of several at one time one has it.
 *
 * bind() makes the file, or fails where there is one. A socket file that no
 * process has bound any more, as one that was killed leaves it, is to be replaced.
 * connect() by a stream socket does not tell those from a socket that is bound and
 * does not listen yet: both are ECONNREFUSED. By a datagram socket it does: the
 * kernel first looks which socket is bound to the inode, where there is none says
 * ECONNREFUSED, and then compares the types (EPROTOTYPE).
 *
 * Between that look and unlink() another one may have replaced the file. So both
 * are done with a lock on the directory (flock), and again there. Without a
 * file there the lock is not needed, and a listener that is bound is never replaced.
 * (A lock file beside the socket would be left behind, or be removed with the same
 * race.) Somebody else's lock on the directory is waited for a while.
 *
 * The file is removed before the socket is closed: until then it is not replaced,
 * and its inode, which the socket holds, is not another file's.
 */
#include "channel/shm/name.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_MS	 2000
#define TRIES	 1000 /* it comes and goes under our hands */

static int in_use(const char *path, const char *why)
{
	return kedge_reason(-EADDRINUSE, "cannot listen on %s: %s", path, why);
}

/* 1: a socket that no process has; 0: no such file; or -errno. */
static int is_stale(const struct sockaddr_un *a, socklen_t len,
		    const char *path)
{
	struct stat st;
	int fd, err;

	if (lstat(a->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return in_use(path, "something that is no socket has the name: "
			      "remove it, or choose another");
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)a, len) ? errno : 0;
	close(fd);
	if (err == ECONNREFUSED)
		return 1;
	if (err == ENOENT)
		return 0;
	return in_use(path, err == EACCES || err == EPERM
		      ? "a socket that this user may not look at has the name"
		      : "another process has the name");
}

/* The directory's descriptor, or -errno. */
static int lock_directory(const char *path)
{
	uint64_t end = clock_after_ms(LOCK_MS);
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	char *slash;
	int fd;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno != EACCES)
		return -errno;
	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		if ((errno == EWOULDBLOCK || errno == EINTR) &&
		    clock_ns() < end) {
			usleep(1000);
			continue;
		}
		close(fd);
		fd = -1;
	}
	return fd >= 0 ? fd : in_use(path, "a process that has ended left the "
				     "socket there, and its directory cannot "
				     "be locked: remove it");
}

/* 0: bound; -EAGAIN: another one may be; or -errno. */
static int replace(int fd, const struct sockaddr_un *a, socklen_t len,
		   const char *path)
{
	int dir = lock_directory(path), rc;

	if (dir < 0)
		return dir;
	rc = is_stale(a, len, path);
	if (rc > 0)
		rc = unlink(a->sun_path) && errno != ENOENT ? -errno : 0;
	if (!rc && bind(fd, (const struct sockaddr *)a, len))
		rc = errno == EADDRINUSE ? -EAGAIN : -errno;
	/* A forked child may have the descriptor, and with it the lock. */
	flock(dir, LOCK_UN);
	close(dir);
	return rc;
}

static int bind_file(int fd, const struct sockaddr_un *a, socklen_t len,
		     const char *path)
{
	int rc, i;

	for (i = 0; i < TRIES; i++) {
		if (!bind(fd, (const struct sockaddr *)a, len))
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
		rc = is_stale(a, len, path);
		if (rc > 0)
			rc = replace(fd, a, len, path);
		else if (!rc)
			rc = -EAGAIN;
		if (rc != -EAGAIN)
			return rc;
	}
	return in_use(path, "others bind and remove it all the time");
}

/* chdir() may come before the end. NULL with errno set. */
static char *absolute(const char *path)
{
	size_t len = strlen(path) + 1;
	char *all = malloc(path[0] == '/' ? len : PATH_MAX + 1 + len);
	size_t at = 0;

	if (!all) {
		errno = ENOMEM;
		return NULL;
	}
	if (path[0] != '/') {
		if (!getcwd(all, PATH_MAX)) {
			free(all);
			return NULL;
		}
		at = strlen(all);
		all[at++] = '/';
	}
	memcpy(all + at, path, len);
	return all;
}

int shm_name_bind(struct shm_name *n, int fd, const struct sockaddr_un *a,
		  uint32_t len, const char *path)
{
	struct stat st;
	int rc;

	*n = (struct shm_name){ .pid = getpid() };
	if (!a->sun_path[0]) {
		if (!bind(fd, (const struct sockaddr *)a, len))
			return 0;
		return errno == EADDRINUSE
			       ? in_use(path, "another process has the name")
			       : -errno;
	}
	n->path = absolute(path);
	if (!n->path)
		return -errno;
	rc = bind_file(fd, a, len, path);
	if (rc) {
		free(n->path);
		n->path = NULL;
		return rc;
	}
	if (!lstat(a->sun_path, &st) && S_ISSOCK(st.st_mode)) {
		n->dev = st.st_dev;
		n->ino = st.st_ino;
	}
	return 0;
}

void shm_name_remove(struct shm_name *n, bool bound)
{
	struct stat st;

	if (n->path && bound && n->pid == getpid() && !lstat(n->path, &st) &&
	    S_ISSOCK(st.st_mode) && st.st_dev == n->dev && st.st_ino == n->ino)
		unlink(n->path);
	free(n->path);
	n->path = NULL;
}
