// SPDX-License-Identifier: BSD-2-Clause
/*
 * The places of the pages of extents: munmap() cuts pieces, mremap() moves them, and what is
 * private again is no piece any more. When the rest is made private, no other mapping is
 * touched than those.
 */
#include "segment/internal.h"

struct piece *piece_add(uintptr_t at, size_t len, uint32_t extent, uint64_t off)
{
	struct piece *p;
	uint32_t i;

	/* It was found, and moved there as the kernel says later. */
	for (p = seg->piece; p < seg->piece + seg->piece_max; p++)
		if (p->len == len && p->at == at && p->off == off && p->extent == extent)
			return p;
	for (i = 0; i < PIECES && seg->piece[i].len; i++)
		;
	if (i == PIECES)
		return NULL;
	seg->piece[i] = (struct piece){ at, len, off, extent };
	if (i >= seg->piece_max)
		seg->piece_max = i + 1;
	return &seg->piece[i];
}

static bool overlaps(const struct piece *p, uint32_t extent, uintptr_t start, uintptr_t end)
{
	return p->len && p->extent == extent && p->at < end && start < p->at + p->len;
}

void piece_part(const struct piece *p, uintptr_t start, uintptr_t end, struct piece *part)
{
	*part = *p;
	if (start > p->at) {
		part->at = start;
		part->off += start - p->at;
		part->len -= start - p->at;
	}
	if (end < p->at + p->len)
		part->len = end - part->at;
}

struct piece *piece_next(struct piece *p, uint32_t extent, uintptr_t start, uintptr_t end)
{
	for (p = p ? p + 1 : seg->piece; p < seg->piece + seg->piece_max; p++)
		if (overlaps(p, extent, start, end))
			return p;
	return NULL;
}

uint64_t piece_there_until(uint32_t extent, uint64_t off)
{
	const struct piece *p = seg->piece;

	while (p < seg->piece + seg->piece_max) {
		if (p->len && p->extent == extent && p->off <= off &&
		    off < p->off + p->len && p->at - p->off == seg->extent[extent].at) {
			off = p->off + p->len;
			p = seg->piece;
		} else {
			p++;
		}
	}
	return off;
}

uint64_t piece_there_from(uint32_t extent, uint64_t off)
{
	const struct piece *p = seg->piece;

	while (p < seg->piece + seg->piece_max) {
		if (p->len && p->extent == extent && p->off < off &&
		    off <= p->off + p->len && p->at - p->off == seg->extent[extent].at) {
			off = p->off;
			p = seg->piece;
		} else {
			p++;
		}
	}
	return off;
}

int piece_at(uintptr_t at, uintptr_t *until)
{
	const struct piece *p;
	uintptr_t base;

	for (p = seg->piece; p < seg->piece + seg->piece_max; p++) {
		if (!p->len || at < p->at || at - p->at >= p->len)
			continue;
		base = seg->extent[p->extent].at;
		/* One that is left is to be private. */
		if (p->at - p->off != base || seg->extent[p->extent].left)
			continue;
		*until = base + piece_there_until(p->extent, at - base);
		return (int)p->extent;
	}
	return -1;
}

/* If there is no room, the end is not looked after any more: it stays shared. */
struct piece *piece_take(struct piece *p, const struct piece *part)
{
	const struct piece whole = *p;
	uintptr_t end = part->at + part->len;

	p->len = part->at - whole.at;
	return end < whole.at + whole.len
		       ? piece_add(end, whole.at + whole.len - end, whole.extent,
				   part->off + part->len)
		       : NULL;
}

bool piece_cut(uint32_t extent, uintptr_t start, uintptr_t end, struct piece *part)
{
	struct piece *p = piece_next(NULL, extent, start, end);

	if (!p)
		return false;
	piece_part(p, start, end, part);
	piece_take(p, part);
	return true;
}
