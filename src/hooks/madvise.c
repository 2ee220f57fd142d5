// SPDX-License-Identifier: BSD-2-Clause
/*
 * Advice that takes pages away although they are pinned. Not announced, because
 * a pinned page stays where it is under them: MADV_PAGEOUT, MADV_COLD,
 * MADV_COLLAPSE, MADV_MERGEABLE, MADV_SOFT_OFFLINE. posix_madvise is not
 * interposed: its POSIX_MADV_DONTNEED drops no page in any libc, and its other
 * advice is harmless.
 */
#include <limits.h>
#include <sys/mman.h>

#include "hooks/hooks.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static int drops_pages(int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
	case MADV_REMOVE:
	case MADV_GUARD_INSTALL:
	case MADV_HWPOISON:
		return 1;
	default:
		return 0;
	}
}

void kedge__on_madvise(struct change *c, void *addr, size_t len, int advice)
{
	if (drops_pages(advice))
		change_add(c, KEDGE_EVENT_REMOVE, addr, len);
}

KEDGE_API int madvise(void *addr, size_t len, int advice)
{
	struct kedge_hook hook;
	int rc;

	if (!drops_pages(advice))
		return kedge__real.madvise(addr, len, advice);
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, addr, len);
	rc = kedge__real.madvise(addr, len, advice);
	kedge_hook_end(&hook);
	return rc;
}

/*
 * No cheap way tells if the descriptor names this process, so every
 * such call counts as one on ourselves. Many ranges are announced as the one
 * that holds them all. The kernel refuses more than IOV_MAX.
 */
void kedge__on_process_madvise(struct change *c, const struct iovec *iov,
			       size_t cnt, int advice)
{
	uintptr_t low = UINTPTR_MAX, high = 0, start, end;
	size_t i;

	if (!drops_pages(advice) || !iov || cnt > IOV_MAX)
		return;
	for (i = 0; i < cnt; i++) {
		start = (uintptr_t)iov[i].iov_base;
		if (__builtin_add_overflow(start, iov[i].iov_len, &end))
			end = EVERYTHING_LEN;
		if (cnt <= CHANGE_MAX) {
			change_add(c, KEDGE_EVENT_REMOVE, iov[i].iov_base,
				   end - start);
			continue;
		}
		if (!iov[i].iov_len)
			continue;
		low = start < low ? start : low;
		high = end > high ? end : high;
	}
	if (low < high)
		change_add(c, KEDGE_EVENT_REMOVE, (void *)low, high - low);
}

KEDGE_API ssize_t process_madvise(int fd, const struct iovec *iov, size_t cnt,
				  int advice, unsigned int flags)
{
	struct change c;
	ssize_t n;

	change_init(&c);
	kedge__on_process_madvise(&c, iov, cnt, advice);
	n = kedge__real.process_madvise(fd, iov, cnt, advice, flags);
	change_end(&c);
	return n;
}
