// SPDX-License-Identifier: BSD-2-Clause
/*
 * The attachments of a grant to another process's memory, which the thread walks when that
 * memory is taken back. To attach and to detach takes no lock: that would be four system calls
 * (signals are blocked with a lock), as long as the mapping itself takes.
 *
 * A record is the thread's while it is BUSY, and the caller's otherwise. It stays in the
 * grant's chain until the grant ends, and serves further attachments, so a walk needs no care
 * for what leaves the chain.
 *
 * Attaching and a recall meet. The thread notes what has gone and then walks the chain; attach()
 * makes its record LIVE in the chain, and then looks at what has gone. There is a full fence
 * between the two on either side, so one of them sees the other: attach() finds that a part
 * has gone, and looks at it with the lock, or the thread finds the record. Then it stores NEVER
 * as what the attachment is valid as of, whatever is there; attach() changes only what is still
 * PENDING. Without the fences both could look first, and old memory were valid.
 *
 * Detaching and a recall meet at the state: the thread maps other pages only over what it has
 * made BUSY, and detach() unmaps only what it has taken from LIVE to SPARE. So the thread maps
 * nothing where the program may have something else by then. A thread that detaches waits for
 * one mmap() of the other, which waits for no one.
 */
#include <sched.h>
#include <stdlib.h>

#include "segment/peer/attached.h"

/* ---- records ---- */

/* Held for a few instructions, and by callers alone: the thread does not take it. */
static void spares_lock(struct kedge_grant *g)
{
	while (atomic_flag_test_and_set_explicit(&g->spares_taken, memory_order_acquire))
		sched_yield();
}

static void spares_unlock(struct kedge_grant *g)
{
	atomic_flag_clear_explicit(&g->spares_taken, memory_order_release);
}

static struct kedge_attachment *spare(struct kedge_grant *g)
{
	struct kedge_attachment *a;

	spares_lock(g);
	a = g->spares;
	if (a)
		g->spares = a->spare;
	spares_unlock(g);
	return a;
}

static struct kedge_attachment *new_one(struct kedge_grant *g)
{
	struct kedge_attachment *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	atomic_init(&a->state, SPARE);
	a->next = atomic_load_explicit(&g->chain, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&g->chain, &a->next, a,
						      memory_order_release,
						      memory_order_relaxed))
		;
	return a;
}

struct kedge_attachment *attached_get(struct kedge_grant *g)
{
	struct kedge_attachment *a = spare(g);

	return a ? a : new_one(g);
}

void attached_put(struct kedge_attachment *a)
{
	struct kedge_grant *g = a->grant;

	spares_lock(g);
	a->spare = g->spares;
	g->spares = a;
	spares_unlock(g);
}

void attached_free(struct kedge_grant *g)
{
	struct kedge_attachment *a = atomic_load(&g->chain), *next;

	for (; a; a = next) {
		next = a->next;
		free(a);
	}
}

/* ---- the caller's side ---- */

void attached_enter(struct kedge_attachment *a)
{
	atomic_store_explicit(&a->state, LIVE, memory_order_release);
	full_fence();
}

bool attached_confirm(struct kedge_attachment *a, uint64_t generation)
{
	uint64_t pending = PENDING;

	return __atomic_compare_exchange_n(&a->head.seen, &pending, generation, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void attached_leave(struct kedge_attachment *a)
{
	uint32_t live = LIVE;

	while (!atomic_compare_exchange_weak_explicit(&a->state, &live, SPARE,
						      memory_order_acquire,
						      memory_order_relaxed)) {
		live = LIVE;
		sched_yield();
	}
}

/* ---- the thread's ---- */

void attached_take(struct kedge_grant *g, void (*take)(struct kedge_attachment *a,
						       uint64_t start, uint64_t end),
		   uint64_t start, uint64_t end)
{
	struct kedge_attachment *a;
	uint32_t live;

	full_fence();
	for (a = atomic_load_explicit(&g->chain, memory_order_acquire); a; a = a->next) {
		live = LIVE;
		if (!atomic_compare_exchange_strong_explicit(&a->state, &live, BUSY,
							     memory_order_acquire,
							     memory_order_relaxed))
			continue;
		take(a, start, end);
		atomic_store_explicit(&a->state, LIVE, memory_order_release);
	}
}
