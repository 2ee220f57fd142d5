// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whole pages of a range: a bit says whether a page is in use, and the first
 * page of what was given out how long it is. Searched from where the last
 * search ended.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "channel/shm.h"

int heap_init(struct heap *h, char *base, uint64_t len)
{
	h->base = base;
	h->len = round_down(len, kedge__page_size());
	h->page_cnt = h->len / kedge__page_size();
	h->next = 0;
	h->used = calloc(h->page_cnt / 64 + 1, sizeof(*h->used));
	h->pages = calloc(h->page_cnt + 1, sizeof(*h->pages));
	if (h->used && h->pages)
		return 0;
	heap_fini(h);
	return -ENOMEM;
}

void heap_fini(struct heap *h)
{
	free(h->used);
	free(h->pages);
	h->used = NULL;
	h->pages = NULL;
}

static bool is_used(const struct heap *h, uint64_t page)
{
	return h->used[page / 64] >> page % 64 & 1;
}

static void mark(struct heap *h, uint64_t page, uint64_t cnt, bool used)
{
	for (; cnt; page++, cnt--)
		if (used)
			h->used[page / 64] |= (uint64_t)1 << page % 64;
		else
			h->used[page / 64] &= ~((uint64_t)1 << page % 64);
}

/* The first of @cnt free pages in [from, to), or @to. */
static uint64_t find(const struct heap *h, uint64_t from, uint64_t to,
		     uint64_t cnt)
{
	uint64_t page = from, run = 0;

	while (page < to) {
		if (!(page % 64) && h->used[page / 64] == UINT64_MAX) {
			run = 0;
			page += 64;
			continue;
		}
		run = is_used(h, page) ? 0 : run + 1;
		page++;
		if (run == cnt)
			return page - cnt;
	}
	return to;
}

void *heap_alloc(struct heap *h, size_t len)
{
	uint64_t cnt = len / kedge__page_size() + !!(len % kedge__page_size());
	uint64_t page, end = h->page_cnt;

	if (!cnt || cnt > end)
		return NULL;
	page = find(h, h->next, end, cnt);
	if (page == end)
		page = find(h, 0, end, cnt);
	if (page == end)
		return NULL;
	mark(h, page, cnt, true);
	h->pages[page] = (uint32_t)cnt;
	h->next = page + cnt;
	return h->base + page * kedge__page_size();
}

void heap_free(struct heap *h, void *p)
{
	uint64_t page = (uint64_t)((char *)p - h->base) / kedge__page_size();

	mark(h, page, h->pages[page], false);
	h->pages[page] = 0;
}
