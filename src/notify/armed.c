// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ranges that the kernel reports on for this notifier, as sets of disjoint
 * ranges:
 *
 * armed - what may be relied upon. For every byte: the kernel's mapping there
 *         is registered, or an event that names it is on its way (it is cut
 *         from this set when that is handled). Only ranges that somebody asked
 *         to watch enter it, after the mapping was found to be of the right
 *         kind with no cut in between.
 * registered - all that the kernel may have registered: the whole mappings in
 *         which armed ranges lie, and where mremap() took registered mappings.
 *         No conclusion rests on it; closing unregisters it, so that no
 *         munmap() waits for a reader that is gone.
 * whole - what an announced drop has let go of, in the pieces in which it was
 *         registered. Arming in one asks the kernel for that piece, without
 *         looking up first how far the mapping reaches. No conclusion rests on
 *         it: where it is wrong a mapping is split.
 * back  - what an announced change has taken from registered until it ends:
 *         rearm.c.
 *
 * Always whole mappings are registered, never a part: a registration that ends
 * within a mapping would split it, and then mremap() of the application's over
 * the seam fails with EFAULT, and 100,000 watched ranges would need more VMAs
 * than a process may have. The price is an event for the neighbours' munmap().
 */
#include "notify/internal.h"

#define WHOLE_MAX 1024

struct range {
	struct tree_node node;
};

static struct range *range_of(struct tree_node *n)
{
	return container_of(n, struct range, node);
}

static int set_insert(struct kedge_notifier *nf, struct tree *t, uint64_t start,
		      uint64_t end)
{
	struct range *r = slab_get(&nf->range_slab);

	if (!r)
		return -ENOMEM;
	r->node.start = start;
	r->node.end = end;
	tree_insert(t, &r->node);
	return 0;
}

static void set_drop(struct kedge_notifier *nf, struct tree *t,
		     struct tree_node *n)
{
	tree_remove(t, n);
	slab_put(&nf->range_slab, range_of(n));
}

/* Take [start, end) out of the set. Without memory it takes out more. */
static void set_cut(struct kedge_notifier *nf, struct tree *t, uint64_t start,
		    uint64_t end)
{
	struct tree_node *n;

	while ((n = tree_first_overlap(t, start, end))) {
		uint64_t tail = n->end;

		if (n->start < start)
			tree_resize(t, n, n->start, start);
		else
			set_drop(nf, t, n);
		if (tail > end)
			set_insert(nf, t, end, tail);
	}
}

/* Add [start, end), melting with what it touches. */
static int set_add(struct kedge_notifier *nf, struct tree *t, uint64_t start,
		   uint64_t end)
{
	uint64_t low = start ? start - 1 : 0, high = end + 1;
	struct tree_node *n, *first;

	first = tree_first_overlap(t, low, high);
	if (!first)
		return set_insert(nf, t, start, end);
	if (first->start < start)
		start = first->start;
	while ((n = tree_next_overlap(first, low, high))) {
		if (n->end > end)
			end = n->end;
		set_drop(nf, t, n);
	}
	if (first->end > end)
		end = first->end;
	tree_resize(t, first, start, end);
	return 0;
}

const struct tree_node *armed_whole(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct tree_node *n = tree_first_overlap(&nf->armed, start, end);

	/* Ranges that touch have melted, so all of it is in one node. */
	return n && n->start <= start && n->end >= end ? n : NULL;
}

/* Narrow [*start, *end) to the hull of what is not armed in it. */
void armed_first_gap(struct kedge_notifier *nf, uint64_t *start, uint64_t *end)
{
	struct tree_node *n = tree_first_overlap(&nf->armed, *start, *end);

	if (n && n->start <= *start)
		*start = n->end;
	n = tree_first_overlap(&nf->armed, *end - 1, *end);
	if (n && n->start > *start)
		*end = n->start;
}

void whole_add(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	/* Memory that went unannounced stays in it: so not without a bound. */
	if (nf->whole.cnt < WHOLE_MAX)
		set_add(nf, &nf->whole, start, end);
}

bool whole_find(struct kedge_notifier *nf, uint64_t start, uint64_t end,
		uint64_t *whole_start, uint64_t *whole_end)
{
	struct tree_node *n = tree_first_overlap(&nf->whole, start, end);

	if (!n || n->start > start || n->end < end)
		return false;
	*whole_start = n->start;
	*whole_end = n->end;
	return true;
}

void armed_add(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	/* A range that is not recorded is armed again at the next watch. */
	const struct tree_node *n;

	set_add(nf, &nf->armed, start, end);
	set_cut(nf, &nf->whole, start, end);
	n = armed_whole(nf, start, end);
	if (n)
		incoming_know(nf, n->start, n->end);
}

void armed_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	nf->cuts++;
	incoming_forget(nf, start, end);
	set_cut(nf, &nf->armed, start, end);
	set_cut(nf, &nf->whole, start, end);
}

/* So that the next registered_add(), with the lock held all the time, does not fail. */
int registered_room(struct kedge_notifier *nf)
{
	struct range *r = slab_get(&nf->range_slab);

	if (!r)
		return -ENOMEM;
	slab_put(&nf->range_slab, r);
	return 0;
}

int registered_add(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	return set_add(nf, &nf->registered, start, end);
}

int back_add(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	return set_add(nf, &nf->back, start, end);
}

void back_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	set_cut(nf, &nf->back, start, end);
}

void registered_cut(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	set_cut(nf, &nf->registered, start, end);
}

bool registered_overlaps(struct kedge_notifier *nf, uint64_t start,
			 uint64_t end)
{
	bool any;

	sig_lock_blocked(&nf->lock);
	any = tree_first_overlap(&nf->registered, start, end);
	sig_unlock_blocked(&nf->lock);
	return any;
}
