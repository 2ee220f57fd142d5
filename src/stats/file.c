// SPDX-License-Identifier: BSD-2-Clause
/*
 * A file is replaced as a whole, so that a reader finds all counters of one moment, and a disk that
 * is full leaves the last ones. It may be read by all, as far as the umask lets it: other users'
 * collectors do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "stats/ways.h"
#include "stats/text.h"

static uint64_t sum_of(const char *text, size_t len)
{
	uint64_t sum = 0xcbf29ce484222325; /* FNV-1a */

	while (len--)
		sum = (sum ^ (unsigned char)*text++) * 0x100000001b3;
	return sum ? sum : 1;
}

static int write_all(int fd, const char *text, size_t len)
{
	ssize_t n;

	while (len) {
		n = write(fd, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENOSPC;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_beside(const char *beside, const char *text, size_t len)
{
	int fd, rc;

	/* One that was left by a process of this number, which was killed. */
	unlink(beside);
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = write_all(fd, text, len);
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

/* 0 for a file of that name, or a free one: a device or a pipe is not to become a file (/dev/null,
 * by root), nor another process's socket. */
static int may_replace(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : -errno;
	return S_ISREG(st.st_mode)
		       ? 0 : kedge_reason(-EEXIST, "it is there, and is no file: KEDGE_STATS=0 "
					  "publishes none, unix:PATH by a socket");
}

/* Beside it, under a name that is no longer than others, as the process has one file. */
static int replace(const struct publisher *p, const char *text, size_t len)
{
	const int folder = (int)(strrchr(p->target.path, '/') - p->target.path);
	char beside[PATH_MAX + 32];
	int rc = may_replace(p->target.path);

	if (rc)
		return rc;
	snprintf(beside, sizeof(beside), "%.*s/.kedge-%d.new", folder, p->target.path,
		 (int)getpid());
	rc = write_beside(beside, text, len);
	if (!rc && rename(beside, p->target.path))
		rc = -errno;
	if (rc)
		unlink(beside);
	return rc;
}

int file_write(struct publisher *p)
{
	size_t len = 0;
	char *text = stats_text(&len);
	uint64_t sum;
	int rc = 0;

	if (!text)
		return -ENOMEM;
	sum = sum_of(text, len);
	if (sum != p->written)
		rc = replace(p, text, len);
	if (!rc)
		p->written = sum;
	free(text);
	return rc;
}
