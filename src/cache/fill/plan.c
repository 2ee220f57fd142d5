// SPDX-License-Identifier: BSD-2-Clause
/*
 * The range that a miss registers: what was asked for, and neighbours that one
 * registration may serve along with it.
 */
#include "cache/internal.h"

/*
 * True if a neighbour is worth registering again along with [p->start, p->end).
 * Only one that is no longer than that: so a page is registered again at most
 * once each time its region doubles, however small the steps.
 */
static bool worth_merging(struct kedge_cache *c, const struct plan *p,
			  const struct region *r)
{
	uint64_t start = r->mr.addr, end = start + r->mr.len;
	uint64_t low = start < p->start ? start : p->start;
	uint64_t high = end > p->end ? end : p->end;

	if (!is_whole(state_of(r)) || r->mr.access != p->access)
		return false;
	if (end < p->start || start > p->end || r->mr.len > p->end - p->start)
		return false;
	return high - low <= c->merge_bytes &&
	       (!c->attr.max_len || high - low <= c->attr.max_len);
}

/* Take in the neighbour that the page at @at belongs to. */
static bool merge_at(struct kedge_cache *c, struct plan *p, uint64_t at)
{
	uint32_t id = index_find(c, at);
	struct region *r = &c->regions[id];

	if (!id || !worth_merging(c, p, r))
		return false;
	if (r->mr.addr >= p->start && r->mr.addr + r->mr.len <= p->end)
		return false;
	if (r->mr.addr < p->start)
		p->start = r->mr.addr;
	if (r->mr.addr + r->mr.len > p->end)
		p->end = r->mr.addr + r->mr.len;
	p->merged = true;
	return true;
}

/* The whole region that has @at, or NULL. */
static const struct region *whole_at(const struct kedge_cache *c, uint64_t at)
{
	const struct region *r = &c->regions[index_find(c, at)];

	return is_whole(state_of(r)) && at >= r->mr.addr && at < r->mr.addr + r->mr.len
		       ? r
		       : NULL;
}

/* The end of the whole regions with that access that are adjacent from @at on, within @limit. */
static uint64_t adjacent_up(const struct kedge_cache *c, uint64_t at, uint64_t limit,
			    uint32_t access)
{
	const struct region *r;

	while (at < limit && (r = whole_at(c, at)) && r->mr.access == access &&
	       r->mr.addr + r->mr.len <= limit)
		at = r->mr.addr + r->mr.len;
	return at;
}

/* Downwards. */
static uint64_t adjacent_down(const struct kedge_cache *c, uint64_t at, uint64_t limit,
			      uint32_t access)
{
	const struct region *r;

	while (at > limit && (r = whole_at(c, at - 1)) && r->mr.access == access &&
	       r->mr.addr >= limit)
		at = r->mr.addr;
	return at;
}

/* The smallest block of a power of two of chunks that has the range. */
static void block_of_range(const struct kedge_cache *c, const struct want *w, uint64_t *low,
			   uint64_t *high)
{
	uint64_t size = c->chunk_bytes;

	while (round_down(w->start, size) + size < w->end)
		size *= 2;
	*low = round_down(w->start, size);
	*high = *low + size;
}

/*
 * A range over the border of chunks that are all registered: one registration for
 * them, or each range over that border would have its own. It takes in what is
 * adjacent in the block, so that each page is registered again at most once each
 * time the blocks double. For a while the chunks are registered, too: where there
 * is no room for both the range is registered alone, and no region goes for it.
 */
static void join(const struct kedge_cache *c, const struct want *w, struct plan *p)
{
	const struct region *r = whole_at(c, w->start);
	uint64_t low, high, start, end;

	if (!r || w->access & ~r->mr.access || r->mr.addr + r->mr.len >= w->end ||
	    w->end >> ADDR_BITS)
		return;
	block_of_range(c, w, &low, &high);
	end = adjacent_up(c, r->mr.addr, high, r->mr.access);
	start = adjacent_down(c, r->mr.addr, low, r->mr.access);
	if (end < w->end || start < low || over_limit(c, end - start) ||
	    (c->attr.max_len && end - start > c->attr.max_len))
		return;
	p->start = start;
	p->end = end;
	p->access = r->mr.access;
	p->merged = true;
	p->joined = true;
}

void make_plan(struct kedge_cache *c, const struct want *w, struct plan *p)
{
	uint32_t id = index_find(c, w->start);
	struct region *r = &c->regions[id];

	*p = (struct plan){ .start = w->start, .end = w->end,
			    .access = w->access, .keep = true };
	if (w->lend) {
		p->keep = false;
		return;
	}
	/*
	 * Asked for both ways: one registration that serves both. Not where
	 * it has holes: what is mapped there now was not asked for that way.
	 */
	if (id && region_serves(c, r, w->start, w->end, 0, TRUST_ALL))
		p->access |= r->mr.access;
	if (!w->merge || w->trust == TRUST_NONE)
		return;
	join(c, w, p);
	while ((p->start && merge_at(c, p, p->start - 1)) ||
	       merge_at(c, p, p->end))
		;
}
