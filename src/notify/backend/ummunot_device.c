// SPDX-License-Identifier: BSD-2-Clause
#include "notify/backend/ummunot_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/base.h"

#define MAGIC_OF_SERIES 0xBCul

int ummunot_device_missing(int rc)
{
	if (rc == -ENOENT || rc == -ENXIO || rc == -ENODEV)
		return kedge_reason(-EOPNOTSUPP,
				    "the kernel module ummunot is not loaded: "
				    "modprobe ummunot");
	if (rc == -EACCES || rc == -EPERM)
		return kedge_reason(rc, UMMUNOT_NODE " may not be opened: its "
				    "mode should be 0666 (a process sees only "
				    "itself)");
	return kedge_reason(rc, UMMUNOT_NODE " can't be opened (%s)",
			    strerrordesc_np(-rc));
}

int ummunot_device_open(int flags)
{
	int fd = open(UMMUNOT_NODE, O_RDONLY | O_CLOEXEC | flags);

	return fd < 0 ? ummunot_device_missing(-errno) : fd;
}

static unsigned long of_series(unsigned long request)
{
	return (request & ~((unsigned long)_IOC_TYPEMASK << _IOC_TYPESHIFT)) |
	       MAGIC_OF_SERIES << _IOC_TYPESHIFT;
}

/*
 * ENOTTY is the answer to an unknown request, and nothing else's: the other magic
 * is tried then, and kept if it is known. Relaxed: with the wrong one a call takes
 * longer, no more.
 */
int ummunot_device_ioctl(int fd, unsigned long request, void *arg)
{
	static _Atomic bool series;
	bool mine = atomic_load_explicit(&series, memory_order_relaxed);
	int rc = ioctl(fd, mine ? of_series(request) : request, arg);

	if (!rc || errno != ENOTTY)
		return rc;
	rc = ioctl(fd, mine ? request : of_series(request), arg);
	if (!rc || errno != ENOTTY)
		atomic_store_explicit(&series, !mine, memory_order_relaxed);
	return rc;
}
