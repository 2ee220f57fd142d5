// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The entries of two ranges that are exchanged: their folios are locked, they are
 * cleared, flushed, and set. page_exchange.c says why in this order, and who has
 * to wait meanwhile.
 */
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched/signal.h>
#include <linux/swapops.h>

#include <asm/cacheflush.h>
#include <asm/pgalloc.h>
#include <asm/tlbflush.h>

#include "internal.h"
#include "page_exchange.h"

/* From here on one flush of everything costs less than two of ranges. */
#define FLUSH_RANGE_MAX (16 * PAGE_SIZE)

/* ---- look at every entry, and lock its folio ---- */

static int in_the_way(struct exchange *x, enum obstacle what,
		      struct folio *folio, int side, unsigned long addr)
{
	if (folio)
		folio_get(folio);
	x->folio = folio;
	x->obstacle = what;
	x->at = addr;
	x->on = side;
	return -EAGAIN;
}

/* The folio's anon_vma is the mapping's own, or, since a fork, another of its root. */
static bool is_of(struct folio *folio, struct anon_vma *mine)
{
	unsigned long mapping = (unsigned long)READ_ONCE(folio->mapping);

	if (likely(mapping == (unsigned long)mine + PAGE_MAPPING_ANON))
		return true;
	return (mapping & PAGE_MAPPING_FLAGS) == PAGE_MAPPING_ANON &&
	       folio_anon_vma(folio)->root == mine->root;
}

/*
 * With the page table's lock held. With @look the folio is not locked, but what
 * would be in the way is found.
 */
static __always_inline int lock_page_of(struct exchange *x, int side,
					unsigned long addr, struct page *page,
					bool whole, bool look)
{
	struct folio *folio = page_folio(page);

	/* Shared with a child, or by KSM. */
	if (!PageAnonExclusive(page))
		return folio_test_anon(folio) ? -EMLINK : -EOPNOTSUPP;
	if (PageHWPoison(page))
		return -EHWPOISON;
	if (!whole && folio_test_large(folio)) {
		if (folio_maybe_dma_pinned(folio))
			return -EBUSY;
		return in_the_way(x, FOLIO_LARGE, folio, side, addr);
	}
	if (look) {
		if (folio_test_locked(folio))
			return in_the_way(x, FOLIO_LOCKED, folio, side, addr);
		return 0;
	}
	if (!folio_trylock(folio))
		return in_the_way(x, FOLIO_LOCKED, folio, side, addr);
	if (WARN_ON_ONCE(!is_of(folio, x->vma[side]->anon_vma))) {
		folio_unlock(folio);
		return -EBUSY;
	}
	x->locked++;
	return 0;
}

static int lock_not_present(struct exchange *x, int side, unsigned long addr,
			    swp_entry_t entry)
{
	if (is_hwpoison_entry(entry))
		return -EHWPOISON;
	/* Poison and guards that were set for an address belong to it. */
	if (is_pte_marker_entry(entry))
		return -EOPNOTSUPP;
	return in_the_way(x, NOT_PRESENT, NULL, side, addr);
}

static __always_inline int lock_pte(struct exchange *x, int side,
				    unsigned long addr, pte_t pte, bool look)
{
	if (pte_none(pte))
		return 0;
	x->found[side] = true;
	if (!pte_present(pte))
		return lock_not_present(x, side, addr, pte_to_swp_entry(pte));
	/* In anonymous memory all others are of pages. */
	if (pte_special(pte))
		return is_zero_pfn(pte_pfn(pte)) ? 0 : -EOPNOTSUPP;
	return lock_page_of(x, side, addr, pte_page(pte), false, look);
}

static int lock_table(struct exchange *x, int side, unsigned long addr,
		      pmd_t *pmd, unsigned long len, bool look)
{
	unsigned long end = addr + len;
	pte_t *first, *pte;
	spinlock_t *ptl = NULL;
	int err = 0;

	first = pte_offset_map_lock(x->mm, pmd, addr, &ptl);
	if (!first)
		return in_the_way(x, VANISHED, NULL, side, addr);
	for (pte = first; addr < end && !err; pte++, addr += PAGE_SIZE)
		err = lock_pte(x, side, addr, ptep_get(pte), look);
	pte_unmap_unlock(first, ptl);
	return err;
}

/* With the lock of @pmd's table held, which is a huge entry. */
static int lock_huge(struct exchange *x, int side, unsigned long addr,
		     pmd_t pmd, bool whole, bool look)
{
	if (!pmd_present(pmd))
		return in_the_way(x, NOT_PRESENT, NULL, side, addr);
	if (pmd_devmap(pmd))
		return -EOPNOTSUPP;
	if (is_huge_zero_pmd(pmd))
		return whole ? 0 : in_the_way(x, FOLIO_LARGE, NULL, side, addr);
	return lock_page_of(x, side, addr, pmd_page(pmd), whole, look);
}

static int lock_side(struct exchange *x, int side, unsigned long off,
		     unsigned long len, bool look)
{
	unsigned long addr = x->start[side] + off;
	pmd_t *pmd = pmd_off(x->mm, addr);
	bool whole = len == PMD_SIZE;
	spinlock_t *ptl = NULL;
	int err;

	x->found[side] = false;
	if (pmd_none(*pmd))
		return 0;
	ptl = pmd_trans_huge_lock(pmd, x->vma[side]);
	if (ptl) {
		err = lock_huge(x, side, addr, *pmd, whole, look);
		spin_unlock(ptl);
		return err;
	}
	return lock_table(x, side, addr, pmd, len, look);
}

/* A huge page that could be freed lazily was, after tables had been made. */
static bool lacks_a_table(const struct exchange *x, unsigned long off)
{
	return (x->found[0] && pmd_none(*pmd_off(x->mm, x->start[1] + off))) ||
	       (x->found[1] && pmd_none(*pmd_off(x->mm, x->start[0] + off)));
}

int exchange_lock(struct exchange *x, unsigned long *off, bool look)
{
	unsigned long len;
	int err;

	for (; *off < x->len; *off += len) {
		len = piece_len(x, *off);
		err = lock_side(x, 0, *off, len, look);
		if (!err)
			err = lock_side(x, 1, *off, len, look);
		if (!err && !look && len < PMD_SIZE && lacks_a_table(x, *off))
			err = in_the_way(x, VANISHED, NULL, 0, 0);
		if (err)
			return err;
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* ---- let them go, at their new addresses or where they were ---- */

/* @vma: its new mapping, or NULL to leave it as it is. */
static __always_inline void unlock_folio(struct exchange *x,
					 struct folio *folio,
					 struct vm_area_struct *vma,
					 unsigned long addr)
{
	if (vma) {
		if ((unsigned long)folio->mapping !=
		    (unsigned long)vma->anon_vma + PAGE_MAPPING_ANON)
			folio_move_anon_rmap(folio, vma);
		folio->index = vma->vm_pgoff +
			       ((addr - vma->vm_start) >> PAGE_SHIFT);
	}
	folio_unlock(folio);
	x->locked--;
}

static __always_inline void unlock_pte(struct exchange *x, pte_t pte,
				       struct vm_area_struct *vma,
				       unsigned long addr)
{
	if (!pte_none(pte) && !pte_special(pte))
		unlock_folio(x, page_folio(pte_page(pte)), vma, addr);
}

static void unlock_table(struct exchange *x, pmd_t *pmd, unsigned long len,
			 struct vm_area_struct *vma, unsigned long addr)
{
	unsigned long end = addr + len;
	pte_t *first, *pte;
	spinlock_t *ptl = NULL;

	first = pte_offset_map_lock(x->mm, pmd, addr, &ptl);
	if (WARN_ON_ONCE(!first))
		return;
	for (pte = first; addr < end && x->locked; pte++, addr += PAGE_SIZE)
		unlock_pte(x, ptep_get(pte), vma, addr);
	pte_unmap_unlock(first, ptl);
}

static void unlock_entry(struct exchange *x, int side, unsigned long off,
			 unsigned long len, bool moved)
{
	struct vm_area_struct *vma = moved ? x->vma[side] : NULL;
	unsigned long addr = x->start[side] + off;
	pmd_t *pmd = pmd_off(x->mm, addr);

	if (pmd_none(*pmd))
		return;
	if (!pmd_trans_huge(*pmd))
		unlock_table(x, pmd, len, vma, addr);
	else if (!is_huge_zero_pmd(*pmd))
		unlock_folio(x, pmd_folio(*pmd), vma, addr);
}

/* In the order in which they were locked. */
void exchange_unlock(struct exchange *x)
{
	unsigned long off, len;

	for (off = 0; off < x->len && x->locked; off += len) {
		len = piece_len(x, off);
		unlock_entry(x, 0, off, len, false);
		if (x->locked)
			unlock_entry(x, 1, off, len, false);
		cond_resched();
	}
	WARN_ON_ONCE(x->locked);
}

/* ---- the exchange: from here on nothing fails ---- */

static void lock_roots(struct exchange *x)
{
	struct rw_semaphore *one = &x->vma[0]->anon_vma->root->rwsem;
	struct rw_semaphore *two = &x->vma[1]->anon_vma->root->rwsem;

	down_write(one);
	while (one != two && !down_write_trylock(two)) {
		up_write(one);
		swap(one, two);
		down_write(one);
	}
}

static void unlock_roots(struct exchange *x)
{
	struct rw_semaphore *one = &x->vma[0]->anon_vma->root->rwsem;
	struct rw_semaphore *two = &x->vma[1]->anon_vma->root->rwsem;

	up_write(one);
	if (one != two)
		up_write(two);
}

static pmd_t clear_pmd(struct mm_struct *mm, unsigned long addr, pmd_t *pmd)
{
	spinlock_t *ptl = pmd_lock(mm, pmd);
	pmd_t old = *pmd;

	if (pmd_trans_huge(old))
		old = pmdp_huge_get_and_clear(mm, addr, pmd);
	else if (!pmd_none(old))
		pmd_clear(pmd);
	spin_unlock(ptl);
	return old;
}

static void set_pmd_entry(struct mm_struct *mm, unsigned long addr, pmd_t *pmd,
			  pmd_t new)
{
	spinlock_t *ptl = NULL;

	if (pmd_none(new))
		return;
	ptl = pmd_lock(mm, pmd);
	if (pmd_trans_huge(new))
		set_pmd_at(mm, addr, pmd, new);
	else
		pmd_populate(mm, pmd, pmd_pgtable(new));
	spin_unlock(ptl);
}

static void clear_table(struct mm_struct *mm, unsigned long addr, pmd_t *pmd,
			unsigned long cnt, union entry *saved)
{
	pte_t *first, *pte;
	spinlock_t *ptl = NULL;

	if (pmd_none(*pmd)) {
		while (cnt--)
			saved++->pte = __pte(0);
		return;
	}
	first = pte_offset_map_lock(mm, pmd, addr, &ptl);
	if (WARN_ON_ONCE(!first))
		return;
	for (pte = first; cnt--; pte++, saved++, addr += PAGE_SIZE) {
		saved->pte = ptep_get(pte);
		if (!pte_none(saved->pte))
			saved->pte = ptep_get_and_clear(mm, addr, pte);
	}
	pte_unmap_unlock(first, ptl);
}

static void set_table(struct exchange *x, int side, unsigned long addr,
		      pmd_t *pmd, unsigned long cnt, const union entry *new)
{
	pte_t *first, *pte;
	spinlock_t *ptl = NULL;

	/* Then the other side has holes only. */
	if (pmd_none(*pmd))
		return;
	first = pte_offset_map_lock(x->mm, pmd, addr, &ptl);
	if (WARN_ON_ONCE(!first))
		return;
	for (pte = first; cnt--; pte++, new++, addr += PAGE_SIZE) {
		if (pte_none(new->pte))
			continue;
		set_pte_at(x->mm, addr, pte, new->pte);
		unlock_pte(x, new->pte, x->vma[side], addr);
	}
	pte_unmap_unlock(first, ptl);
}

static void clear_side(struct exchange *x, int side)
{
	union entry *saved = x->saved[side];
	unsigned long off, len, addr;
	pmd_t *pmd;

	for (off = 0; off < x->len; off += len) {
		len = piece_len(x, off);
		addr = x->start[side] + off;
		pmd = pmd_off(x->mm, addr);
		if (len == PMD_SIZE)
			saved->pmd = clear_pmd(x->mm, addr, pmd);
		else
			clear_table(x->mm, addr, pmd, len >> PAGE_SHIFT, saved);
		saved += piece_entries(len);
		cond_resched();
	}
}

static void flush(struct exchange *x)
{
	if (x->len > FLUSH_RANGE_MAX) {
		flush_tlb_mm(x->mm);
		return;
	}
	flush_tlb_range(x->vma[0], x->start[0], x->start[0] + x->len);
	flush_tlb_range(x->vma[1], x->start[1], x->start[1] + x->len);
}

/* Every huge page has a table in store with the table that it is in. */
static void move_deposit(struct mm_struct *mm, pmd_t *from, pmd_t *to)
{
	spinlock_t *ptl = NULL;
	pgtable_t table;

	if (pmd_lockptr(mm, from) == pmd_lockptr(mm, to))
		return;
	ptl = pmd_lock(mm, from);
	table = pgtable_trans_huge_withdraw(mm, from);
	spin_unlock(ptl);
	ptl = pmd_lock(mm, to);
	pgtable_trans_huge_deposit(mm, to, table);
	spin_unlock(ptl);
}

static void set_whole(struct exchange *x, unsigned long off, unsigned long i)
{
	unsigned long at[2] = { x->start[0] + off, x->start[1] + off };
	pmd_t *pmd[2] = { pmd_off(x->mm, at[0]), pmd_off(x->mm, at[1]) };
	pmd_t new[2] = { x->saved[!x->back][i].pmd, x->saved[x->back][i].pmd };
	int side;

	if (!x->back && pmd_trans_huge(new[0]) && !pmd_trans_huge(new[1]))
		move_deposit(x->mm, pmd[1], pmd[0]);
	if (!x->back && pmd_trans_huge(new[1]) && !pmd_trans_huge(new[0]))
		move_deposit(x->mm, pmd[0], pmd[1]);
	for (side = 0; side < 2; side++) {
		set_pmd_entry(x->mm, at[side], pmd[side], new[side]);
		unlock_entry(x, side, off, PMD_SIZE, true);
	}
}

static void set_entries(struct exchange *x)
{
	unsigned long off, len, addr, i = 0;
	int side;

	for (off = 0; off < x->len; off += len, i += piece_entries(len)) {
		len = piece_len(x, off);
		if (len == PMD_SIZE) {
			set_whole(x, off, i);
			cond_resched();
			continue;
		}
		for (side = 0; side < 2; side++) {
			addr = x->start[side] + off;
			set_table(x, side, addr, pmd_off(x->mm, addr),
				  len >> PAGE_SHIFT,
				  &x->saved[x->back ? side : !side][i]);
		}
		cond_resched();
	}
	WARN_ON_ONCE(x->locked);
}

static bool pte_pinned(pte_t pte)
{
	return !pte_none(pte) && !pte_special(pte) &&
	       folio_maybe_dma_pinned(page_folio(pte_page(pte)));
}

/* @pmd is in no table, so what it maps is found by nobody else. */
static bool pmd_pinned(pmd_t pmd)
{
	pte_t *table;
	int i;

	if (pmd_none(pmd))
		return false;
	if (pmd_trans_huge(pmd))
		return !is_huge_zero_pmd(pmd) &&
		       folio_maybe_dma_pinned(pmd_folio(pmd));
	table = pte_offset_kernel(&pmd, 0);
	for (i = 0; i < PTRS_PER_PTE; i++)
		if (pte_pinned(ptep_get(table + i)))
			return true;
	return false;
}

/* The entries are cleared, and the TLB is flushed. */
static bool side_pinned(const struct exchange *x, int side)
{
	const union entry *saved = x->saved[side];
	unsigned long off, len, cnt;

	for (off = 0; off < x->len; off += len) {
		len = piece_len(x, off);
		cnt = piece_entries(len);
		if (len == PMD_SIZE && pmd_pinned(saved->pmd))
			return true;
		for (; cnt--; saved++)
			if (len < PMD_SIZE && pte_pinned(saved->pte))
				return true;
		cond_resched();
	}
	return false;
}

int exchange_entries(struct exchange *x)
{
	int side, err = 0;

	for (side = 0; side < 2; side++)
		flush_cache_range(x->vma[side], x->start[side],
				  x->start[side] + x->len);
	lock_roots(x);
	clear_side(x, 0);
	clear_side(x, 1);
	flush(x);
	if (x->unpinned && (side_pinned(x, 0) || side_pinned(x, 1))) {
		x->back = true;
		err = -EBUSY;
	}
	set_entries(x);
	unlock_roots(x);
	/* As mremap() does: each address has another page, or none. */
	for (side = 0; side < 2 && !err; side++)
		vm_flags_set(x->vma[side], VM_SOFTDIRTY);
	return err;
}
