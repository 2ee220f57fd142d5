// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process that attaches the owner's ranges, looks at them until it is told that
 * they have changed, and asks anew. An error is no finding: the segment may have
 * ended meanwhile, or its owner.
 */
#include <unistd.h>

#include "tools/torture/segment/storm.h"

#define LOOKS 2000u

/* The owner's numbers and what may be zeros, as they are before a look. */
struct before {
	uint64_t epoch, changes, said;
	bool by_address;
};

static void judge(struct storm *s, const struct storm_range *r, const struct before *b,
		  size_t page, uint64_t first, uint64_t last)
{
	const unsigned int index = (unsigned int)(r - s->range);

	/* The owner's bytes at those addresses are right, zeros as well. */
	if (b->by_address &&
	    (b->changes % 2 || b->changes != atomic_load(&r->changes)))
		return;
	/* Another owner's numbers go on from there. */
	if (b->epoch != atomic_load(&s->epoch))
		return;
	if (first < b->said || last < b->said)
		storm_wrong(s, &s->stale, "range %u, page %zu: valid, and has %llu and %llu "
			    "where the owner had said %llu", index, page,
			    (unsigned long long)first, (unsigned long long)last,
			    (unsigned long long)b->said);
	else if (first < last)
		storm_wrong(s, &s->torn, "range %u, page %zu: valid, and has %llu without the "
			    "%llu that was stored before", index, page,
			    (unsigned long long)last, (unsigned long long)first);
}

static void look(struct storm *s, const struct storm_range *r, struct kedge_attachment *a,
		 uint64_t epoch, bool later)
{
	void *mem = kedge_segment_addr(a);
	uint64_t first, last;
	struct before b;
	unsigned int n;
	size_t page;

	for (n = 0; n < LOOKS && !atomic_load(&s->over); n++) {
		page = n % STORM_PAGES;
		b.epoch = epoch;
		b.by_address = later || atomic_load(&s->by_address);
		b.changes = atomic_load(&r->changes);
		b.said = atomic_load(&r->said);
		last = __atomic_load_n(storm_last(s, mem, page), __ATOMIC_ACQUIRE);
		first = __atomic_load_n(storm_first(s, mem, page), __ATOMIC_ACQUIRE);
		if (!kedge_segment_valid(a)) {
			atomic_fetch_add(&s->changed, 1);
			return;
		}
		atomic_fetch_add_explicit(&s->looks, 1, memory_order_relaxed);
		judge(s, r, &b, page, first, last);
	}
}

/* The segment that a range is, if it is one. */
static bool id_of(const struct storm_range *r, struct kedge_segment_id *id, bool *later)
{
	uint64_t seq = atomic_load(&r->seq);
	bool there = atomic_load(&r->there);

	id->word[0] = atomic_load(&r->id[0]);
	id->word[1] = atomic_load(&r->id[1]);
	*later = atomic_load(&r->later);
	return there && seq % 2 == 0 && seq == atomic_load(&r->seq);
}

/* A page of it first: all of it is several parts then. */
static void attach_page(struct storm *s, struct kedge_grant *g, size_t page)
{
	struct kedge_attachment *a;

	if (!kedge_segment_attach(g, page * s->page, s->page, KEDGE_ATTACH_KEEP, &a))
		kedge_segment_detach(a);
}

static void visit(struct storm *s, const struct storm_range *r, unsigned int turn)
{
	uint64_t epoch = atomic_load(&s->epoch);
	struct kedge_attachment *a;
	struct kedge_segment_id id;
	struct kedge_grant *g;
	bool later;

	if (!id_of(r, &id, &later) || kedge_segment_get(&id, KEDGE_SEGMENT_READ, &g))
		return;
	if (later && turn % 2)
		attach_page(s, g, turn % STORM_PAGES);
	if (!kedge_segment_attach(g, 0, STORM_PAGES * s->page, KEDGE_ATTACH_KEEP, &a)) {
		atomic_fetch_add(&s->attachments, 1);
		look(s, r, a, epoch, later);
		kedge_segment_detach(a);
	}
	kedge_segment_release(g);
}

int storm_attach(struct storm *s, unsigned int index)
{
	unsigned int i = index;

	while (!atomic_load(&s->over)) {
		visit(s, &s->range[i % STORM_RANGES], i / STORM_RANGES);
		i++;
		usleep(50);
	}
	return 0;
}
