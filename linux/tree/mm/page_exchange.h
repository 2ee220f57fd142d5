/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Between page_exchange.c and page_exchange_entries.c. */
#ifndef _MM_PAGE_EXCHANGE_H
#define _MM_PAGE_EXCHANGE_H

#include <linux/minmax.h>
#include <linux/mm.h>

union entry {
	pte_t pte;
	pmd_t pmd;
};

/* Obstacles that can be put out of the way. */
enum obstacle {
	FOLIO_LOCKED,
	FOLIO_LARGE,	/* mapped by single entries, or cut by a range's end */
	NOT_PRESENT,	/* in swap, or being migrated */
	VANISHED,	/* a huge page that could be freed lazily was */
};

/*
 * @unpinned: a pin is an error.
 * @back:   one was found: each side gets its own entries again.
 * @locked: folios that are locked: the first so many in the walk's order.
 * @saved:  the cleared entries of each side, in the walk's order.
 * @found:  in the piece that was looked at last a side has an entry of a table.
 * @folio, @obstacle, @at, @on: set with -EAGAIN; @folio has a reference, or is NULL.
 */
struct exchange {
	struct mm_struct *mm;
	struct vm_area_struct *vma[2];
	unsigned long start[2];
	unsigned long len;
	bool unpinned;
	bool back;
	unsigned long locked;
	union entry *saved[2];
	bool found[2];
	struct folio *folio;
	enum obstacle obstacle;
	unsigned long at;
	int on;
};

/*
 * From @off on, what one table of each side has. PMD_SIZE: the entries for both
 * tables are whole within the ranges. Less: entries of the tables are exchanged.
 */
static inline unsigned long piece_len(const struct exchange *x, unsigned long off)
{
	return min3(x->len - off,
		    PMD_SIZE - ((x->start[0] + off) & ~PMD_MASK),
		    PMD_SIZE - ((x->start[1] + off) & ~PMD_MASK));
}

/* The entries that are exchanged for a piece. */
static inline unsigned long piece_entries(unsigned long len)
{
	return len == PMD_SIZE ? 1 : len >> PAGE_SHIFT;
}

/*
 * Look at the entries from *@off on, and lock their folios unless @look. If
 * something is in the way, *@off is its piece, and what was locked still is.
 */
int exchange_lock(struct exchange *x, unsigned long *off, bool look);
/* Nothing was moved. */
void exchange_unlock(struct exchange *x);
/*
 * All are locked, and no longer afterwards. 0, or -EBUSY: a page was pinned that
 * should not be, and all is as it was.
 */
int exchange_entries(struct exchange *x);

#endif /* _MM_PAGE_EXCHANGE_H */
