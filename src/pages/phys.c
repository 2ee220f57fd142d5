// SPDX-License-Identifier: BSD-2-Clause
/*
 * The third way: the kernel exchanges both ranges at once (UMMUNOT_SWAP_PAGES), and
 * takes pinned pages along where it is told to. It is in kernels with the patch
 * series of linux/ alone, so it is tried, and where it is not known that is kept for
 * the life of the process.
 *
 * A file of /dev/ummunot belongs to the address space that opened it. A forked
 * child's copy answers ESRCH; the child puts one of its own under the same number.
 */
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "notify/backend/ummunot_device.h"
#include "pages/internal.h"

static struct sig_lock lock = SIG_LOCK_INIT; /* guards device and id */
static int device = -1;
static struct fd_id id;
static _Atomic int missing; /* an errno: it will not be there later, either */

/* -ENOSYS, which the kernel never answers; the reason is of what the caller returns. */
static int no_call(void)
{
	kedge_reason(-EOPNOTSUPP,
		     "this kernel does not exchange pages by itself "
		     "(UMMUNOT_SWAP_PAGES of kedge's patch series)");
	return -ENOSYS;
}

/* A descriptor or -ENOSYS. The lock is held. */
static int open_device(void)
{
	int fd = ummunot_device_open(0);

	if (fd < 0) {
		if (fd != -EMFILE && fd != -ENFILE && fd != -ENOMEM)
			atomic_store_explicit(&missing, -fd,
					      memory_order_relaxed);
		return no_call();
	}
	device = fd_move_up(fd);
	fd_note(device, &id);
	return device;
}

static int get_device(void)
{
	int fd;

	if (atomic_load_explicit(&missing, memory_order_relaxed))
		return no_call();
	sig_lock_blocked(&lock);
	fd = device;
	if (fd < 0 || !fd_same(fd, &id))
		fd = open_device();
	sig_unlock_blocked(&lock);
	return fd;
}

/*
 * In a forked child, by the same number: another thread may be about to use it.
 */
static int renew_device(int old)
{
	int fd, rc = 0;

	sig_lock_blocked(&lock);
	fd = ummunot_device_open(0);
	if (fd < 0)
		rc = no_call();
	else if (device == old && fd_same(old, &id) &&
		 dup3(fd, old, O_CLOEXEC) < 0)
		rc = no_call();
	if (fd >= 0)
		close(fd);
	sig_unlock_blocked(&lock);
	return rc;
}

static int call(struct ummunot_swap_ioctl *arg)
{
	int fd = get_device(), rc;

	if (fd < 0)
		return fd;
	if (!ummunot_device_ioctl(fd, UMMUNOT_SWAP_PAGES, arg))
		return 0;
	if (errno != ESRCH)
		return -errno;
	rc = renew_device(fd);
	if (rc)
		return rc;
	return ummunot_device_ioctl(fd, UMMUNOT_SWAP_PAGES, arg) ? -errno : 0;
}

/* The kernel tells no attributes of the mappings: smaps has them. */
static int of_mappings(uintptr_t a, uintptr_t b, size_t len, int rc)
{
	int why = swap_why_not(a, len);

	if (!why)
		why = swap_why_not(b, len);
	if (why)
		return why;
	if (rc == -EFAULT)
		return kedge_reason(rc, "part of a range is not mapped");
	return kedge_reason(-EOPNOTSUPP, rc == -ERANGE
			    ? "a range is in more than one mapping"
			    : "the mappings differ in protection, or one is "
			      "locked (mlock)");
}

static int in_words(int rc)
{
	switch (rc) {
	case -EMLINK:
		return kedge_reason(-EBUSY, "a page is shared since a fork(), "
				    "or merged with one like it");
	case -EBUSY:
		return kedge_reason(rc, "a page is pinned or in use");
	case -EHWPOISON:
		return kedge_reason(-EFAULT, "a page is broken");
	case -E2BIG:
		return kedge_reason(rc, "more than 1 GiB");
	case -ENOMEM:
		return kedge_reason(rc, "no memory for the kernel's tables");
	default:
		return kedge_reason(rc, "the kernel does not exchange the pages "
				    "(%s)", strerrordesc_np(-rc));
	}
}

int swap_by_phys(uintptr_t a, uintptr_t b, size_t len, bool pins, bool taken)
{
	struct ummunot_swap_ioctl arg = {
		.a = a,
		.b = b,
		.len = len,
		.flags = pins ? 0 : UMMUNOT_SWAP_UNPINNED,
	};
	int rc = call(&arg);

	if (!rc)
		return 0;
	if (rc == -ENOTTY || rc == -ESRCH) {
		atomic_store_explicit(&missing, -rc, memory_order_relaxed);
		rc = no_call();
	}
	if (rc == -ENOSYS)
		return -EOPNOTSUPP;
	/* A watch of part of a range has cut the mapping. */
	if (rc == -EADDRINUSE || (rc == -ERANGE && !taken))
		return SWAP_TAKEN;
	if (rc == -EMLINK || rc == -EBUSY || rc == -EHWPOISON ||
	    rc == -E2BIG || rc == -ENOMEM || rc == -EINTR)
		return in_words(rc);
	/* Another way follows without pins, and has words of its own. */
	return pins ? of_mappings(a, b, len, rc) : -EOPNOTSUPP;
}

int phys_exchange(uintptr_t a, uintptr_t b, size_t len)
{
	return swap_by_phys(a, b, len, true, true);
}
