// SPDX-License-Identifier: BSD-2-Clause
/*
 * Changes of watched memory that are under way and that the generation does not
 * show yet.
 *
 * With level ordered an event is visible before the call that made the change
 * returns. In between, the kernel may hand the range to a second thread, and its
 * lookup would then find a generation that has not moved. Three things close
 * that window:
 *
 *  - the kernel module: its counter moves before the range is free;
 *  - libkedge-hooks: the generation moves before the change is made. That goes
 *    for memory that libc has handed out (origin.c); in other memory lookups ask;
 *  - asking: the backend asks the kernel, at each lookup, whether a change was
 *    begun and its event has not been read (ops->settled).
 *
 * page->asks says which. It only grows, under nf->lock, and each step moves the
 * generation: a cache that handled events under the old rule looks again.
 */
#include <sched.h>

#include "notify/announce/origin.h"
#include "notify/internal.h"

int nf_not_owned(void)
{
	return kedge_reason(-ECHILD,
			    "this belongs to the parent process: after fork "
			    "the child opens its own");
}

/* With nf->lock held. */
void notify_must_ask(struct kedge_notifier *nf, enum asks asks)
{
	if (atomic_load_explicit(&nf->page->asks, memory_order_relaxed) >= asks)
		return;
	atomic_store_explicit(&nf->page->asks, asks, memory_order_relaxed);
	/* release: a cache that sees the new generation sees the new rule. */
	atomic_fetch_add_explicit(&nf->page->generation, GENERATION_STEP,
				  memory_order_release);
}

bool notify_settled(struct kedge_notifier *nf)
{
	switch (nf_asks(nf)) {
	case ASKS_NOT:
		return true;
	case ASKS_KERNEL:
		return nf->ops->settled(nf);
	}
	return false;
}

/*
 * The event is read within microseconds, unless the monitor has to wait for a
 * CPU; and where others unmap without a pause there may always be one unread. A
 * caller that is told "false" can still register anew, which needs no promise,
 * so the wait is no longer than that takes. Between two changes of a thread that
 * makes them in a loop there is a moment of rest, which a spin meets; each
 * sched_yield() may last a time slice of another thread's.
 */
#define SETTLE_SPIN_NS 20000
#define SETTLE_MAX_NS  50000

enum trust notify_settle_asking(struct kedge_notifier *nf)
{
	uint64_t begun, passed;

	if (!nf->ops->settled)
		return nf_asks(nf) ? TRUST_NONE : TRUST_ALL;
	if (!nf->can_ask)
		return TRUST_NONE;
	for (begun = clock_ns(); nf_asks(nf) != ASKS_LOST;) {
		if (nf->ops->settled(nf))
			return TRUST_ALL;
		passed = clock_ns() - begun;
		if (passed >= SETTLE_MAX_NS)
			break;
		if (passed < SETTLE_SPIN_NS)
			cpu_relax();
		else
			sched_yield();
	}
	return TRUST_NONE;
}

enum trust notify_settle_now(struct kedge_notifier *nf)
{
	if (nf_asks(nf) == ASKS_NOT)
		return nf->ops->settled ? TRUST_ANNOUNCED : TRUST_ALL;
	return nf->can_ask && notify_settled(nf) ? TRUST_ALL : TRUST_NONE;
}

enum trust notify_settle(struct kedge_notifier *nf)
{
	return nf_asks(nf) == ASKS_NOT && nf->ops->settled
		       ? TRUST_ANNOUNCED
		       : notify_settle_asking(nf);
}

bool notify_announced(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	return !nf->ops->settled || nf_asks(nf) != ASKS_NOT ||
	       origin_known(start, end);
}

bool notify_can_tell(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	return nf->can_ask || notify_announced(nf, start, end);
}

int kedge_notifier_unchanged(struct kedge_notifier *nf, uint64_t generation)
{
	if (!nf)
		return kedge_reason(-EINVAL, "the notifier is NULL");
	if (!nf_owned(nf))
		return nf_not_owned();
	/* The question first: what it lets pass is visible afterwards. */
	return notify_settled(nf) &&
	       kedge_notifier_generation(nf) == generation;
}
