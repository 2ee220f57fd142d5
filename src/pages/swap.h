/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page swap, as the channel uses it: the pages that a message landed in appear
 * under the application's addresses, and the application's old ones join the
 * pool in their place.
 */
#ifndef PAGES_SWAP_H
#define PAGES_SWAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kedge/pageswap.h>

#include "base/base.h"

/*
 * Exchange the pages of @dst and @landing; flags and result as of
 * kedge_page_swap_with(). What it is fast for, with KEDGE_SWAP_MOVE: landing of
 * huge pages, at addresses that are congruent to dst's, and dst either never
 * touched or of huge pages too. Landing pages that a device has registered need
 * KEDGE_SWAP_REMAP: they are pinned. Not for a signal handler.
 */
int pages_land(void *dst, void *landing, size_t len, uint32_t flags);

/*
 * Look whether mremap() may put the pages of @src under @dst: private memory that is
 * one mapping each, alike in everything. 0, or a negative errno with a reason. It
 * takes what reading /proc/self/smaps takes. @dst is announced for it. Not for a signal
 * handler.
 */
KEDGE_PRIVATE int kedge__pages_alike(const void *dst, const void *src,
				     size_t len);

/* Calls of the page move's, right around it, with signals blocked. */
struct kedge__move_calls {
	void (*moving)(void *ctx, void *dst, void *src, size_t len);
	void (*moved)(void *ctx, int rc);
	void *ctx;
};

/*
 * The pages of @src appear under @dst, all at once: no thread meets anything but the
 * old pages there, which are freed, or the new ones, and the mapping goes with them.
 * @src is mapped still, and has no pages. A device that has registered the pages
 * reaches them at their new address by the registration's old one. @dst is announced;
 * kedge__pages_alike() was 0, no device has pinned pages of @dst, and nothing in it is
 * wanted any more. @calls may be NULL. 0, or a negative errno and all is as it was. Not
 * for a signal handler.
 */
KEDGE_PRIVATE int kedge__pages_replace(void *dst, void *src, size_t len,
				       const struct kedge__move_calls *calls);

/*
 * Copy @len bytes, whole pages, to @dst where there are no pages yet; to be
 * preferred to memcpy() from some dozens of pages on. Returns the bytes done,
 * from the beginning: what is left is to be copied otherwise, because a page was
 * there, or the memory is watched by others, or userfaultfd is not to be had.
 * Not for a signal handler.
 */
size_t pages_fill(void *dst, const void *src, size_t len);

/*
 * Look in the mappings whether a range can be swapped under: 0; -EFAULT: a
 * part is not mapped, or may not be written; -EOPNOTSUPP: it is a file's or
 * shared, or that cannot be told. Not for a signal handler.
 */
int pages_writable(const void *at, size_t len);

/*
 * The size of a huge page that one entry of a page table maps; the page size
 * without huge pages. Addresses that are equal modulo this are congruent.
 */
size_t pages_huge_len(void);
/* The same, for kedge's other libraries. */
KEDGE_PRIVATE size_t kedge__pages_huge_len(void);

/* The pages under up to 64 huge pages' worth of addresses. */
enum pages_kind {
	PAGES_NONE,
	PAGES_HUGE,  /* every one is there, mapped whole */
	PAGES_OTHER, /* or the kernel does not tell (Linux before 6.7) */
};

enum pages_kind pages_kind(const void *at, size_t len);

#endif /* PAGES_SWAP_H */
