// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whole pages of a range: a bit says whether a page is in use, and the first
 * page of what was given out how long it is. The lowest that fit are taken, so
 * that what was never needed stays above.
 *
 * A channel's heap is made of segments, each mapped when those before it are
 * full and twice as long as all of them: addresses are used as memory is.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "channel/shm/internal.h"

#define SEGMENT_MIN (64u << 10)

int pages_init(struct pages *p, uint64_t len)
{
	p->page_cnt = len / kedge__page_size();
	p->used = calloc(p->page_cnt / 64 + 1, sizeof(*p->used));
	p->cnt = calloc(p->page_cnt + 1, sizeof(*p->cnt));
	if (p->used && p->cnt)
		return 0;
	pages_fini(p);
	return -ENOMEM;
}

void pages_fini(struct pages *p)
{
	free(p->used);
	free(p->cnt);
	p->used = NULL;
	p->cnt = NULL;
}

static bool is_used(const struct pages *p, uint64_t page)
{
	return p->used[page / 64] >> page % 64 & 1;
}

static void mark(struct pages *p, uint64_t page, uint64_t cnt, bool used)
{
	for (; cnt; page++, cnt--)
		if (used)
			p->used[page / 64] |= (uint64_t)1 << page % 64;
		else
			p->used[page / 64] &= ~((uint64_t)1 << page % 64);
}

/* The first of @cnt neighbouring free pages, or the number of all. */
static uint64_t find(const struct pages *p, uint64_t cnt)
{
	uint64_t page = 0, run = 0;

	while (page < p->page_cnt) {
		if (!(page % 64) && p->used[page / 64] == UINT64_MAX) {
			run = 0;
			page += 64;
			continue;
		}
		run = is_used(p, page) ? 0 : run + 1;
		page++;
		if (run == cnt)
			return page - cnt;
	}
	return p->page_cnt;
}

uint64_t pages_get(struct pages *p, uint64_t len)
{
	uint64_t size = kedge__page_size();
	uint64_t cnt = len / size + !!(len % size), page;

	if (!cnt || cnt > p->page_cnt)
		return NO_PAGES;
	page = find(p, cnt);
	if (page == p->page_cnt)
		return NO_PAGES;
	mark(p, page, cnt, true);
	p->cnt[page] = (uint32_t)cnt;
	return page * size;
}

void pages_put(struct pages *p, uint64_t off)
{
	uint64_t page = off / kedge__page_size();

	mark(p, page, p->cnt[page], false);
	p->cnt[page] = 0;
}

/* ---- the heap ---- */

/* Room for @len bytes more, which are not to be had from the segments. */
static struct heap_segment *grow(struct heap *h, const struct area *a,
				 uint64_t len)
{
	struct heap_segment *g = &h->segment[h->cnt];
	uint64_t left = h->max - h->len;
	uint64_t want = h->len ? h->len : SEGMENT_MIN;

	if (len > left || h->cnt == HEAP_SEGMENTS)
		return NULL;
	len = round_up(len, kedge__page_size());
	want = want < left ? want : left;
	/* The last one takes all that is left. */
	if (h->cnt == HEAP_SEGMENTS - 1)
		want = left;
	g->len = want > len ? want : len;
	g->off = h->len;
	if (pages_init(&g->pages, g->len))
		return NULL;
	g->at = area_map(a, HEAP_AT + g->off, g->len);
	if (!g->at) {
		pages_fini(&g->pages);
		return NULL;
	}
	h->len += g->len;
	h->cnt++;
	return g;
}

void *heap_alloc(struct heap *h, const struct area *a, size_t len)
{
	struct heap_segment *g;
	uint64_t off;

	for (g = h->segment; g < h->segment + h->cnt; g++) {
		off = pages_get(&g->pages, len);
		if (off != NO_PAGES)
			return g->at + off;
	}
	g = grow(h, a, len);
	return g ? g->at + pages_get(&g->pages, len) : NULL;
}

void heap_free(struct heap *h, void *p)
{
	struct heap_segment *g;

	for (g = h->segment; g < h->segment + h->cnt; g++)
		if ((uintptr_t)p - (uintptr_t)g->at < g->len)
			pages_put(&g->pages,
				  (uint64_t)((char *)p - g->at));
}

void heap_fini(struct heap *h)
{
	struct heap_segment *g;

	for (g = h->segment; g < h->segment + h->cnt; g++) {
		pages_fini(&g->pages);
		if (g->at)
			munmap(g->at, g->len);
	}
	h->cnt = 0;
}
