/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Private memory made a shared mapping of a file in place, and private again: at the same
 * addresses, with the same contents.
 */
#ifndef PAGES_SHARE_SHARE_H
#define PAGES_SHARE_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/**
 * pages_share() - make private anonymous memory a shared mapping of a memfd
 * @at:   of whole pages; may span mappings
 * @len:  bytes
 * @fd:   the memfd, all holes from @off on, as long as is needed (RLIMIT_FSIZE is the
 *        business of whoever made it so long)
 * @off:  where @at is in it
 * @done: set to how many bytes from @at on are shared now, whatever is returned
 *
 * Other threads read and write there meanwhile: each access is done before the pages are
 * taken out, or waits until the mapping is there, and no store is lost. (A system call that
 * is given an address there waits as well where the process may have userfaultfd handle
 * the kernel's faults; else it may fail with EFAULT.) Pages that are pinned, by a device or
 * a transfer under way, or shared with a child since fork() are refused, as what writes
 * them would not be seen. Holes stay holes. A forked child does not have the range: it
 * faults there.
 *
 * If another thread unmaps or maps over a part meanwhile, that stays as it is, but for what
 * is mapped between a last look and the exchange, one system call later: that is lost. Not
 * for a signal handler.
 *
 * Return: 0, or a negative errno with a reason, and the rest is as it was:
 *   -EOPNOTSUPP memory that is shared, a file's, locked, read-only, or watched by
 *               another userfaultfd; or a kernel that moves no pages (Linux 6.8 does)
 *   -EBUSY      a page is pinned or shared with a forked child
 *   -EFAULT     a part is not mapped
 *   -ENOMEM, -ENOSPC, -EPERM  no memory, or the memfd takes no more (a seal)
 *   -ESTALE     another thread has unmapped a part, or mapped something else there
 */
int pages_share(void *at, size_t len, int fd, uint64_t off, size_t *done);

/**
 * pages_share_stopped() - as pages_share(), while no other thread of the program runs
 *
 * For whoever does not know what other threads do with that memory: what they unmap and map
 * there meanwhile is not lost, as they are stopped for each 4 MiB (base/process/stop.h says
 * what they notice). @watch, a userfaultfd or -1, is registered there for write protection,
 * and nothing is protected, before they go on: so it hears of all that they do from then on.
 *
 * Return: as there, without a reason, or -EPERM or -EAGAIN of others_stopped().
 */
int pages_share_stopped(void *at, size_t len, int fd, uint64_t off, int watch, size_t *done);

/**
 * pages_unshare() - make what pages_share() did private and anonymous again
 *
 * Parameters and promises as there, but that threads which read go on: those that write
 * wait until the memory is private. They are stopped meanwhile, 4 MiB at a time, if they can
 * be (base/process/stop.h): then no mapping of theirs is lost, whatever they do. What others
 * write to the memfd from then on is not seen. The memfd keeps its pages, the memory its
 * protection. Advice, names and memory policy are those of new memory.
 *
 * Return: 0, or a negative errno with a reason, and the rest is shared as it was; but where it
 * is of several protections, some of the 4 MiB behind *@done may be private:
 *   -EOPNOTSUPP Linux before 5.19 cannot hold writers to shared memory back
 *   -ENOMEM     no memory, or no mapping left (vm.max_map_count)
 *   -ESTALE     another thread has unmapped a part, or mapped something else there: that
 *               stays as it is
 */
int pages_unshare(void *at, size_t len, int fd, uint64_t off, size_t *done);

/*
 * For memory that is private for a while, without a word to the program: other threads may
 * unmap it and get something else at these addresses, which is not to be shared.
 *
 * pages_mark_open() - a descriptor for marks, or a negative errno. They end with it.
 * pages_unshare_marked() - marks what it has made private, if @mark is not -1. @watch, if it
 *                        is not -1, hears of the memory until the others are stopped, and
 *                        goes on where it stays shared
 * pages_share_marked() - as pages_share(), but of marked memory alone: -ESTALE if a part is
 *                        not, or not any more. Other threads are stopped meanwhile if they
 *                        can be: then nothing is lost that they map. There is no reason
 *                        with an error. @watch: as of pages_share_stopped()
 */
int pages_mark_open(void);
int pages_unshare_marked(void *at, size_t len, int fd, uint64_t off, int mark, int watch,
			 size_t *done);
int pages_share_marked(void *at, size_t len, int fd, uint64_t off, int mark, int watch,
		       size_t *done);

#endif /* PAGES_SHARE_SHARE_H */
