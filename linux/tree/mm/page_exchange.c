// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Exchange the pages under two ranges of an address space.
 *
 * Folios stay where they are in memory, and change their addresses: what has
 * pinned one goes on reaching it. Where both ranges have a whole entry of the
 * PMD level, that entry is exchanged, be it a huge page, a table, or nothing.
 *
 * Exclusion
 *
 * - mmap_lock for writing, and vma_start_write() on both mappings: no fault, no
 *   GUP but the fast one, no fork, zap, mprotect, khugepaged, KSM, NUMA
 *   balancing, userfaultfd or swapoff in either range. A hole stays a hole, and
 *   AnonExclusive stays set.
 *
 * - The lock of every folio in both ranges: no migration, reclaim, split or
 *   memory failure takes an entry away. Each of those locks the folio before
 *   it looks for entries, and some read folio->mapping, then wait for the
 *   anon_vma's lock, and do not look again, as they rely on the folio's lock
 *   for that (rmap_walk_anon_lock(), a split's folio_get_anon_vma()): with the
 *   anon_vma's lock alone a folio would be moved to another root under them,
 *   and they would walk one tree with the lock of another. From the moment that
 *   a folio was locked, its entry was seen present under the page table's lock,
 *   and so remains; a reference is not needed.
 *
 * - The locks of both mappings' anon_vma roots for writing: no rmap walk. Walks
 *   without the folio's lock (folio_referenced()) look at folio->mapping again
 *   once they have the lock, so they meet the folio at its old place or at its
 *   new one. A folio that is mapped in a mapping has the mapping's root.
 *
 * Locks nest as mm/rmap.c says: mmap_lock, folio, anon_vma, page table. Many
 * folios are locked at a time, which have no order: all are trylocked, and where
 * one cannot be had all are let go before that one is waited for. In the same
 * way the second root is trylocked: roots have no order either, mm_take_all_locks()
 * takes them in that of the mappings.
 *
 * Why no observer sees a mixture
 *
 * All entries of both ranges are cleared, then the TLB is flushed for both, then
 * entries are set. Before the flush is over an access finds old pages or faults,
 * and waits for mmap_lock; as of then none finds an old page; the first new entry
 * is set afterwards. So once a thread has seen one new page, no thread sees
 * an old one. GUP-fast that found an old entry looks at it again after it took
 * its reference, and was before the exchange if it is unchanged; one that finds
 * none takes mmap_lock. Secondary MMUs drop what they have at
 * mmu_notifier_invalidate_range_start(), and fault nothing in until _end().
 * An entry that reclaim has cleared, and whose flush it put off, is flushed here:
 * both ranges are flushed whole, holes too.
 *
 * All that can fail is before the first entry is cleared, but for the look at pins
 * (PAGE_EXCHANGE_UNPINNED), which is behind the flush: then GUP-fast either had its
 * pin before, or sees that the entry has changed and lets go. Where one is found
 * the entries are set to what they were.
 */
#include <linux/hugetlb_inline.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/overflow.h>
#include <linux/page_exchange.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/userfaultfd_k.h>

#include <asm/pgalloc.h>

#include "page_exchange.h"

/* Folios that others keep locking, or pages that keep going out to swap. */
#define ROUNDS_MAX 16
/* Mappings may differ in these: they belong to addresses, and no page has them. */
#define VM_OF_ADDRESSES (VM_SOFTDIRTY | VM_ACCOUNT | VM_NORESERVE | \
			 VM_HUGEPAGE | VM_NOHUGEPAGE | VM_MERGEABLE | \
			 VM_RAND_READ | VM_SEQ_READ | VM_DONTCOPY | \
			 VM_DONTDUMP | VM_WIPEONFORK | VM_GROWSDOWN)

/* ---- mappings, and tables for what they get ---- */

static int check_vma(struct exchange *x, int side)
{
	unsigned long start = x->start[side];
	struct vm_area_struct *vma = vma_lookup(x->mm, start);

	if (!vma)
		return -EFAULT;
	if (x->len > vma->vm_end - start)
		return vma_lookup(x->mm, vma->vm_end) ? -ERANGE : -EFAULT;
	if (!vma_is_anonymous(vma) || is_vm_hugetlb_page(vma) ||
	    (vma->vm_flags & (VM_SPECIAL | VM_SHARED | VM_MAYSHARE |
			      VM_SHADOW_STACK)))
		return -EOPNOTSUPP;
	if ((vma->vm_flags & (VM_READ | VM_WRITE)) != (VM_READ | VM_WRITE))
		return -EACCES;
	if (userfaultfd_armed(vma))
		return -EADDRINUSE;
	x->vma[side] = vma;
	return 0;
}

static int check_vmas(struct exchange *x)
{
	int err, side;

	for (side = 0; side < 2; side++) {
		err = check_vma(x, side);
		if (err)
			return err;
	}
	if ((x->vma[0]->vm_flags ^ x->vma[1]->vm_flags) & ~VM_OF_ADDRESSES)
		return -EXDEV;
	for (side = 0; side < 2; side++) {
		vma_start_write(x->vma[side]);
		if (anon_vma_prepare(x->vma[side]))
			return -ENOMEM;
	}
	return 0;
}

static pmd_t *make_pmd(struct mm_struct *mm, unsigned long addr)
{
	p4d_t *p4d = p4d_alloc(mm, pgd_offset(mm, addr), addr);
	pud_t *pud;

	if (!p4d)
		return NULL;
	pud = pud_alloc(mm, p4d, addr);
	return pud ? pmd_alloc(mm, pud, addr) : NULL;
}

static bool has_entries(struct mm_struct *mm, pmd_t *pmd, unsigned long addr,
			unsigned long len)
{
	unsigned long i, cnt = len >> PAGE_SHIFT;
	pte_t *first;

	if (pmd_none(*pmd))
		return false;
	first = pte_offset_map(pmd, addr);
	if (!first)
		return true;
	for (i = 0; i < cnt && pte_none(ptep_get(first + i)); i++)
		;
	pte_unmap(first);
	return i < cnt;
}

/* A table for each piece of which the other side has pages. */
static int make_tables(struct exchange *x)
{
	unsigned long off, len;
	pmd_t *pmd[2];
	int side;

	for (off = 0; off < x->len; off += len) {
		len = piece_len(x, off);
		for (side = 0; side < 2; side++) {
			pmd[side] = make_pmd(x->mm, x->start[side] + off);
			if (!pmd[side])
				return -ENOMEM;
		}
		for (side = 0; side < 2 && len < PMD_SIZE; side++)
			if (pmd_none(*pmd[side]) &&
			    has_entries(x->mm, pmd[!side],
					x->start[!side] + off, len) &&
			    pte_alloc(x->mm, pmd[side]))
				return -ENOMEM;
		cond_resched();
	}
	return 0;
}

/* ---- put out of the way what can be ---- */

static int wait_for_folio(struct folio *folio)
{
	int err = folio_lock_killable(folio);

	if (!err)
		folio_unlock(folio);
	return err ? -EINTR : 0;
}

static int split_large(struct exchange *x)
{
	struct vm_area_struct *vma = x->vma[x->on];
	pmd_t *pmd = pmd_off(x->mm, x->at);
	int err;

	/* Cut through by an end, or not congruent. */
	split_huge_pmd(vma, pmd, x->at);
	if (!x->folio)
		return 0;
	err = folio_lock_killable(x->folio);
	if (err)
		return -EINTR;
	/* Another may have split it. It fails if there is a reference. */
	if (folio_test_large(x->folio) && split_folio(x->folio))
		err = -EBUSY;
	folio_unlock(x->folio);
	return err;
}

static int clear_the_way(struct exchange *x)
{
	int err = 0;

	switch (x->obstacle) {
	case FOLIO_LOCKED:
		err = wait_for_folio(x->folio);
		break;
	case FOLIO_LARGE:
		err = split_large(x);
		break;
	case NOT_PRESENT:
		err = fixup_user_fault(x->mm, x->at, 0, NULL);
		break;
	case VANISHED:
		break;
	}
	if (x->folio)
		folio_put(x->folio);
	x->folio = NULL;
	return err;
}

/*
 * Bring in what is in swap, wait for migrations, split huge pages, without a
 * folio locked. It is a look only: what it found may change, but not for long.
 */
static int prepare(struct exchange *x)
{
	/* Each entry once, and some more that others interfere with. */
	unsigned long most = 2 * (x->len >> PAGE_SHIFT) + ROUNDS_MAX;
	unsigned long off = 0;
	int err;

	for (;;) {
		err = exchange_lock(x, &off, true);
		if (err != -EAGAIN)
			return err;
		err = clear_the_way(x);
		if (err)
			return err;
		if (!most--)
			return -EBUSY;
		if (fatal_signal_pending(current))
			return -EINTR;
	}
}

/* ---- the call ---- */

static unsigned long count_entries(const struct exchange *x)
{
	unsigned long off, len, cnt = 0;

	for (off = 0; off < x->len; off += len) {
		len = piece_len(x, off);
		cnt += piece_entries(len);
	}
	return cnt;
}

static int try_exchange(struct exchange *x)
{
	struct mmu_notifier_range range[2];
	unsigned long off = 0;
	int err, side;

	for (side = 0; side < 2; side++) {
		mmu_notifier_range_init(&range[side], MMU_NOTIFY_CLEAR, 0,
					x->mm, x->start[side],
					x->start[side] + x->len);
		mmu_notifier_invalidate_range_start(&range[side]);
	}
	err = exchange_lock(x, &off, false);
	if (err)
		exchange_unlock(x);
	else
		err = exchange_entries(x);
	mmu_notifier_invalidate_range_end(&range[1]);
	mmu_notifier_invalidate_range_end(&range[0]);
	return err;
}

static int exchange_locked(struct exchange *x)
{
	int err, rounds = 0;

	err = check_vmas(x);
	if (err)
		return err;
	do {
		err = make_tables(x);
		if (err)
			return err;
		err = try_exchange(x);
		if (err != -EAGAIN)
			return err;
		err = clear_the_way(x);
		if (!err)
			err = prepare(x);
		if (err)
			return err;
	} while (++rounds < ROUNDS_MAX);
	return -EBUSY;
}

/**
 * page_exchange() - exchange the pages under two ranges
 * @mm: the caller's address space
 * @a: a multiple of the page size
 * @b: a multiple of the page size
 * @len: a multiple of the page size, at most PAGE_EXCHANGE_MAX
 * @flags: PAGE_EXCHANGE_*
 *
 * The page found at @a + i is found at @b + i afterwards, and the reverse; a hole
 * counts as a page. Every observer finds both ranges as they were, or waits, or
 * finds both exchanged. A page that is pinned stays so, and goes to its new
 * address with the others. Mappings stay as they are.
 *
 * Each range is within one mapping; both are private anonymous memory that may be
 * read and written, and of the same flags but for those that say something of
 * addresses only. Pages in swap are brought in first, and huge pages split that
 * an end cuts through, or that are not congruent, unless they are pinned.
 *
 * Return: 0, or an error, and all is as it was:
 * * -EINVAL: not whole pages, an empty range, one that wraps or is not in user
 *   space, or they overlap, or an unknown flag
 * * -E2BIG: longer than PAGE_EXCHANGE_MAX
 * * -EFAULT: part of a range is not mapped
 * * -ERANGE: a range is in several mappings
 * * -EOPNOTSUPP: memory that is shared, of a file, of hugetlb or of a device, or
 *   pages that are poisoned or guarded on purpose
 * * -EACCES: it may not be read or written
 * * -EXDEV: the mappings' flags differ (protection, mlock)
 * * -EADDRINUSE: a userfaultfd has a range
 * * -EMLINK: a page is shared with a forked process, or by KSM
 * * -EBUSY: a folio stays locked, or a huge page that is pinned would have to be
 *   split, or a page is pinned and PAGE_EXCHANGE_UNPINNED is set
 * * -EHWPOISON: a page is broken
 * * -EINTR: killed
 * * -ENOMEM: no memory for tables
 */
int page_exchange(struct mm_struct *mm, unsigned long a, unsigned long b,
		  unsigned long len, unsigned int flags)
{
	struct exchange x = {
		.mm = mm,
		.start = { a, b },
		.len = len,
		.unpinned = flags & PAGE_EXCHANGE_UNPINNED,
	};
	unsigned long end_a, end_b, cnt;
	int err;

	if (!len || !PAGE_ALIGNED(a | b | len) ||
	    (flags & ~PAGE_EXCHANGE_UNPINNED) ||
	    check_add_overflow(a, len, &end_a) ||
	    check_add_overflow(b, len, &end_b) || end_a > mm->task_size ||
	    end_b > mm->task_size || (a < end_b && b < end_a))
		return -EINVAL;
	if (len > PAGE_EXCHANGE_MAX)
		return -E2BIG;
	cnt = count_entries(&x);
	x.saved[0] = kvmalloc_array(cnt, 2 * sizeof(union entry),
				    GFP_KERNEL_ACCOUNT);
	if (!x.saved[0])
		return -ENOMEM;
	x.saved[1] = x.saved[0] + cnt;
	err = mmap_write_lock_killable(mm);
	if (!err) {
		err = exchange_locked(&x);
		mmap_write_unlock(mm);
	}
	kvfree(x.saved[0]);
	return err;
}
EXPORT_SYMBOL_GPL(page_exchange);
