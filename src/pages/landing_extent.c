// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/base.h"
#include "pages/landing_priv.h"
#include "pages/swap.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

struct extent *extent_map(uint32_t cnt)
{
	struct extent *e = calloc(1, sizeof(*e) + cnt);
	size_t unit = pages_huge_len();

	if (!e)
		return NULL;
	list_init(&e->node);
	e->cnt = cnt;
	e->area_len = (size_t)(cnt + 1) * unit;
	e->area = mmap(NULL, e->area_len, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
	if (e->area == MAP_FAILED) {
		free(e);
		return NULL;
	}
	e->base = (char *)round_up((uintptr_t)e->area, unit);
	madvise(e->area, e->area_len, MADV_HUGEPAGE);
	/* A page shared with a child could not be swapped. */
	madvise(e->area, e->area_len, MADV_DONTFORK);
	return e;
}

void extent_unmap(struct extent *e)
{
	char *from = e->area, *end = e->area + e->area_len, *at;
	size_t unit = pages_huge_len();
	uint32_t i;

	for (i = 0; i < e->cnt; i++) {
		if (e->block[i] != BLOCK_LOST)
			continue;
		at = block_at(e, i, unit);
		if (at > from)
			munmap(from, (size_t)(at - from));
		from = at + unit;
	}
	if (from < end)
		munmap(from, (size_t)(end - from));
	free(e);
}

uint32_t extent_count(const struct extent *e, enum block what)
{
	uint32_t i, n = 0;

	for (i = 0; i < e->cnt; i++)
		n += e->block[i] == what;
	return n;
}

bool extent_idle(const struct extent *e)
{
	return !extent_count(e, BLOCK_MAKING) &&
	       !extent_count(e, BLOCK_EMPTYING) && !extent_count(e, BLOCK_LENT);
}

bool extent_bare(const struct extent *e)
{
	return extent_count(e, BLOCK_FREE) + extent_count(e, BLOCK_LOST) ==
	       e->cnt;
}

static bool fits(enum block b, int take)
{
	return b == BLOCK_READY || (b == BLOCK_FREE && take >= TAKE_FREE) ||
	       (b == BLOCK_USED && take >= TAKE_USED);
}

uint32_t extent_run(const struct extent *e, uint32_t cnt, int take)
{
	uint32_t i, run = 0;

	for (i = 0; i < e->cnt; i++) {
		run = fits(e->block[i], take) ? run + 1 : 0;
		if (run == cnt)
			return i + 1 - cnt;
	}
	return e->cnt;
}

bool block_empty(const struct extent *e, uint32_t i)
{
	size_t unit = pages_huge_len();
	char *at = block_at(e, i, unit);

	if (mmap(at, unit, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		return !madvise(at, unit, MADV_DONTNEED);
	madvise(at, unit, MADV_HUGEPAGE);
	madvise(at, unit, MADV_DONTFORK);
	return true;
}

bool block_make(const struct extent *e, uint32_t i, bool *single)
{
	size_t unit = pages_huge_len();
	char *at = block_at(e, i, unit), *page;

	if (madvise(at, unit, MADV_POPULATE_WRITE)) {
		if (errno != EINVAL)
			return false;
		/* Linux before 5.14 */
		for (page = at; page < at + unit; page += kedge__page_size())
			*(volatile char *)page = 0;
	}
	*single = pages_kind(at, unit) != PAGES_HUGE;
	return true;
}

void block_lose(const struct extent *e, uint32_t i)
{
	size_t unit = pages_huge_len();
	char *at = block_at(e, i, unit);

	/* No mapping to be had: only its pages go. */
	if (mmap(at, unit, PROT_NONE, FLAGS | MAP_FIXED, -1, 0) == MAP_FAILED)
		madvise(at, unit, MADV_DONTNEED);
}
