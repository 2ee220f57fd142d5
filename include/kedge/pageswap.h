/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exchange the pages under two ranges of addresses, without copying what is in
 * them.
 */
#ifndef KEDGE_PAGESWAP_H
#define KEDGE_PAGESWAP_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** KEDGE_SWAP_MOVE - move the pages by userfaultfd (UFFDIO_MOVE) */
#define KEDGE_SWAP_MOVE (1u << 0)
/** KEDGE_SWAP_REMAP - move the mappings by mremap(): the caller vouches that
 *  nobody has pinned the pages, or follows them, and that no thread touches
 *  either range before the call returns */
#define KEDGE_SWAP_REMAP (1u << 1)
/** KEDGE_SWAP_PHYS - have the kernel exchange both ranges at once
 *  (UMMUNOT_SWAP_PAGES of kedge's patch series for Linux): pages that are pinned go
 *  along and stay pinned */
#define KEDGE_SWAP_PHYS (1u << 2)

/**
 * kedge_page_swap() - exchange the pages under two ranges
 * @a:   a multiple of the page size
 * @b:   a multiple of the page size
 * @len: a multiple of the page size, not 0; the ranges do not overlap
 *
 * Afterwards each page that was found at @a + i is found at @b + i and the
 * reverse, with its data and on its NUMA node; an address under which there was
 * no page gives the other one none. The mappings stay as they are: protection,
 * advice, memory policy belong to the addresses. Bytes outside of the two ranges
 * never change, and an access to them never fails.
 *
 * It takes private anonymous memory that may be read and written. It costs the
 * least, far less than a copy, where both addresses are equal modulo the size of
 * a huge page (2 MiB) and the memory consists of huge pages; single pages are
 * moved one by one, and a huge page that an end of the range cuts through, or
 * whose new address is not congruent to the old, is split, which costs more than
 * copying it.
 *
 * Where the kernel exchanges pages by itself (KEDGE_SWAP_PHYS), it does; elsewhere
 * they are moved (KEDGE_SWAP_MOVE). What is refused is the same.
 *
 * Every notifier of the process is told, before the first page moves, as of an
 * madvise() that drops the pages. Registrations that a cache keeps of either
 * range are not handed out again; what pins the pages until then makes the swap
 * fail: see kedge_cache_flush().
 *
 * Threads: any. An access by another thread in user mode finds a page as it was
 * before or after, or waits until the call returns, and is never lost. A
 * system call that reaches for a page that is under way waits as well where the
 * kernel exchanges pages by itself, or the process may use userfaultfd for kernel
 * faults (CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd), and fails with EFAULT
 * elsewhere. Signals of the calling thread are held back meanwhile.
 * Fork: works in the child. A fork() by another thread waits for the call; a
 * child that is made around libc meanwhile has zeros where pages are under way, or,
 * where the kernel exchanges pages by itself, has all as before or after.
 *
 * Return: 0, or a negative errno, and then all is as it was:
 *   -EINVAL      a range is empty, wraps or is not of whole pages, or they
 *                overlap
 *   -EBUSY       a page is pinned (registered with a device, or under a direct
 *                transfer) or shared with a forked child; it may pass
 *   -EFAULT      part of a range is not mapped
 *   -EOPNOTSUPP  the memory is locked, shared, of a file, of huge TLB pages,
 *                not writable or otherwise special; another userfaultfd has it;
 *                or this kernel cannot do it (Linux 6.8 can)
 *   -ENOMEM      no memory for the kernel's tables, or the process is near
 *                vm.max_map_count
 *   -EPERM, -EMFILE, -ENFILE  there is no userfaultfd to be had
 */
KEDGE_API int kedge_page_swap(void *a, void *b, size_t len);

/**
 * kedge_page_swap_with() - exchange the pages under two ranges in a given way
 * @a:     as in kedge_page_swap()
 * @b:     as in kedge_page_swap()
 * @len:   as in kedge_page_swap()
 * @flags: 0 is the way of kedge_page_swap(); KEDGE_SWAP_MOVE, KEDGE_SWAP_REMAP or
 *         KEDGE_SWAP_PHYS is that way alone; several are whichever of them is
 *         measured to be the fastest here, and the next where that is refused with
 *         -EOPNOTSUPP
 *
 * KEDGE_SWAP_PHYS is for pages that a device or io_uring has registered: they go to
 * the other address with the rest, stay registered, and the registration reaches
 * them there. (kedge_page_swap() refuses them.) Every observer finds both ranges as
 * they were, or waits, or finds both exchanged: threads, system calls, other
 * processes that look in, devices that translate addresses. Each range is within
 * one mapping; the mappings have the same protection, and both are locked
 * (mlock()), or neither is. At most 1 GiB at a time. Pages in swap are brought in
 * first. It takes one system call, no userfaultfd and no mapping more.
 *
 * KEDGE_SWAP_REMAP needs no userfaultfd and does not look at single pages: where
 * both addresses are congruent it moves whole page tables. But it cannot know
 * who has pinned a page: what a device has registered stays registered, and is
 * found at the other address afterwards. And a thread that touches a range
 * meanwhile may find zeros, and what it writes may be lost; other addresses are
 * as safe as with KEDGE_SWAP_MOVE. As the mappings change places, both ranges
 * must be of one mapping each and these alike in every attribute, which is read
 * from /proc/self/smaps unless both are the same; and they stay apart from their
 * neighbours afterwards, so that an mremap() over the seam fails. At most an
 * eighth of vm.max_map_count is left to that.
 *
 * Threads: any, but see above. Fork: as kedge_page_swap().
 *
 * Return: 0, or a negative errno as of kedge_page_swap(), and:
 *   -EINVAL      a flag is unknown
 *   -EOPNOTSUPP  KEDGE_SWAP_REMAP, KEDGE_SWAP_PHYS: the two mappings differ, or a
 *                range is in more than one; KEDGE_SWAP_PHYS: this kernel lacks it
 *   -EBUSY       KEDGE_SWAP_PHYS: a page is shared with a forked child or merged
 *                with one like it, stays locked, or is part of a pinned huge page
 *                that would have to be split; not because it is pinned
 *   -E2BIG       KEDGE_SWAP_PHYS: more than 1 GiB
 */
KEDGE_API int kedge_page_swap_with(void *a, void *b, size_t len,
				   uint32_t flags);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_PAGESWAP_H */
