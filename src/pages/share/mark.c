// SPDX-License-Identifier: BSD-2-Clause
/*
 * Marks on memory: whether what is at some addresses now is the mapping that was there
 * before, and none that another thread has got there since. The kernel keeps no name of a
 * mapping, but a userfaultfd's registration stays with it: what is unmapped, moved or
 * mapped over loses it, and new memory has none. It is for write protection, and protects
 * nothing, so that no access waits for it; no event is asked for, so that no call does.
 *
 * A forked child's copy has no mark.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/share/priv.h"
#include "pages/share/share.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

int pages_mark_open(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd;

	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return -errno;
	/* Not by ioctl(), which libkedge-hooks takes for another's. */
	if (!syscall(SYS_ioctl, fd, UFFDIO_API, &api))
		return fd;
	close(fd);
	return -EOPNOTSUPP;
}

static int put_mark(int mark, uintptr_t at, size_t len)
{
	struct uffdio_register r = { .range = { .start = at, .len = len },
				     .mode = UFFDIO_REGISTER_MODE_WP };

	return syscall(SYS_ioctl, mark, UFFDIO_REGISTER, &r) ? -errno : 0;
}

void mark_set(int mark, uintptr_t at, size_t len)
{
	put_mark(mark, at, len);
}

bool share_is_mapped(uintptr_t at, size_t len)
{
	const size_t most = 1024 * kedge__page_size();
	unsigned char there[1024];
	size_t n;

	for (; len; len -= n, at += n) {
		n = len < most ? len : most;
		if (mincore((void *)at, n, there))
			return false;
	}
	return true;
}

bool mark_take(int mark, uintptr_t at, size_t len)
{
	struct uffdio_writeprotect w = { .range = { .start = at, .len = len } };
	bool is;

	/* The kernel passes over holes. The first call is refused where a part has no
	 * registration, the second where it is another userfaultfd's. */
	is = share_is_mapped(at, len) && !syscall(SYS_ioctl, mark, UFFDIO_WRITEPROTECT, &w) &&
	     !put_mark(mark, at, len);
	if (is)
		syscall(SYS_ioctl, mark, UFFDIO_UNREGISTER, &w.range);
	return is;
}

/* ---- watching it ---- */

/* Before other threads go on. That it failed is told later, as the chunk is shared. */
void share_watch(const struct share_change *c, uintptr_t at, size_t len)
{
	if (c->watch >= 0 && put_mark(c->watch, at, len) && c->unwatched)
		*c->unwatched = true;
}

void share_unwatch(const struct share_change *c, uintptr_t at, size_t len)
{
	struct uffdio_range r = { .start = at, .len = len };

	if (c->watch >= 0)
		syscall(SYS_ioctl, c->watch, UFFDIO_UNREGISTER, &r);
}
