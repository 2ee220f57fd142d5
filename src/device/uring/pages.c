// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pinning pages in a slot, and letting them go, where io_uring does less than
 * a registration needs. mark.c has when they are marked.
 *
 * Late unpins. Before Linux 6.4 the pages of an emptied slot stay pinned, and
 * count against RLIMIT_MEMLOCK, for about a second; before 6.13, as long as a
 * request with another fixed buffer is under way that was submitted before. The
 * kernel can tell when it lets go by a completion, but that would arrive in the
 * caller's queue; and it can be made to let go by unregistering a table, but
 * that waits for all requests under way. So there is no wait until memory is
 * short: whether emptying a slot lowers VmPin is looked at for the first
 * slots of a device, and where it does not, a refusal with ENOMEM soon after is
 * tried again until the kernel has caught up.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "device/proc.h"
#include "device/uring/internal.h"

/* The times that a range is registered anew which changes while it is marked. */
#define MARK_TRIES 4
/* The kernel's second, its grace period and a busy machine. */
#define LATE_NS UINT64_C(3000000000)
#define LATE_PAUSE_NS 10000000
/* One emptied slot may go unseen where another thread pins meanwhile. */
#define LOOKS 3

/* ---- late unpins ---- */

static void look(struct uring *u, uint32_t looks, uint64_t before)
{
	/* 0: /proc does not tell, so there is no use in looking. */
	if (!before || kedge__proc_pinned() < before)
		looks = UNPIN_PROMPT;
	else
		looks++;
	/* Relaxed: of two threads that look at once either may be right. */
	__atomic_store_n(&u->looks, looks, __ATOMIC_RELAXED);
}

/* True if the slot has no buffer of ours any more. */
static bool empty(const struct uring *u, uint32_t slot, int *rc)
{
	*rc = kedge__uring_update(u, slot, NULL, 0);
	/* Without a table there is no slot that could hold anything. */
	return *rc == 1 || *rc == -ENXIO;
}

bool kedge__uring_unpin(struct uring *u, uint32_t slot, int *rc)
{
	uint32_t looks = __atomic_load_n(&u->looks, __ATOMIC_RELAXED);
	uint64_t before;
	bool done;

	if (likely(looks == UNPIN_PROMPT))
		return empty(u, slot, rc);
	before = looks < LOOKS ? kedge__proc_pinned() : 0;
	done = empty(u, slot, rc);
	if (*rc == 1 && looks < LOOKS)
		look(u, looks, before);
	/* Relaxed: it bounds a wait, and no memory depends on it. */
	__atomic_store_n(&u->emptied_ns, clock_ns(), __ATOMIC_RELAXED);
	return done;
}

/* No nanosleep(), which is a cancellation point. */
static void pause_a_little(void)
{
	const struct timespec ts = { .tv_nsec = LATE_PAUSE_NS };

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
}

static bool unpins_are_due(const struct uring *u)
{
	uint64_t at = __atomic_load_n(&u->emptied_ns, __ATOMIC_RELAXED);

	return __atomic_load_n(&u->looks, __ATOMIC_RELAXED) == LOOKS && at &&
	       clock_ns() - at < LATE_NS;
}

static int fill(const struct uring *u, uint32_t slot, void *addr, size_t len)
{
	int rc = kedge__uring_update(u, slot, addr, len);

	while (unlikely(rc == -ENOMEM) && unpins_are_due(u)) {
		pause_a_little();
		rc = kedge__uring_update(u, slot, addr, len);
	}
	return rc;
}

/* ---- pins ---- */

/*
 * Mark pages where reclaim takes pinned ones, too. False if some may not be marked
 * because the mapping is another by now; any other error would come again.
 */
static bool mark(void *addr, size_t len)
{
	return kedge__uring_mark((uintptr_t)addr, (uintptr_t)addr + len) ||
	       (errno != ENOMEM && errno != EFAULT);
}

int kedge__uring_pin(struct uring *u, uint32_t slot, void *addr, size_t len,
		     bool writes, enum slot_state *left)
{
	int tries, rc;

	*left = SLOT_FREE;
	for (tries = 1;; tries++) {
		rc = fill(u, slot, addr, len);
		/* Neither done nor refused: what is in the slot is unknown. */
		if (rc >= 0 && rc != 1)
			*left = SLOT_LOST;
		if (rc != 1 || !writes || u->marks != MARK_AT_REG ||
		    mark(addr, len) || tries == MARK_TRIES)
			return rc;
		if (!kedge__uring_unpin(u, slot, &rc)) {
			*left = SLOT_LOST;
			return rc < 0 ? rc : -EIO;
		}
	}
}
