/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pages of a range that this process stores into while they are copied elsewhere: by its
 * threads, or by the kernel on its behalf (read(), a process_vm_writev() from outside).
 * Stores of other processes by mappings of their own are not seen.
 *
 * A store through pages that were pinned before counts when they are pinned, not when it
 * happens: RDMA, O_DIRECT, registered buffers of io_uring, and within one call
 * process_vm_writev() and ptrace(). One that a take comes in the middle of may be missed
 * for good, so such pins and calls are to end before the take that has to be right.
 *
 * The range is not unmapped, moved or given other pages meanwhile. Protection and locks of
 * its pages stay as they are. A userfaultfd can have a range that no other has: a notifier
 * of that kind cannot watch it meanwhile, and where one does, this is refused that way.
 *
 * Not for two threads at a time; all calls come from threads with the table of descriptors
 * that track_begin() was called with.
 */
#ifndef REGION_MIGRATE_TRACK_H
#define REGION_MIGRATE_TRACK_H

#include <stdbool.h>
#include <stdint.h>

struct track;

/* [@off, @off + @len) of the range was stored into. Nonzero stops the take with that. */
typedef int (*track_fn)(void *arg, uint64_t off, uint64_t len);

/*
 * Watch [@at, @at + @len), pages of @page_size of a shared mapping of a memfd that are all
 * there, locked or huge TLB pages. All count as stored into at first. @way is NULL for the
 * best that works, or the name of the only one to try.
 *
 * 0, or a negative errno with a reason: -EINVAL for a range that is not whole pages or an
 * unknown @way; -EOPNOTSUPP where no way works; -EBUSY where @way is given and another
 * userfaultfd has some of the range; -ENOMEM, -EMFILE or -ENFILE for a lack of memory,
 * mappings or descriptors. *@out is set on success alone.
 */
int track_begin(void *at, uint64_t len, uint64_t page_size, const char *way,
		struct track **out);

/*
 * Call @fn for each range that was stored into since the last take, merged, in order. A store
 * that happens meanwhile is told by this take or the next: what is read of a range by @fn,
 * or later, has all stores that the next take does not tell.
 *
 * The way "soft-dirty" tells what was stored into since the beginning, again and again, and
 * the whole range once if bits were cleared in this process meanwhile, as by another track
 * that begins.
 *
 * 0, what @fn returned, or a negative errno with a reason. After a failure or a stop all of
 * the range counts as stored into.
 */
int track_take(struct track *t, track_fn fn, void *arg);

/* "userfaultfd", or "soft-dirty". */
const char *track_way(const struct track *t);

/* A take tells what was stored into since the one before; false: since the beginning. */
bool track_forgets(const struct track *t);

/* No page is protected any more; of the last protection each may have a fault left, which the
 * kernel resolves by itself. NULL is allowed. */
void track_end(struct track *t);

#endif /* REGION_MIGRATE_TRACK_H */
