// SPDX-License-Identifier: BSD-2-Clause
/*
 * Shared memory that changes by this process's calls on its addresses alone, as private memory
 * does: a memfd with seals that forbid all processes to take pages away. F_SEAL_SHRINK forbids to
 * truncate it. F_SEAL_WRITE and F_SEAL_FUTURE_WRITE forbid to punch holes, by fallocate() and by
 * MADV_REMOVE of any process, and leave mappings that were made before them as they are. Seals
 * last as long as the file.
 *
 * The seals are a file's, and of a mapping /proc tells the inode alone. So a descriptor of it is
 * looked for among those of the calling thread, the last one that was of use first, and then in
 * /proc/self/map_files, which takes a capability. If there is none, or the seals do not do, the
 * file is not looked for again for a second: a program may have thousands of descriptors, and
 * each get of such memory comes here.
 *
 * A private mapping of such a file is left out: a write of the program's copies its page.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/internal.h"

#define SHRINK	  F_SEAL_SHRINK
#define WRITE_ANY (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)
#define FDS_MAX	  4096 /* looked at, at most */
#define COPY_FD	  512  /* where programs have few */
#define MISS_NS	  1000000000u
#define MISSES	  16

static _Atomic int last_fd = -1;
/* By inode: the time until which it is not looked for, with the inode in the lowest bits. */
static _Atomic uint64_t misses[MISSES];
#define MISS_INODE 0xffffu

static bool is_of(int fd, const struct vma_info *v)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && st.st_ino == v->inode && st.st_dev == v->dev;
}

/* 1, 0, or -1 if @fd, which no other thread knows, is not of that file. */
static int by_own_fd(int fd, const struct vma_info *v)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (!is_of(fd, v))
		return -1;
	return seals >= 0 && seals & SHRINK && seals & WRITE_ANY;
}

/* Tests put another file under the number here. */
__attribute__((weak, noinline)) void seals_found(int fd)
{
}

/*
 * The same of a number of the program's, which may become another file's by dup2() at any moment:
 * so by a copy. Should a thread that closes what it does not know, and opens another file, hit upon
 * the copy's number, then the file is not the same before and after.
 */
static int by_fd(int fd, const struct vma_info *v)
{
	int copy, rc = -1;

	if (!is_of(fd, v))
		return -1;
	seals_found(fd);
	copy = fcntl(fd, F_DUPFD_CLOEXEC, COPY_FD);
	if (copy < 0)
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy >= 0 && is_of(copy, v))
		rc = by_own_fd(copy, v);
	if (copy >= 0)
		syscall(SYS_close, copy);
	return rc;
}

/* Of the entries in @buf; *left counts down. */
static int by_entries(const char *buf, long len, const struct vma_info *v, int *left)
{
	const struct dirent64 *d;
	int rc = -1, fd;
	long at;

	for (at = 0; at < len && rc < 0 && (*left)-- > 0; at += d->d_reclen) {
		d = (const struct dirent64 *)(const void *)(buf + at);
		if (d->d_name[0] == '.')
			continue;
		fd = atoi(d->d_name);
		rc = by_fd(fd, v);
		if (rc >= 0)
			atomic_store_explicit(&last_fd, fd, memory_order_relaxed);
	}
	return rc;
}

static int by_own_fds(const struct vma_info *v)
{
	_Alignas(struct dirent64) char buf[4096];
	int left = FDS_MAX, rc = -1, dir;
	long len;

	dir = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/fd",
			   O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -1;
	while (rc < 0 && left > 0 &&
	       (len = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		rc = by_entries(buf, len, v, &left);
	syscall(SYS_close, dir);
	return rc;
}

static int by_map_file(const struct vma_info *v)
{
	char path[64];
	int fd, rc;

	snprintf(path, sizeof(path), "/proc/self/map_files/%llx-%llx",
		 (unsigned long long)v->start, (unsigned long long)v->end);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	rc = by_own_fd(fd, v);
	syscall(SYS_close, fd);
	return rc;
}

static bool missed_lately(const struct vma_info *v, uint64_t now)
{
	uint64_t miss = atomic_load_explicit(&misses[v->inode % MISSES],
					     memory_order_relaxed);

	return ((miss ^ v->inode) & MISS_INODE) == 0 && miss > now;
}

static void note_miss(const struct vma_info *v, uint64_t now)
{
	uint64_t until = (now + MISS_NS) & ~(uint64_t)MISS_INODE;

	atomic_store_explicit(&misses[v->inode % MISSES], until | (v->inode & MISS_INODE),
			      memory_order_relaxed);
}

bool seals_keep_pages(const struct vma_info *v)
{
	uint64_t now;
	int rc;

	if (!v->shared || !v->inode)
		return false;
	if (is_own_file(v))
		return true;
	rc = by_fd(atomic_load_explicit(&last_fd, memory_order_relaxed), v);
	if (rc == 1)
		return true;
	now = clock_ns();
	if (missed_lately(v, now))
		return false;
	if (rc < 0)
		rc = by_own_fds(v);
	if (rc < 0)
		rc = by_map_file(v);
	if (rc != 1)
		note_miss(v, now);
	return rc == 1;
}
