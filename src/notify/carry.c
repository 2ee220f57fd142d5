// SPDX-License-Identifier: BSD-2-Clause
/*
 * Watches that go along with pages.
 *
 * A registration names pages. Where they are moved, it is one of the new addresses,
 * if they are still there when those are watched; and a watch that is added after
 * the move cannot know. One that is added before is told of the move itself. So
 * each backend has to tell the mover's own change from the others'.
 *
 * ummunot: the watch is added over the new addresses before the move, quiet for the
 * mover's thread until it is over. Whatever another thread does there is told.
 *
 * userfaultfd: the watch is one of the old addresses, which are armed. mremap() takes
 * the kernel's registration along with the mapping, within the lock of the address
 * space, and reports it; the monitor moves the watch (carry_follow()). So there is no
 * moment at which the pages are mapped and not reported on. The events of other threads
 * come in any order with that one: those that are read before it find the guard, a
 * watch over the new addresses that is in the tree since before the move; those read
 * after it find the watch. The own change has no event for the new addresses, because
 * the announcement had the kernel let go of them; where another thread has armed them
 * since, it has one, the guard is told, and the registration is not kept, which is only
 * slow. Without the guard an event read before the move's would be lost on all
 * watches; without the arming before it a change right after the move had none.
 *
 * hooks: as with userfaultfd, and the watch is moved at the end: what others do is
 * announced before they do it, so a change that was made after the move either was
 * announced after begin(), and is told to the guard, or before, and is counted then.
 *
 * Announced changes of others that began before: as in notify_watch_add() they
 * make it unsure, the own one apart. So do pages of the new addresses that were on
 * their way out (taint.c).
 */
#include "notify/carry.h"
#include "notify/announce/announce.h"

int notify_carry_watch(struct carry *k, struct kedge_notifier *nf,
		       struct watch *w, uint64_t start, uint64_t end)
{
	struct own_range own = { start, end };

	*k = (struct carry){ .nf = nf, .watch = w, .old_start = start,
			     .old_end = end };
	k->guard.queue = &k->told;
	if (nf->ops->add)
		return nf->ops->add_quiet ? 0 : -EOPNOTSUPP;
	return notify_watch_add(nf, w, start, end, own);
}

/* ---- where the kernel keeps the watches ---- */

static void begin_in_kernel(struct carry *k)
{
	struct kedge_notifier *nf = k->nf;
	struct watch *w = k->watch;

	w->node.start = k->to;
	w->node.end = k->to + k->len;
	w->pending = false;
	sig_lock(&nf->lock);
	k->carried = !nf->ops->add_quiet(nf, w);
	if (k->carried)
		tree_insert(&nf->watches, &w->node);
	sig_unlock(&nf->lock);
}

/* An event of another's stays in the kernel's queue, for the watch's owner to find. */
static bool end_in_kernel(struct carry *k)
{
	struct kedge_notifier *nf = k->nf;
	bool ok = false;

	if (!k->carried)
		return false;
	sig_lock(&nf->lock);
	ok = !nf->ops->end_quiet(nf, k->watch);
	sig_unlock(&nf->lock);
	if (!ok)
		notify_watch_remove(nf, k->watch, false);
	return ok;
}

/* ---- where they are ours ---- */

/* With the lock held: the watch has the new addresses. */
static void go_along(struct carry *k)
{
	struct kedge_notifier *nf = k->nf;

	incoming_settle(nf);
	tree_remove(&nf->watches, &k->watch->node);
	k->watch->node.start = k->to;
	k->watch->node.end = k->to + k->len;
	tree_insert(&nf->watches, &k->watch->node);
	k->carried = true;
}

void carry_follow(struct kedge_notifier *nf, uint64_t from, uint64_t to,
		  uint64_t len)
{
	struct carry *k;

	for (k = nf->carries; k; k = k->next) {
		if (k->from != from || k->to != to || k->len != len ||
		    k->carried)
			continue;
		go_along(k);
		armed_add(nf, to, to + len);
		return;
	}
}

void notify_carry_begin(struct carry *k, uint64_t from, uint64_t to,
			uint64_t len)
{
	struct kedge_notifier *nf = k->nf;

	k->from = from;
	k->to = to;
	k->len = len;
	k->began = true;
	if (nf->ops->add) {
		begin_in_kernel(k);
		return;
	}
	k->guard.node.start = to;
	k->guard.node.end = to + len;
	announce_watch(to, to + len);
	sig_lock(&nf->lock);
	queue_check_trips(nf);
	tree_insert(&nf->watches, &k->guard.node);
	k->unsure = taint_serial(nf, to, to + len);
	k->next = nf->carries;
	nf->carries = k;
	sig_unlock(&nf->lock);
	if (k->unsure)
		k->unsure = !taint_over(nf, to, to + len);
	/* The heap is not to be watched by hooks. */
	if (nf->ops->announced_only && nf->ops->arm(nf, to, to + len))
		k->unsure = true;
	/* After announce_watch(): the proof in announce.c. */
	if (announce_active_beside(to, to + len))
		k->unsure = true;
}

/* With the lock held. */
static void take_out(struct carry *k)
{
	struct carry **at = &k->nf->carries;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	tree_remove(&k->nf->watches, &k->guard.node);
}

static bool end_here(struct carry *k)
{
	struct kedge_notifier *nf = k->nf;
	bool ok;

	sig_lock(&nf->lock);
	queue_check_trips(nf);
	if (nf->ops->announced_only && !k->unsure)
		go_along(k);
	take_out(k);
	ok = k->carried && !k->unsure && !k->guard.pending;
	queue_forget(&k->guard);
	sig_unlock(&nf->lock);
	/* The watch has the guard's count, if it has its addresses. */
	if (k->carried)
		announce_unwatch(k->old_start, k->old_end);
	else
		announce_unwatch(k->to, k->to + k->len);
	return ok;
}

bool notify_carry_end(struct carry *k)
{
	bool ok;

	if (k->nf->ops->add)
		return end_in_kernel(k);
	ok = k->began && end_here(k);
	if (!ok)
		notify_watch_remove(k->nf, k->watch, false);
	return ok;
}
