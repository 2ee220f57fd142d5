// SPDX-License-Identifier: BSD-2-Clause
/*
 * A queue is the set of a user's watches that have something to tell, oldest
 * first: those of a cache, or those of kedge_watch_add(). Each tells it once, as
 * the smallest range that holds all that happened to it, so a queue cannot
 * overflow.
 */
#include <unistd.h>

#include "notify/internal.h"

static void append(struct watch *w)
{
	struct queue *q = w->queue;

	w->next = NULL;
	w->prev = q->last;
	if (q->last)
		q->last->next = w;
	else
		q->first = w;
	q->last = w;
	w->pending = true;
}

void queue_forget(struct watch *w)
{
	struct queue *q = w->queue;

	if (!w->pending)
		return;
	if (w->prev)
		w->prev->next = w->next;
	else
		q->first = w->next;
	if (w->next)
		w->next->prev = w->prev;
	else
		q->last = w->prev;
	w->pending = false;
}

void queue_tell(struct watch *w, uint32_t kind, uint64_t start, uint64_t end,
		uint64_t generation)
{
	const uint32_t plain = kind & ~(KIND_UNSEEN | KIND_POSSIBLE | KIND_PUBLIC);

	if (!w->pending) {
		append(w);
		w->start = start;
		w->end = end;
		w->kinds = 0;
		w->unsure = false;
		w->gaps = false;
	}
	w->gaps |= start > w->end || end < w->start;
	w->kinds |= 1u << plain;
	w->unsure |= kind != plain || kind == KEDGE_EVENT_OTHER;
	/* The mapping may still be there, and be moved later. */
	if (kind & KIND_UNSEEN)
		w->kinds |= 1u << KEDGE_EVENT_OTHER;
	if (start < w->start)
		w->start = start;
	if (end > w->end)
		w->end = end;
	w->kind = plain;
	w->generation = generation;
}

/*
 * Tell every watch on [start, end). The generation that the next step of the
 * counter will bring is what the events carry; the caller makes that step with
 * the lock still held. Returns how many watches were told.
 */
size_t queue_publish(struct kedge_notifier *nf, uint32_t kind, uint64_t start,
		     uint64_t end)
{
	uint64_t now = atomic_load_explicit(&nf->page->generation,
					    memory_order_relaxed) & ~1ull;
	struct tree_node *n;
	size_t told = 0;

	incoming_forget(nf, start, end);
	incoming_settle(nf);
	for (n = tree_first_overlap(&nf->watches, start, end); n;
	     n = tree_next_overlap(n, start, end)) {
		struct watch *w = container_of(n, struct watch, node);

		if (kind & KIND_PUBLIC && w->queue != &nf->queue)
			continue;
		queue_tell(w, kind,
			   start > n->start ? start : n->start,
			   end < n->end ? end : n->end,
			   now + GENERATION_STEP + nf->trips_seen);
		told++;
	}
	nf->events += told;
	nf->fd_due = nf->fd_due || told;
	return told;
}

/* The tripwire moved: something happened somewhere that has no event. */
void queue_check_trips(struct kedge_notifier *nf)
{
	uint64_t trips = __atomic_load_n(nf->head.trips, __ATOMIC_ACQUIRE);

	if (trips == nf->trips_seen)
		return;
	nf->trips_seen = trips;
	queue_publish(nf, KEDGE_EVENT_OTHER, 0, UINT64_MAX);
	armed_cut(nf, 0, UINT64_MAX);
}

void queue_signal(struct kedge_notifier *nf)
{
	if (!nf->fd_wanted || nf->fd_signalled || !nf->fd_due ||
	    !fd_same(nf->pipe[1], &nf->pipe_id))
		return;
	/* The pipe holds one byte at the most, so it is never full. */
	nf->fd_signalled = write(nf->pipe[1], "", 1) == 1;
	nf->fd_due = false;
}

static void unsignal(struct kedge_notifier *nf)
{
	char byte;

	nf->fd_due = false;
	if (nf->fd_signalled && fd_same(nf->pipe[0], &nf->pipe_id) &&
	    read(nf->pipe[0], &byte, 1) == 1)
		nf->fd_signalled = false;
}

size_t queue_pop(struct queue *q, struct taken *out, size_t max)
{
	size_t n = 0;

	while (n < max && q->first) {
		struct watch *w = q->first;

		queue_forget(w);
		out[n++] = (struct taken){ w, w->cookie, w->kind,
					   w->kinds, w->unsure, w->gaps, w->start, w->end,
					   w->generation };
	}
	return n;
}

/* For a queue that is ours, not the kernel's. */
static size_t take_own(struct kedge_notifier *nf, struct queue *q,
		       struct taken *out, size_t max, uint64_t *drained)
{
	size_t n;

	queue_check_trips(nf);
	n = queue_pop(q, out, max);
	*drained = 0;
	if (!q->first) {
		/* While public watches wait, the descriptor stays readable. */
		if (!nf->queue.first)
			unsignal(nf);
		*drained = atomic_load_explicit(&nf->page->generation,
						memory_order_relaxed) +
			   nf->trips_seen;
	}
	return n;
}

size_t notify_take(struct kedge_notifier *nf, struct queue *q,
		   struct taken *out, size_t max, uint64_t *drained)
{
	size_t n;

	sig_lock(&nf->lock);
	n = nf->ops->take ? nf->ops->take(nf, q, out, max, drained)
			  : take_own(nf, q, out, max, drained);
	sig_unlock(&nf->lock);
	return n;
}
