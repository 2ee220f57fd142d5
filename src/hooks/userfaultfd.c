// SPDX-License-Identifier: BSD-2-Clause
/*
 * ioctl(UFFDIO_REGISTER): a mapping belongs to one userfaultfd. kedge registers
 * whole mappings, so what an application registers with its own (a collector's
 * heap, a migrating guest's memory) may be kedge's although kedge was never asked
 * for it. The application comes first: kedge lets go of the range, and does not
 * cache what lies there while the other has it.
 *
 * ioctl(UFFDIO_MOVE): pages go to another address, of which the kernel tells no
 * userfaultfd. Where a device has pinned them it refuses.
 *
 * dup2() and dup3(): another file takes the number of a descriptor. If that is kedge's
 * userfaultfd, and the other file one too, the kernel would answer a lookup's question for the
 * other one.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "hooks/hooks.h"

/*
 * Another thread's lookup may take the range again between the announcement and
 * the call. It is refused as soon as one of these gets through.
 */
#define TRIES 32

static int register_range(int fd, unsigned long request,
			  struct uffdio_register *r)
{
	struct kedge_hook hook;
	int rc, tries;

	for (tries = 1;; tries++) {
		kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP | KEDGE_HOOK_YIELD,
				 (void *)(uintptr_t)r->range.start,
				 (size_t)r->range.len);
		rc = kedge__real.ioctl(fd, request, r);
		kedge_hook_end(&hook);
		if (!rc || errno != EBUSY || tries == TRIES)
			return rc;
	}
}

/* Since Linux 6.8; not in the headers of before. */
struct move {
	__u64 dst, src, len, mode;
	__s64 moved;
};
#define MOVE _IOWR(UFFDIO, 0x05, struct move)

static int move_pages(int fd, unsigned long request, struct move *m)
{
	struct kedge_hook hook;
	int rc;

	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE, (void *)(uintptr_t)m->src, (size_t)m->len);
	rc = kedge__real.ioctl(fd, request, m);
	kedge_hook_end(&hook);
	return rc;
}

KEDGE_API int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* The kernel reads 32 bits; a caller may have extended their sign. */
	if (arg && unlikely((unsigned int)request == (unsigned int)UFFDIO_REGISTER))
		return register_range(fd, request, arg);
	if (arg && unlikely((unsigned int)request == (unsigned int)MOVE))
		return move_pages(fd, request, arg);
	return kedge__real.ioctl(fd, request, arg);
}

/* kedge hears of the number first. It has none of the first three, dup2()'s usual ones. */
static void announce(int from, int to)
{
	int saved = errno;

	if (to > 2 && from != to && fcntl(from, F_GETFD) >= 0)
		kedge_hook_number(to);
	errno = saved;
}

KEDGE_API int dup2(int from, int to)
{
	announce(from, to);
	return kedge__real.dup2(from, to);
}

KEDGE_API int dup3(int from, int to, int flags)
{
	announce(from, to);
	return kedge__real.dup3(from, to, flags);
}
