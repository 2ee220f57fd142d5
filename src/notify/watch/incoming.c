// SPDX-License-Identifier: BSD-2-Clause
/*
 * Watches that are added without the notifier's lock.
 *
 * The lock is held with signals blocked, which takes two system calls: more than all else that a
 * cache does at a miss in memory which is watched already. So such a watch is put on a list, and
 * whoever takes the lock to look at the watches puts that into the tree first. The notifier keeps
 * one range for which the look that follows would find what is wanted: it is armed, not tainted.
 *
 * Proof that a watch and a change cannot miss each other. The thread that adds puts the watch on
 * the list (A1), then reads the version (A2). The handler of a change there makes the version odd
 * (H1), then empties the list (H2); all four are seq_cst. If A2 finds the version of before H1,
 * A1 is before H2 in their order: the watch is in the tree, and is told. If A2 finds an odd one,
 * the caller takes the lock, and finds what the change left. If it finds a later even one, the
 * range was found to be armed and untainted after that change was handled.
 *
 * The reads of the range lie between two reads of one even version, so they are of that version: it
 * is odd while they are written, and release and acquire order them.
 */
#include "notify/internal.h"

#define MOST 64 /* the change that finds them on the list waits until they are in the tree */

void incoming_init(struct incoming *in)
{
	atomic_init(&in->version, 1);
}

/* Tests change the mapping here. */
__attribute__((weak, noinline)) void incoming_pushed(void)
{
}

__attribute__((weak, noinline)) void incoming_read(void)
{
}

static void push(struct incoming *in, struct watch *w)
{
	struct watch *first = atomic_load_explicit(&in->first, memory_order_relaxed);

	do
		w->next = first;
	while (!atomic_compare_exchange_weak(&in->first, &first, w));
}

static bool is_known(const struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	const struct incoming *in = &nf->incoming;
	uint64_t version = atomic_load_explicit(&in->version, memory_order_acquire);
	bool known;

	if (version & 1)
		return false;
	known = start >= atomic_load_explicit(&in->start, memory_order_acquire) &&
		end <= atomic_load_explicit(&in->end, memory_order_acquire) &&
		__atomic_load_n(nf->head.trips, __ATOMIC_ACQUIRE) ==
			atomic_load_explicit(&in->trips, memory_order_acquire);
	incoming_read();
	return known && atomic_load(&in->version) == version;
}

bool incoming_add(struct kedge_notifier *nf, struct watch *w)
{
	struct incoming *in = &nf->incoming;

	push(in, w);
	incoming_pushed();
	return atomic_fetch_add_explicit(&in->cnt, 1, memory_order_relaxed) < MOST &&
	       is_known(nf, w->node.start, w->node.end);
}

/* The last added is the first on the list, and the oldest is to be told first. */
static struct watch *reversed(struct watch *w)
{
	struct watch *before = NULL, *next;

	for (; w; w = next) {
		next = w->next;
		w->next = before;
		before = w;
	}
	return before;
}

void incoming_settle(struct kedge_notifier *nf)
{
	struct watch *w, *next;

	if (!atomic_load(&nf->incoming.first))
		return;
	atomic_store_explicit(&nf->incoming.cnt, 0, memory_order_relaxed);
	w = reversed(atomic_exchange(&nf->incoming.first, NULL));
	for (; w; w = next) {
		next = w->next;
		tree_insert(&nf->watches, &w->node);
	}
}

void incoming_know(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct incoming *in = &nf->incoming;

	if (nf->taint_cnt)
		return;
	incoming_forget(nf, 0, UINT64_MAX);
	/* Release: whoever finds one of them finds the version odd. */
	atomic_store_explicit(&in->start, start, memory_order_release);
	atomic_store_explicit(&in->end, end, memory_order_release);
	atomic_store_explicit(&in->trips, nf->trips_seen, memory_order_release);
	atomic_fetch_add(&in->version, 1);
}

void incoming_forget(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct incoming *in = &nf->incoming;

	if (atomic_load_explicit(&in->version, memory_order_relaxed) & 1 ||
	    atomic_load_explicit(&in->start, memory_order_relaxed) >= end ||
	    atomic_load_explicit(&in->end, memory_order_relaxed) <= start)
		return;
	atomic_fetch_add(&in->version, 1);
}
