// SPDX-License-Identifier: BSD-2-Clause
/*
 * The slots of the table that are ours.
 *
 * A slot is in one of three states, and in one place only:
 *   free  empty in the kernel; in stack[0, free_cnt)
 *   used  holds a registration; in no list, its owner knows it
 *   lost  to be emptied, but the kernel refused: it is given to no registration,
 *         because an index that is still valid somewhere would reach the old
 *         pages; or not to be emptied yet, because data would be lost. In
 *         stack[slots - lost_cnt, slots), tried again by every reg, the owed
 *         ones at intervals, and by the close
 * A thread that is at work on a slot has it in no list at all, so the system
 * calls run without the lock and the two ends of the stack never meet.
 */
#include <stdlib.h>

#include <kedge/device.h>

#include "base/base.h"
#include "device/uring/internal.h"

int kedge__uring_slots_init(struct uring *u)
{
	uint32_t i;

	u->stack = malloc((size_t)u->slots * sizeof(*u->stack));
	u->state = calloc(u->slots, sizeof(*u->state));
	u->mem = calloc(u->slots, sizeof(*u->mem));
	if (!u->stack || !u->state || !u->mem) {
		free(u->mem);
		free(u->stack);
		free(u->state);
		return kedge_reason(-ENOMEM, "no memory for %u slots",
				    u->slots);
	}
	for (i = 0; i < u->slots; i++)
		u->stack[i] = u->slots - 1 - i;
	u->free_cnt = u->slots;
	return 0;
}

void kedge__uring_slots_fini(struct uring *u)
{
	free(u->mem);
	free(u->state);
	free(u->stack);
}

static bool take_free(struct uring *u, uint32_t *slot)
{
	bool have;

	pthread_mutex_lock(&u->lock);
	have = u->free_cnt;
	if (have) {
		*slot = u->stack[--u->free_cnt];
		u->state[*slot] = SLOT_USED;
	}
	pthread_mutex_unlock(&u->lock);
	return have;
}

/* Another one each time: it goes back to the top. */
static bool take_lost(struct uring *u, uint32_t *slot)
{
	uint32_t *top, *taken;
	bool have;

	pthread_mutex_lock(&u->lock);
	have = u->lost_cnt;
	if (have) {
		top = &u->stack[u->slots - u->lost_cnt];
		taken = &top[u->lost_turns++ % u->lost_cnt];
		*slot = *taken;
		*taken = *top;
		__atomic_store_n(&u->lost_cnt, u->lost_cnt - 1,
				 __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&u->lock);
	return have;
}

/* Give a slot back that is in no list, as free or as lost. */
void kedge__uring_give(struct uring *u, uint32_t slot, uint8_t state)
{
	pthread_mutex_lock(&u->lock);
	u->state[slot] = state;
	if (state == SLOT_FREE) {
		u->stack[u->free_cnt++] = slot;
	} else {
		__atomic_store_n(&u->lost_cnt, u->lost_cnt + 1,
				 __ATOMIC_RELAXED);
		u->stack[u->slots - u->lost_cnt] = slot;
	}
	pthread_mutex_unlock(&u->lock);
}

/* The pause between tries to mark what is owed: each looks at all mappings. */
#define OWED_NS UINT64_C(100000000)

static bool owed_is_due(struct uring *u)
{
	uint64_t now = clock_ns();

	/* Relaxed: of two threads that look at once either may be right. */
	if (now - __atomic_load_n(&u->owed_ns, __ATOMIC_RELAXED) < OWED_NS)
		return false;
	__atomic_store_n(&u->owed_ns, now, __ATOMIC_RELAXED);
	return true;
}

/* @full: what is owed cannot wait, and the rest was tried a moment ago. */
static void retry_lost(struct uring *u, bool full)
{
	struct range *owed;
	uint32_t slot;
	bool done;
	int rc;

	/* Relaxed: a slot that is missed here is tried by the next one. */
	if (likely(!__atomic_load_n(&u->lost_cnt, __ATOMIC_RELAXED)))
		return;
	if (!take_lost(u, &slot))
		return;
	owed = &u->mem[slot].owed;
	done = owed->end ? (full || owed_is_due(u)) && kedge__uring_pay(owed)
			 : !full;
	if (done)
		done = kedge__uring_unpin(u, slot, &rc);
	kedge__uring_give(u, slot, done ? SLOT_FREE : SLOT_LOST);
}

bool kedge__uring_take(struct uring *u, uint32_t *slot)
{
	retry_lost(u, false);
	if (likely(take_free(u, slot)))
		return true;
	retry_lost(u, true);
	return take_free(u, slot);
}

bool kedge__uring_is_used(struct uring *u, uint64_t slot)
{
	bool used;

	pthread_mutex_lock(&u->lock);
	used = slot < u->slots && u->state[slot] == SLOT_USED;
	pthread_mutex_unlock(&u->lock);
	return used;
}

bool kedge__uring_take_used(struct uring *u, uint64_t slot)
{
	bool have;

	pthread_mutex_lock(&u->lock);
	have = slot < u->slots && u->state[slot] == SLOT_USED;
	if (have)
		u->state[slot] = SLOT_LOST;
	pthread_mutex_unlock(&u->lock);
	return have;
}

void kedge__uring_pay_all(struct uring *u)
{
	uint32_t slot, left = 0;

	if (u->marks != MARK_AT_END)
		return;
	for (slot = 0; slot < u->slots; slot++) {
		struct slot_mem *m = &u->mem[slot];

		if (m->pinned.end && u->state[slot] == SLOT_USED)
			kedge__uring_preserve(m->pinned, KEDGE_PRESERVE_UNSURE,
					      &m->owed);
		left += m->owed.end && !kedge__uring_pay(&m->owed);
	}
	if (left)
		kedge__log(KEDGE_LOG_ERROR,
			   "the io_uring device is closed and unpins lazily "
			   "freed, read-only memory of %u registrations: make "
			   "it writable before, or the data may be dropped",
			   left);
}

void kedge__uring_empty_all(struct uring *u)
{
	uint32_t slot, left = 0;
	int rc, last = 0;

	for (slot = 0; slot < u->slots; slot++)
		if (u->state[slot] != SLOT_FREE &&
		    !kedge__uring_unpin(u, slot, &rc)) {
			left++;
			last = rc;
		}
	if (left)
		kedge__log(KEDGE_LOG_ERROR,
			   "io_uring did not empty %u buffer slots (error "
			   "%d): their pages stay pinned until the ring is "
			   "closed",
			   left, -last);
}
