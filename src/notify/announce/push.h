/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of kedge_notifier_opts.on_event, for users that have no lookup at which they could ask.
 *
 * A call is made without kedge's locks, as the callback may take any of its own and add or remove
 * watches. What keeps the notifier alive meanwhile is a count of calls under way, for which
 * kedge_notifier_close() waits.
 */
#ifndef NOTIFY_ANNOUNCE_PUSH_H
#define NOTIFY_ANNOUNCE_PUSH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kedge/notifier.h>

struct push {
	void (*fn)(void *arg, const struct kedge_event *ev); /* or NULL; never changes */
	void *arg;
	_Atomic uint32_t calls; /* under way, or about to be made */
};

void push_init(struct push *p, const struct kedge_notifier_opts *opts);

/* True: a push_call() has to follow. With what keeps @p alive. */
static inline bool push_begin(struct push *p)
{
	if (!p->fn)
		return false;
	/* Relaxed: whoever waits for 0 looks under the lock that the caller holds. */
	atomic_fetch_add_explicit(&p->calls, 1, memory_order_relaxed);
	return true;
}

/* With signals blocked and without locks. The last use of @p. */
void push_call(struct push *p, uint32_t kind, uint32_t flags, uint64_t start, uint64_t end);

/* No call is under way. Acquire: what the callbacks did is done. Partner: push_call(). */
static inline bool push_idle(const struct push *p)
{
	return !atomic_load_explicit(&p->calls, memory_order_acquire);
}

#endif /* NOTIFY_ANNOUNCE_PUSH_H */
