// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges are registered for write-protect faults and never protected, so no access faults because
 * of it. munmap(), mremap(), mmap() over it and madvise() that drops pages wait in the kernel until
 * their event has been read. Events need no privilege: that is for faults of the kernel's, which do
 * not happen here (UFFD_USER_MODE_ONLY).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "region/watch/uffd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define FEATURES                                                                  \
	((uint64_t)UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | \
	 UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE)

int region_uffd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURES };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd < 0)
		return error_no_fd(errno) || errno == ENOMEM ? -errno : -EOPNOTSUPP;
	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	if (!syscall(SYS_ioctl, fd, UFFDIO_API, &api))
		return fd;
	syscall(SYS_close, fd);
	return -EOPNOTSUPP;
}

int region_uffd_add(int fd, const void *at, uint64_t len)
{
	struct uffdio_register r = { .range = { .start = (uintptr_t)at, .len = len },
				     .mode = UFFDIO_REGISTER_MODE_WP };

	if (!syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &r))
		return 0;
	return errno == ENOMEM ? -ENOMEM : -EOPNOTSUPP;
}

int region_uffd_remove(int fd, const void *at, uint64_t len)
{
	struct uffdio_range r = { .start = (uintptr_t)at, .len = len };

	return syscall(SYS_ioctl, fd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}

bool region_uffd_read(int fd, uint64_t *start, uint64_t *end, bool *drop)
{
	struct uffd_msg m;

	if (syscall(SYS_read, fd, &m, sizeof(m)) != (long)sizeof(m))
		return false;
	*start = *end = 0;
	*drop = m.event == UFFD_EVENT_REMOVE;
	switch (m.event) {
	case UFFD_EVENT_REMAP:
		*start = m.arg.remap.from;
		*end = *start + m.arg.remap.len;
		break;
	case UFFD_EVENT_UNMAP:
	case UFFD_EVENT_REMOVE:
		*start = m.arg.remove.start;
		*end = m.arg.remove.end;
	}
	return true;
}
