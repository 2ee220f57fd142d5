// SPDX-License-Identifier: BSD-2-Clause
/*
 * The userfaultfds of converted memory. It is registered for write-protect faults and never
 * protected, so that no access faults because of it; munmap(), mremap(), what is mapped
 * over it, and madvise() that empties it wait until their event has been read. Each extent
 * has one of its own: see drop.c.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "segment/thread/thread.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define FEATURES                                                                \
	(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE)

int uffd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURES };
	int fd, rc;

	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return -errno;
	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	rc = syscall(SYS_ioctl, fd, UFFDIO_API, &api) ? -EOPNOTSUPP : 0;
	if (rc)
		fds_close(fd);
	return rc ? rc : fd;
}

int uffd_watch(int fd, uintptr_t at, size_t len)
{
	struct uffdio_register r = { .range = { .start = at, .len = len },
				     .mode = UFFDIO_REGISTER_MODE_WP };

	return syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

void uffd_unwatch(int fd, uintptr_t at, size_t len)
{
	struct uffdio_range r = { .start = at, .len = len };

	syscall(SYS_ioctl, fd, UFFDIO_UNREGISTER, &r);
}

bool uffd_readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	struct timespec now = { 0 };

	return syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0;
}

bool uffd_read(int fd, struct uffd_msg *m)
{
	return syscall(SYS_read, fd, m, sizeof(*m)) == (long)sizeof(*m);
}
