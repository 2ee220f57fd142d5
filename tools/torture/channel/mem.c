// SPDX-License-Identifier: BSD-2-Clause
/*
 * Buffers. Before and behind each lie bytes that nobody may change, or nothing
 * that is mapped. Pages beside one that is in use come and go; what was in use
 * is freed, unmapped, moved, thrown away or used again at once, so that whoever
 * still writes there is seen: memory that was given back as zeros must be zeros
 * when it is taken again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/torture/channel/chan.h"

#define EDGE	  64u
#define EDGE_BYTE 0xa5
#define SLOT_CAP  9216u
#define PAGE	  page_len()
#define PLACES	  8u /* looked at for zeros */
#define KEEP_MIN  (32u << 10)
#define KEEP_MAX  (1u << 20)
#define KEEP_NS	  50000000ull

static size_t page_len(void)
{
	static size_t len;

	if (!len)
		len = (size_t)sysconf(_SC_PAGESIZE);
	return len;
}

int chan_buf_init(struct chan_buf *b)
{
	memset(b, 0, sizeof(*b));
	b->slot = malloc(SLOT_CAP + 3 * EDGE);
	return b->slot ? 0 : -ENOMEM;
}

void chan_buf_fini(struct chan_buf *b)
{
	free(b->slot);
	b->slot = NULL;
}

static void *map_new(void *at, size_t len, int prot, int flags)
{
	void *p = mmap(at, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		       0);

	return p == MAP_FAILED ? NULL : p;
}

/* Zeros, as far as it is looked at. */
static bool is_zero(const uint8_t *at, size_t len)
{
	size_t i, off;

	for (i = 0; i < PLACES; i++) {
		off = (len - 1) / (PLACES - 1) * i;
		if (at[off])
			return false;
	}
	return true;
}

/* Pages that were used before, are of about that length, and are all zeros
 * again. */
static uint8_t *spare_take(struct chan_rank *r, size_t need, size_t *len)
{
	struct chan_spare *s;
	uint8_t *base;
	size_t i;

	for (i = 0; i < CHAN_SPARES; i++) {
		s = &r->spare[i];
		if (!s->base || s->len < need || s->len > 4 * need)
			continue;
		base = s->base;
		*len = s->len;
		s->base = NULL;
		if (!is_zero(base + PAGE, *len - 2 * PAGE))
			chan_wrong(r->tally, "memory that no operation has "
				   "was written to");
		return base;
	}
	return NULL;
}

static bool spare_give(struct chan_rank *r, uint8_t *base, size_t len)
{
	size_t i;

	for (i = 0; i < CHAN_SPARES; i++) {
		if (r->spare[i].base)
			continue;
		r->spare[i] = (struct chan_spare){ base, len };
		return true;
	}
	return false;
}

void chan_spares_drop(struct chan_rank *r)
{
	size_t i;

	for (i = 0; i < CHAN_SPARES; i++) {
		if (r->spare[i].base)
			munmap(r->spare[i].base, r->spare[i].len);
		r->spare[i].base = NULL;
	}
}

/* A page before it and one behind it; the buffer begins in the second page, or
 * ends where the last but one ends. */
static int get_map(struct chan_rank *r, struct chan_buf *b, size_t cap,
		   bool flush)
{
	size_t off = chan_once(r, 2) ? PAGE + util_rng_below(&r->rng, PAGE)
				     : PAGE;
	size_t need = round_up(off + cap + EDGE, PAGE) + 2 * PAGE;

	b->base = flush ? NULL : spare_take(r, need, &b->base_len);
	if (!b->base) {
		b->base_len = need;
		b->base = map_new(NULL, need, PROT_READ | PROT_WRITE, 0);
		if (b->base && chan_once(r, 4))
			madvise(b->base, need, MADV_HUGEPAGE);
	}
	if (!b->base)
		return -ENOMEM;
	b->at = b->base + PAGE + off;
	if (!flush)
		return 0;
	b->at = b->base + b->base_len - PAGE - cap;
	if (!mprotect(b->base + b->base_len - PAGE, PAGE, PROT_NONE))
		return 0;
	munmap(b->base, b->base_len);
	return -ENOMEM;
}

static enum chan_mem choose(struct chan_rank *r, size_t cap)
{
	uint64_t v = util_rng_below(&r->rng, 16);

	if (cap <= SLOT_CAP && !chan_once(r, 64))
		return MEM_SLOT;
	if (v < (r->go.segments ? 12 : 1) && !strcmp(r->transport, "shm"))
		return MEM_BLOCK;
	if (v < 4)
		return MEM_MALLOC;
	if (v < 8)
		return MEM_HEAP;
	return v < 13 ? MEM_MAP : MEM_FLUSH;
}

static int get_mem(struct chan_rank *r, struct chan_buf *b, size_t cap)
{
	switch (b->mem) {
	case MEM_SLOT:
		b->at = b->slot + EDGE + util_rng_below(&r->rng, EDGE);
		return 0;
	case MEM_MALLOC:
		b->base = malloc(cap + 3 * EDGE);
		if (b->base)
			b->at = b->base + EDGE + util_rng_below(&r->rng, EDGE);
		break;
	case MEM_BLOCK:
		b->base = chan_block_get(r, cap + 3 * EDGE);
		if (b->base)
			b->at = b->base + EDGE + util_rng_below(&r->rng, EDGE);
		break;
	case MEM_HEAP:
		b->base = kedge_channel_alloc(r->ch, cap + 2 * EDGE);
		if (b->base)
			b->at = b->base + EDGE;
		break;
	default:
		return get_map(r, b, cap, b->mem == MEM_FLUSH);
	}
	return b->base ? 0 : -ENOMEM;
}

int chan_buf_get(struct chan_rank *r, struct chan_buf *b, size_t cap)
{
	b->mem = choose(r, cap);
	if (get_mem(r, b, cap)) {
		/* The channel's heap has an end, and blocks are few. */
		b->mem = MEM_MALLOC;
		if (get_mem(r, b, cap))
			return -ENOMEM;
	}
	b->cap = cap;
	b->mark = cap;
	memset(b->at - EDGE, EDGE_BYTE, EDGE);
	if (b->mem != MEM_FLUSH)
		memset(b->at + cap, EDGE_BYTE, EDGE);
	return 0;
}

void chan_buf_mark(struct chan_buf *b, size_t off)
{
	if (off > b->cap || b->cap - off < EDGE)
		return;
	b->mark = off;
	memset(b->at + off, EDGE_BYTE, EDGE);
}

static bool is_edge(const uint8_t *at)
{
	size_t i;

	for (i = 0; i < EDGE; i++)
		if (at[i] != EDGE_BYTE)
			return false;
	return true;
}

const char *chan_buf_check(const struct chan_buf *b, bool marked)
{
	if (!is_edge(b->at - EDGE))
		return "before its buffer";
	if (b->mem != MEM_FLUSH && !is_edge(b->at + b->cap))
		return "behind its buffer";
	if (marked && b->mark < b->cap && !is_edge(b->at + b->mark))
		return "behind its end";
	return NULL;
}

/* Somebody else may take the place meanwhile: then it is his. */
static void page_anew(struct chan_buf *b, uint8_t *page)
{
	munmap(page, PAGE);
	if (map_new(page, PAGE, PROT_READ | PROT_WRITE,
		    MAP_FIXED_NOREPLACE) == page)
		return;
	if (page == b->base)
		b->base += PAGE;
	b->base_len -= PAGE;
}

void chan_buf_disturb(struct chan_rank *r, struct chan_buf *b)
{
	uint8_t *first, *last;

	if (b->mem != MEM_MAP || b->base_len < 4 * PAGE)
		return;
	first = b->base;
	last = b->base + b->base_len - PAGE;
	if (b->at - EDGE < first + PAGE || b->at + b->cap + EDGE > last)
		return;
	r->tally->maps++;
	switch (util_rng_below(&r->rng, 4)) {
	case 0:
		page_anew(b, first);
		return;
	case 1:
		page_anew(b, last);
		return;
	case 2:
		mprotect(first, PAGE, PROT_NONE);
		mprotect(last, PAGE, PROT_NONE);
		return;
	default:
		madvise(first, PAGE, MADV_DONTNEED);
		madvise(last, PAGE, MADV_DONTNEED);
	}
}

/* Its pages are ordinary ones: thrown away they are zeros. */
static bool put_spare(struct chan_rank *r, struct chan_buf *b)
{
	if (mprotect(b->base, b->base_len, PROT_READ | PROT_WRITE) ||
	    madvise(b->base, b->base_len, MADV_DONTNEED))
		return false;
	if (!is_zero(b->base, b->base_len))
		chan_wrong(r->tally, "pages that were thrown away have data");
	return spare_give(r, b->base, b->base_len);
}

/* A page of it goes elsewhere, with what is in it. Where it was is anybody's
 * at once, so it is unmapped round that. */
static void put_moved(struct chan_rank *r, struct chan_buf *b)
{
	uint8_t *page = b->base + PAGE, *to;
	uint8_t was = page[PAGE - 1];

	to = mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		    b->base + b->base_len - PAGE);
	if (to == MAP_FAILED)
		return;
	if (to[PAGE - 1] != was)
		chan_wrong(r->tally, "a page that was moved has other data");
	munmap(b->base, PAGE);
	b->base += 2 * PAGE;
	b->base_len -= 2 * PAGE;
}

static void put_map(struct chan_rank *r, struct chan_buf *b)
{
	r->tally->maps++;
	switch (util_rng_below(&r->rng, 4)) {
	case 0:
		if (b->mem == MEM_MAP && put_spare(r, b))
			return;
		break;
	case 1:
		put_moved(r, b);
		break;
	case 2:
		map_new(b->base, b->base_len, PROT_NONE, MAP_FIXED);
		break;
	}
	munmap(b->base, b->base_len);
}

/* ---- memory that both processes can write to ---- */

static bool is_kept(const struct chan_kept *k)
{
	return k->base[0] == EDGE_BYTE &&
	       !memcmp(k->base, k->base + 1, k->len - 1);
}

/* The peer must not touch it any more: nobody has it for a while. */
static bool keep(struct chan_rank *r, struct chan_buf *b)
{
	size_t i;

	if (b->cap < KEEP_MIN || (b->cap > KEEP_MAX && !chan_once(r, 4)))
		return false;
	for (i = 0; i < CHAN_KEPT; i++) {
		if (r->kept[i].base)
			continue;
		r->kept[i].base = b->base;
		r->kept[i].len = b->cap + 2 * EDGE;
		r->kept[i].until = clock_ns() + KEEP_NS;
		memset(b->base, EDGE_BYTE, r->kept[i].len);
		return true;
	}
	return false;
}

void chan_kept_look(struct chan_rank *r, bool all)
{
	uint64_t now = clock_ns();
	struct chan_kept *k;
	size_t i;

	for (i = 0; i < CHAN_KEPT; i++) {
		k = &r->kept[i];
		if (!k->base || (!all && k->until > now))
			continue;
		if (!is_kept(k))
			chan_wrong(r->tally, "memory of an operation that is "
				   "over was written to");
		kedge_channel_free(r->ch, k->base);
		k->base = NULL;
	}
}

void chan_buf_put(struct chan_rank *r, struct chan_buf *b)
{
	switch (b->mem) {
	case MEM_MAP:
	case MEM_FLUSH:
		put_map(r, b);
		break;
	case MEM_HEAP:
		if (!keep(r, b))
			kedge_channel_free(r->ch, b->base);
		break;
	case MEM_MALLOC:
		free(b->base);
		break;
	case MEM_BLOCK:
		chan_block_put(r, b->base);
		break;
	default:
		break;
	}
	b->mem = MEM_NONE;
}

void chan_buf_drop(struct chan_buf *b)
{
	if (b->mem == MEM_MAP || b->mem == MEM_FLUSH)
		munmap(b->base, b->base_len);
	else if (b->mem == MEM_MALLOC)
		free(b->base);
	b->mem = MEM_NONE;
}
