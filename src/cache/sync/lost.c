// SPDX-License-Identifier: BSD-2-Clause
/* The pages that events took from regions, for resync.c to register again. */
#include "cache/internal.h"

/* The chunks of a region that [start, end) touches. */
static void widen(const struct kedge_cache *c, const struct region *r,
		  struct lost *l)
{
	uint64_t end = r->mr.addr + r->mr.len, size = c->chunk_bytes;

	l->start = round_down(l->start, size);
	l->end = round_up(l->end, size);
	if (l->start < r->mr.addr)
		l->start = r->mr.addr;
	if (l->end > end)
		l->end = end;
}

static struct lost *lost_slot(struct kedge_cache *c)
{
	if (c->lost_cnt < LOST_MAX)
		return &c->lost[c->lost_cnt++];
	c->lost_next = (c->lost_next + 1) % LOST_MAX;
	return &c->lost[c->lost_next];
}

void lost_note(struct kedge_cache *c, const struct region *r, uint64_t start,
	       uint64_t end)
{
	struct lost l = { start, end, r->mr.access, region_id(c, r) };
	uint32_t i, newest = c->lost_cnt < 8 ? c->lost_cnt : 8;

	widen(c, r, &l);
	/* One chunk is often hit many times in a row. */
	for (i = c->lost_cnt - newest; i < c->lost_cnt; i++)
		if (c->lost[i].id == l.id && c->lost[i].start <= l.start &&
		    c->lost[i].end >= l.end)
			return;
	*lost_slot(c) = l;
}
