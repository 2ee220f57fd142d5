// SPDX-License-Identifier: BSD-2-Clause
/*
 * The abilities of the kernel's userfaultfd: a descriptor, its features, its
 * blind spots, and the question whether a change is under way.
 */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/userfaultfd.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/backend/uffd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define EVENTS                                                                 \
	(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |                 \
	 UFFD_FEATURE_EVENT_REMOVE)

static int new_fd(void)
{
	int flags = O_CLOEXEC | O_NONBLOCK, dev, fd, err;

	fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
	if (fd < 0 && errno == EINVAL) /* before Linux 5.11 */
		fd = (int)syscall(SYS_userfaultfd, flags);
	if (fd >= 0)
		return fd;
	err = errno;
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, flags);
		close(dev);
		if (fd >= 0)
			return fd;
	}
	if (err == ENOSYS)
		return kedge_reason(-EOPNOTSUPP, "this kernel is built without "
						 "userfaultfd");
	return kedge_reason(-err,
			    "userfaultfd is refused (%s): sysctl -w "
			    "vm.unprivileged_userfaultfd=1, or open up "
			    "/dev/userfaultfd, or allow the system call in the "
			    "container's seccomp profile",
			    strerrordesc_np(err));
}

/*
 * The kernel counts changes under way since 5.15; before that a flag said that
 * there was one, and the first of two to be read took it down for both. Of the
 * features that it names, EXACT_ADDRESS came next.
 */
static int handshake(struct uffd *u)
{
	struct uffdio_api api = { .api = UFFD_API, .features = EVENTS };

	if (ioctl(u->fd, UFFDIO_API, &api))
		return kedge_reason(-EOPNOTSUPP,
				    "this kernel's userfaultfd reports no "
				    "unmap events: Linux 4.11 does");
	u->counts = api.features & UFFD_FEATURE_EXACT_ADDRESS;
	if (!(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP))
		return kedge_reason(-EOPNOTSUPP,
				    "this kernel's userfaultfd has no "
				    "write-protect mode on this machine: Linux "
				    "5.7 has it on x86-64, 6.10 on arm64");
	return 0;
}

/*
 * Since Linux 5.12 each userfaultfd has an inode of its own; before, one that it
 * shares with all that has no file, as an epoll descriptor has.
 */
static bool has_own_inode(const struct fd_id *id)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	bool shared;

	if (ep < 0)
		return false;
	shared = fd_same(ep, id);
	close(ep);
	return !shared;
}

int uffd_get_fd(struct uffd *u)
{
	int rc = new_fd();

	if (rc < 0)
		return rc;
	u->fd = rc;
	rc = handshake(u);
	if (rc) {
		close(u->fd);
		return rc;
	}
	u->fd = uffd_number(u->fd);
	fd_note(u->fd, &u->id);
	u->unique = has_own_inode(&u->id);
	return 0;
}

/* If the inode does not tell, compare with what the monitor has. */
bool uffd_fd_is_ours(const struct uffd *u)
{
	int saved = errno, tid = atomic_load(&u->tid);
	bool ours;

	if (u->unique)
		ours = fd_same(u->fd, &u->id);
	else
		ours = tid && !syscall(SYS_kcmp, getpid(), tid, KCMP_FILE,
				       u->fd, u->fd);
	errno = saved;
	return ours;
}

enum uffd_answer uffd_ask_kernel(const struct uffd *u)
{
	struct uffdio_zeropage nothing = { .mode = 0 };
	int saved = errno, err;

	err = ioctl(u->fd, UFFDIO_ZEROPAGE, &nothing) ? errno : 0;
	errno = saved;
	if (likely(err == EINVAL))
		return UFFD_REST;
	return err == EAGAIN ? UFFD_CHANGING : UFFD_STRANGER;
}

/* The changes that userfaultfd does not report here, found by trying. */
uint32_t uffd_blind_spots(void)
{
	size_t len = kedge__page_size();
	uint32_t blind = KEDGE_BLIND_SHM_REMAP | KEDGE_BLIND_SHARING;
	void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		return blind | KEDGE_BLIND_GUARD;
	if (!madvise(p, len, MADV_GUARD_INSTALL))
		blind |= KEDGE_BLIND_GUARD;
	munmap(p, len);
	return blind;
}
