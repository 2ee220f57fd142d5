/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * /dev/ummunot: learn when the kernel changes what is mapped at addresses of
 * one's own address space.
 *
 * A file is bound to the address space of the process that opened it (O_RDONLY;
 * another mode is EINVAL). Threads and vfork children share it. Whoever has the
 * descriptor but another address space (after fork, exec, or from a socket) may
 * poll, select and close it; reads, mappings and ioctls are ESRCH there. So nobody
 * is ever shown another process's addresses, and the node may have mode 0666.
 *
 * The counter. mmap() of one page at offset 0, PROT_READ, MAP_SHARED, shows a
 * __u64 at its start. It is at least 1 and only grows; all files of an address
 * space show the same one, which moves for what any of them watches. A mapping
 * that a forked child inherits goes on showing the parent's.
 *
 * Events: when pages of a watched range are about to be changed, and once
 * more when that is done, the watch is queued as an event and the counter grows:
 * munmap, mremap, MAP_FIXED over it, madvise (DONTNEED, FREE, PAGEOUT, COLLAPSE,
 * REMOVE), hole punching, truncation, copy on write, reclaim, migration,
 * compaction, KSM, whoever caused it. The first of the two is before any page is
 * taken away: when the call that did it returns, or another thread sees a new
 * page there, the counter has moved. mprotect, soft-dirty tracking, the first
 * touch and a fork do not change the pages and are told only to watches with
 * UMMUNOT_REGISTER_PROTECTION. (A few of them cannot be told from a change: the
 * fork of private hugetlb memory, and what splits a huge page.)
 *
 * A watch has at the most one event queued; what comes meanwhile widens its
 * hint, by more than has changed where very much has. A watch stays through
 * events until it is unregistered.
 *
 * read() returns as many whole events as there are and as fit. When it has
 * emptied the queue and there is room, UMMUNOT_EVENT_TYPE_LAST follows and
 * carries the counter at that moment.
 *
 *	While the mapped counter equals what a LAST carried, every change to a
 *	watched range that was begun is finished, and has been told.
 *
 * To keep that true while a change is running that concerned a watch of the
 * address space (its first event may have been read and its second is to come),
 * a read that finds the queue empty then
 * - waits for it to end, or
 * - with O_NONBLOCK returns the LAST before once more, or, if there was none,
 *   one that carries the counter at the time of the open. Either is less than
 *   the mapped counter.
 * Where there is no event and the last LAST told all, a read waits, or fails
 * with EAGAIN. poll() says POLLIN while an event, or a LAST that tells all, can
 * be read; POLLHUP once the address space is gone, if it ever watched.
 *
 * To pin or register memory: register-region first, then pin, load the counter,
 * then read events with O_NONBLOCK until a LAST carries that number or more, or
 * until EAGAIN, which says that all had been told before. What was pinned is good
 * if no event for the cookie was read after the pinning began, and stays good
 * until one is.
 * The events of one file are for one reader: who reads in several threads sees
 * to it that what one of them has read is acted on before another goes by a
 * LAST.
 *
 * A store that races with a change may still go to the old page until the call
 * that makes the change returns, and is lost with it, watched or not.
 *
 * The layout is that of the ummunotify patches of 2009: programs written for
 * those recompile with a change of names.
 */
#ifndef _UAPI_LINUX_UMMUNOT_H
#define _UAPI_LINUX_UMMUNOT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define UMMUNOT_MAGIC 'U'

/*
 * Features: a program says which it knows, the kernel answers with those of
 * them that it has; from then on they are on. Without the exchange none is.
 * The set of features cannot change after the first register-region (EBUSY).
 */

/* UMMUNOT_REGISTER_PROTECTION may be used. */
#define UMMUNOT_FEATURE_PROTECTION (1U << 0)
/*
 * A LAST is withheld, or carries an old counter, while a change is running. It
 * is so whether it was asked for or not; a kernel that does not answer with
 * this bit does not do it.
 */
#define UMMUNOT_FEATURE_SETTLED (1U << 1)
/* UMMUNOT_REGISTER_QUIET and UMMUNOT_END_QUIET may be used. */
#define UMMUNOT_FEATURE_QUIET (1U << 2)

/* Tell mprotect, soft-dirty tracking and forks, too. */
#define UMMUNOT_REGISTER_PROTECTION (1U << 0)
/*
 * Do not tell what the registering thread does itself, until UMMUNOT_END_QUIET:
 * for a thread that moves pages there which it registered with a device before,
 * and has to know of the others' changes alone.
 */
#define UMMUNOT_REGISTER_QUIET (1U << 1)

/*
 * struct ummunot_register_ioctl - watch a range
 * @start:       first byte, at any alignment
 * @end:         the byte after the last; more than @start, user space
 * @user_cookie: names the watch; one watch a cookie, ranges may overlap
 * @flags:       UMMUNOT_REGISTER_*
 * @reserved:    0
 */
struct ummunot_register_ioctl {
	__u64 start;
	__u64 end;
	__u64 user_cookie;
	__u32 flags;
	__u32 reserved;
};

/*
 * UMMUNOT_EXCHANGE_FEATURES: __u32 of UMMUNOT_FEATURE_*, in and out.
 *   EBUSY   it would change what is on, and something was watched already
 *
 * UMMUNOT_REGISTER_REGION: from the return on, changes are told. Addresses may
 * carry a tag that the processor ignores; hints do not. If one was
 * running, it counts as begun just then: the counter grows, an event follows.
 *   EINVAL  an empty or wrapping range, one that reaches into the kernel, an
 *           unknown flag, one whose feature is not on, @reserved not 0
 *   EEXIST  the cookie names another watch of this file
 *   ENOSPC  the file has as many watches as the module parameter
 *           max_watches_per_file allows
 *   EDQUOT  the user has as much memory, in all files, as max_kib_per_user
 *           allows; open() says so, too. The owners of the user namespaces that
 *           it is in are charged as well
 *
 * UMMUNOT_UNREGISTER_REGION: __u64 cookie. Its unread event is dropped.
 *   ENOENT  no watch has that cookie
 *
 * UMMUNOT_END_QUIET: __u64 cookie of a watch with UMMUNOT_REGISTER_QUIET: from the
 * return on the registering thread's changes are told, too. No event tells of those
 * that it made before.
 *   ENOENT  no watch has that cookie
 *
 * All: EFAULT for a bad pointer, ENOMEM, ENOTTY for an unknown request, ESRCH
 * from another address space than the opener's.
 */
#define UMMUNOT_EXCHANGE_FEATURES _IOWR(UMMUNOT_MAGIC, 1, __u32)
#define UMMUNOT_REGISTER_REGION _IOW(UMMUNOT_MAGIC, 2, \
				     struct ummunot_register_ioctl)
#define UMMUNOT_UNREGISTER_REGION _IOW(UMMUNOT_MAGIC, 3, __u64)
#define UMMUNOT_END_QUIET _IOW(UMMUNOT_MAGIC, 5, __u64)

enum {
	UMMUNOT_EVENT_TYPE_INVAL = 0,
	UMMUNOT_EVENT_TYPE_LAST = 1,
};

enum {
	/* Less than the whole watch changed. */
	UMMUNOT_EVENT_FLAG_HINT = 1 << 0,
};

/*
 * struct ummunot_event - what read() returns
 * @type:                UMMUNOT_EVENT_TYPE_*
 * @flags:               UMMUNOT_EVENT_FLAG_*
 * @hint_start:          INVAL: first byte of the smallest range that holds all
 *                       that changed within the watch; LAST: 0
 * @hint_end:            the byte after its last; LAST: 0
 * @user_cookie_counter: INVAL: the watch's cookie; LAST: the counter
 *
 * read(): EINVAL if not even one fits; EFAULT if not one could be copied (none
 * is lost); EAGAIN, EINTR; ESRCH as above.
 */
struct ummunot_event {
	__u32 type;
	__u32 flags;
	__u64 hint_start;
	__u64 hint_end;
	__u64 user_cookie_counter;
};

/* ---- the exchange of pages ---- */

/* Refuse a page that is pinned, rather than take it elsewhere with its pins. */
#define UMMUNOT_SWAP_UNPINNED (1U << 0)

/*
 * struct ummunot_swap_ioctl - two ranges of the caller's own memory
 * @a, @b:  first bytes, each a multiple of the page size
 * @len:    of both, a multiple of the page size
 * @flags:  UMMUNOT_SWAP_*
 */
struct ummunot_swap_ioctl {
	__u64 a;
	__u64 b;
	__u64 len;
	__u64 flags;
};

/*
 * UMMUNOT_SWAP_PAGES: exchange the pages under both ranges. Only in kernels that
 * were built with CONFIG_UMMUNOT_SWAP; ENOTTY elsewhere.
 *
 * No copy is made. Each thread, system call and device that translates addresses
 * finds all as it was before, or waits, or finds all exchanged. A page that is
 * pinned (registered with a device or io_uring) goes to its new address as well,
 * and stays pinned. An address without a page gives the other one none. The
 * mappings stay: protection, advice and memory policy belong to the addresses.
 * Where both are equal modulo the size of a huge page, huge pages are exchanged
 * whole; those that an end cuts through are split, and pages are brought in from
 * swap.
 *   EINVAL      no whole pages, an empty range, one that wraps or reaches into
 *               the kernel, they overlap, an unknown flag
 *   E2BIG       more than 1 GiB
 *   EFAULT      part of a range is not mapped
 *   ERANGE      a range is in more than one mapping
 *   EOPNOTSUPP  memory that is shared, of a file, hugetlb or a device
 *   EACCES      a mapping may not be both read and written
 *   EXDEV       the mappings differ in protection or in being locked (mlock)
 *   EADDRINUSE  a userfaultfd has been registered with a range
 *   EMLINK      a page is shared: with a child since a fork, or by KSM
 *   EBUSY       a page stays locked, or a huge page cannot be split as it is
 *               pinned; with UMMUNOT_SWAP_UNPINNED: a page is pinned
 *   EHWPOISON   a page is broken
 *   EINTR       the process is being killed
 * With each of them all is as it was.
 */
#define UMMUNOT_SWAP_PAGES _IOW(UMMUNOT_MAGIC, 4, struct ummunot_swap_ioctl)

#endif /* _UAPI_LINUX_UMMUNOT_H */
