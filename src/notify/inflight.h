/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mapping can be registered with one userfaultfd only. Page swaps have one,
 * for as long as they last, and so has who watches. Who is refused by another of
 * this process tries again; who is refused by a stranger does not. To tell them
 * apart swaps, and calls that begin to watch, are counted as they begin and as
 * they end.
 *
 * If what had ended before an attempt is all that had begun after it, none was
 * under way meanwhile: a swap lets go before it counts itself out, and what had
 * been watched before is let go by a swap's announcement. (The counters and the
 * kernel's lock of the address space have to be in one order: with weaker
 * accesses an attempt could be refused and not see who is counted in.)
 */
#ifndef NOTIFY_INFLIGHT_H
#define NOTIFY_INFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct turns {
	_Atomic uint32_t begun;
	_Atomic uint32_t ended;
};

extern struct turns kedge__swaps;
extern struct turns kedge__watches;

static inline void turn_begins(struct turns *t)
{
	atomic_fetch_add(&t->begun, 1);
}

static inline void turn_ends(struct turns *t)
{
	atomic_fetch_add(&t->ended, 1);
}

/* Before an attempt. */
static inline uint32_t turns_ended(struct turns *t)
{
	return atomic_load(&t->ended);
}

/* Whether one was under way at any time since @ended was read. */
static inline bool turns_since(struct turns *t, uint32_t ended)
{
	return atomic_load(&t->begun) != ended;
}

#endif
