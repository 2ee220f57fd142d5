// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Pages of a segment that were handed to attachers: a bit each, in chunks that are
 * made when a page of theirs is handed out first, and stay as long as the segment.
 * A chunk is charged to the attacher that needed it.
 *
 * The bits are exact, page by page, and that ends a recursion: taking an entry
 * from an attacher is a change of the attacher's address space, which may own a
 * segment of all its memory. Attached pages are never handed out, so it finds no
 * bit there, and goes no further.
 */
#include <linux/bitmap.h>
#include <linux/gfp.h>
#include <linux/slab.h>

#include "internal.h"

#define CHUNK_SHIFT (PAGE_SHIFT + 3)
#define CHUNK_PAGES (1ul << CHUNK_SHIFT)
/* Chunks that are cleared with the lock held. */
#define CLEAR_MAX 64
#define CHUNK_BYTES (sizeof(struct chunk) + PAGE_SIZE)

struct chunk {
	struct quota *quota;
	unsigned int cnt;
	unsigned long *bits;
};

void handed_init(struct handed *h)
{
	xa_init(&h->chunks);
	h->cnt = 0;
}

static void chunk_free(struct chunk *c)
{
	quota_uncharge(c->quota, CHUNK_BYTES);
	quota_put(c->quota);
	free_page((unsigned long)c->bits);
	kfree(c);
}

void handed_fini(struct handed *h)
{
	unsigned long i;
	struct chunk *c;

	xa_for_each(&h->chunks, i, c)
		chunk_free(c);
	xa_destroy(&h->chunks);
}

static struct chunk *chunk_new(struct quota *q, int *err)
{
	struct chunk *c;

	*err = quota_charge(q, CHUNK_BYTES);
	if (*err)
		return NULL;
	*err = -ENOMEM;
	c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);
	if (!c)
		goto uncharge;
	c->bits = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!c->bits)
		goto free_chunk;
	c->quota = quota_hold(q);
	return c;

free_chunk:
	kfree(c);
uncharge:
	quota_uncharge(q, CHUNK_BYTES);
	return NULL;
}

int handed_prepare(struct handed *h, unsigned long first, unsigned long last,
		   struct quota *q)
{
	unsigned long i;
	struct chunk *c;
	int err;

	for (i = first >> CHUNK_SHIFT; i <= last >> CHUNK_SHIFT; i++) {
		if (xa_load(&h->chunks, i))
			continue;
		c = chunk_new(q, &err);
		if (!c)
			return err;
		err = xa_insert(&h->chunks, i, c, GFP_KERNEL_ACCOUNT);
		if (err)
			chunk_free(c);
		/* Another thread was first. */
		if (err && err != -EBUSY)
			return err;
	}
	return 0;
}

void handed_set(struct handed *h, unsigned long page)
{
	struct chunk *c = xa_load(&h->chunks, page >> CHUNK_SHIFT);

	if (__test_and_set_bit(page & (CHUNK_PAGES - 1), c->bits))
		return;
	c->cnt++;
	h->cnt++;
}

/* The part of a chunk that is in a range: its first bit; the one after it. */
static unsigned long bit_from(unsigned long i, unsigned long first)
{
	return i == first >> CHUNK_SHIFT ? first & (CHUNK_PAGES - 1) : 0;
}

static unsigned long bit_to(unsigned long i, unsigned long last)
{
	return i == last >> CHUNK_SHIFT ? (last & (CHUNK_PAGES - 1)) + 1 :
					  CHUNK_PAGES;
}

bool handed_any(const struct handed *h, unsigned long first,
		unsigned long last)
{
	/* The macro takes no const, and changes nothing. */
	struct xarray *chunks = (struct xarray *)&h->chunks;
	unsigned long i, to;
	struct chunk *c;

	if (!h->cnt)
		return false;
	xa_for_each_range(chunks, i, c, first >> CHUNK_SHIFT,
			  last >> CHUNK_SHIFT) {
		to = bit_to(i, last);
		if (c->cnt &&
		    find_next_bit(c->bits, to, bit_from(i, first)) < to)
			return true;
	}
	return false;
}

/* The bits of a chunk from @from to before @to. */
static void clear_part(struct handed *h, struct chunk *c, unsigned long from,
		       unsigned long to)
{
	unsigned long had = c->cnt;

	if (to - from == CHUNK_PAGES) {
		bitmap_zero(c->bits, CHUNK_PAGES);
		c->cnt = 0;
	} else {
		for_each_set_bit_from(from, c->bits, to) {
			__clear_bit(from, c->bits);
			c->cnt--;
		}
	}
	h->cnt -= had - c->cnt;
}

bool handed_clear_some(struct handed *h, unsigned long *first,
		       unsigned long last)
{
	unsigned int budget = CLEAR_MAX;
	unsigned long i, start = *first;
	struct chunk *c;

	if (!h->cnt)
		return false;
	xa_for_each_range(&h->chunks, i, c, start >> CHUNK_SHIFT,
			  last >> CHUNK_SHIFT) {
		if (!budget--) {
			*first = i << CHUNK_SHIFT;
			return true;
		}
		if (c->cnt)
			clear_part(h, c, bit_from(i, start), bit_to(i, last));
	}
	return false;
}
