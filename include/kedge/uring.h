/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io_uring's fixed buffers as a device: really pinned pages on any Linux with
 * io_uring, no hardware needed. In libkedge-uring.
 */
#ifndef KEDGE_URING_H
#define KEDGE_URING_H

#include <kedge/device.h>

#ifdef __cplusplus
extern "C" {
#endif

struct io_uring;

/** KEDGE_URING_TABLE_EXISTS - the ring has a buffer table already; use its
 *  slots [first_slot, first_slot + slots) and leave the others alone */
#define KEDGE_URING_TABLE_EXISTS (1u << 0)
/** KEDGE_URING_NO_MADV_FREE - the program, its allocator included, never calls
 *  madvise(MADV_FREE) on memory that it registers: registrations end without
 *  marking the pages */
#define KEDGE_URING_NO_MADV_FREE (1u << 1)

/**
 * struct kedge_uring_opts - how to use a ring's table; 0 is the default
 * @size:       sizeof(struct kedge_uring_opts)
 * @flags:      KEDGE_URING_* or'ed
 * @slots:      how many slots, at most 16,384; 0 is 4,096. One slot is one registration.
 *              The kernel takes about .4 ns more a slot for each huge page that it registers
 * @first_slot: with KEDGE_URING_TABLE_EXISTS: the first slot that is ours
 */
struct kedge_uring_opts {
	uint32_t size;
	uint32_t flags;
	uint32_t slots;
	uint32_t first_slot;
};

/**
 * kedge_device_open_uring() - io_uring's fixed-buffer table as a device
 * @ring: borrowed, must outlive the device; the caller goes on submitting to it
 * @opts: options with @opts->size set, or NULL for the defaults; copied
 * @dev:  set on success, left untouched on failure
 *
 * A registration's device_handle is the buffer index for
 * io_uring_prep_read_fixed() and its kin; addresses stay addresses. The kernel
 * pins every buffer for writing, whatever access was asked for.
 *
 * io_uring does not mark the pages it wrote to, so a page that
 * madvise(MADV_FREE) took, and that the program has not written to since, could
 * be dropped with the data in it once it is not registered any more. So the pages
 * of what was registered for KEDGE_ACCESS_LOCAL_WRITE are marked by
 * MADV_POPULATE_WRITE, which keeps their contents, before they are unpinned: ask
 * for that access wherever the ring writes. What the program unmapped or dropped
 * is neither marked nor allocated anew. What it made read-only, and had freed
 * lazily before, cannot be marked: it stays pinned, and its slot in use, until
 * there is no such memory in the process any more, which a message tells; a close
 * unpins it, and says so.
 * Before Linux 5.18 the pages are marked when they are registered, and before 5.14
 * nothing marks them: a program must write to such pages before it registers them.
 * Marking costs about 0.2 us for each page that is present, small or huge, where a
 * registration ends whose memory is still there: at an eviction, a flush, or a
 * close. KEDGE_URING_NO_MADV_FREE saves it.
 *
 * The kernel may let go of pages late: about a second after their
 * deregistration before Linux 6.4, and before 6.13 not before requests with
 * fixed buffers have ended that were submitted earlier to the ring. Until then
 * they count against RLIMIT_MEMLOCK, for which a registration waits up to three
 * seconds where it would fail otherwise; and huge pages of hugetlbfs are not
 * back in their pool. A page that is registered or let go of late, and was
 * taken out of its mapping by MADV_DONTNEED, is missing there: the next touch
 * takes another from the pool and is SIGBUS if it is empty. A pool for memory
 * that is registered needs room for that, on every kernel.
 *
 * Threads: any, unless the ring was made with IORING_SETUP_SINGLE_ISSUER: then
 * only its submitter may register.
 * Fork: the device belongs to the ring's process.
 * Ownership: kedge_device_close() empties the slots and, where this call made
 * the table, unregisters it, which ends it for another device that uses slots
 * of it too; the ring stays the caller's.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL      @ring or @dev is NULL, @opts->size is too small, a flag is
 *                unknown or the slots are out of the table
 *   -E2BIG       @opts is of a newer version and sets a field unknown here
 *   -EBADF       the ring is closed, or it is no ring
 *   -EBUSY       the ring has a buffer table already and
 *                KEDGE_URING_TABLE_EXISTS is not set
 *   -EOPNOTSUPP  this kernel cannot update single slots (Linux 5.13 can)
 *   -EEXIST      the ring is IORING_SETUP_SINGLE_ISSUER and another thread's
 *   -EACCES      the ring's restrictions forbid it
 *   -EPERM, -ENOSYS  io_uring is not permitted here (seccomp, sysctl)
 *   -EMFILE      no file descriptor left: the device keeps one of its own
 *   -ENOMEM      no memory
 */
KEDGE_API int kedge_device_open_uring(struct io_uring *ring,
				      const struct kedge_uring_opts *opts,
				      struct kedge_device **dev);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_URING_H */
