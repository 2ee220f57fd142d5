/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mapping can be registered with one userfaultfd only. Page swaps have one,
 * for as long as they last, and so has a notifier. EBUSY from another
 * userfaultfd of this process is transient: retry. From a stranger's it is
 * permanent: fail. To tell them apart swaps, and calls that begin to watch, are
 * counted as they begin and as they end.
 *
 * If the count of ends read before an attempt equals the count of begins read
 * after it, no such call was under way meanwhile: a swap lets go before it
 * counts itself out, and what had been watched before is let go by a swap's
 * announcement. (The counters and the kernel's lock of the address space have
 * to be in one order: with weaker accesses an attempt could be refused and not
 * see the refuser counted in.)
 */
#ifndef NOTIFY_INFLIGHT_H
#define NOTIFY_INFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct inflight {
	_Atomic uint32_t begun;
	_Atomic uint32_t ended;
};

extern struct inflight kedge__swaps;
extern struct inflight kedge__watches;

static inline void inflight_begin(struct inflight *t)
{
	atomic_fetch_add(&t->begun, 1);
}

static inline void inflight_end(struct inflight *t)
{
	atomic_fetch_add(&t->ended, 1);
}

/* Before an attempt. */
static inline uint32_t inflight_ended(struct inflight *t)
{
	return atomic_load(&t->ended);
}

/* True if one was under way at any time since @ended was read. */
static inline bool inflight_since(struct inflight *t, uint32_t ended)
{
	return atomic_load(&t->begun) != ended;
}

#endif
