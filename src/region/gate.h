/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The gate of a peer: a page that the owner of a region and one peer share. The owner stores
 * in @state, @len and @why, the peer in @inside, as many as it has accesses under way.
 *
 * An access:        add 1 to @inside, load @state; if that is 0, access, subtract 1;
 *                   else subtract 1, and wait until @state changes.
 * A suspension:     store CLOSED in @state, then load @inside until that is 0.
 *
 * Both the addition and the load of @state after it, and the owner's store and its load of
 * @inside after it, are seq_cst. So of two that meet at least one finds the other: were the
 * peer's load before the owner's store and the owner's load before the peer's addition, in
 * the one order of all four, each would be before itself. With less the store of either could
 * wait in its processor while its load is done, and both would go on.
 *
 * The subtraction releases the access: the owner's load that finds 0 acquires it, so what
 * was stored is there, and what was loaded was loaded, before the owner changes a byte. The
 * owner's store of 0 in @state releases what it did; the peer's load acquires that.
 *
 * @len is stored before a suspension closes the gate, or while it is closed, when it becomes
 * less: an access that found it open may have loaded the former one, and is waited for.
 *
 * @epoch is stored while the gate is closed and empty. A peer that finds the gate open
 * loads it after that, so it has the new one, or came in before.
 *
 * Gaps (region/gaps.h): before the owner reads that a range is gone, which lets the call go on that
 * took it, it stores CHANGING; then the gaps, with an odd @gap_seq; then GAPS in the place of
 * CHANGING. An access that begins after that call finds one of both. With GAPS it goes in, and
 * looks whether it touches one; with CHANGING it waits, as for a suspension. A list that changes
 * while it is read is read again. Without a gap an access does not pay for it.
 *
 * The peer has no business in the owner's memory but for the region: what it stores in
 * @inside can make the owner wait, up to its time limit, and no more. What the owner
 * stores is checked by the peer against the size of the file.
 */
#ifndef REGION_GATE_H
#define REGION_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "region/gaps.h"
#include "region/wire.h"

#define GATE_CLOSED 1u /* for a while */
#define GATE_ENDED  2u /* for good: @why says it */
#define GATE_CHANGING 4u /* for the moment in which gaps change */
#define GATE_GAPS   8u /* there are some: not every access may go on */
#define GATE_SHUT   (GATE_CLOSED | GATE_ENDED | GATE_CHANGING)

/* Bytes from the handle's first one on. */
struct gate_gap {
	_Atomic uint64_t from;
	_Atomic uint64_t to;
};

/* Each side has a cache line of its own. */
struct gate {
	_Atomic uint32_t state; /* peers wait for it, by futex */
	_Atomic uint32_t why;	/* a positive errno, stored before GATE_ENDED */
	_Atomic uint64_t len;	/* bytes from the handle's first one on that may be accessed */
	_Atomic uint64_t expires; /* CLOCK_MONOTONIC, ns, as @opened; 0: never */
	_Atomic uint64_t opened;  /* when the gate was: the owner's clock may be another's */
	_Atomic uint32_t epoch; /* which pages: it changes while the gate is closed */
	char pad[28];
	_Atomic uint32_t inside;
	char pad_inside[60];
	/* With @why EREMCHG: where the region is now; stored before @why. */
	struct owner_place to;
	_Atomic uint32_t gap_seq;
	_Atomic uint32_t gap_cnt;
	struct gate_gap gap[GAPS_MAX];
};

/* By the peer: without a bit of GATE_SHUT, and then gate_leave() follows; or the state in which it
 * is not let in. */
static inline uint32_t gate_enter(struct gate *g)
{
	uint32_t state;

	atomic_fetch_add(&g->inside, 1);
	state = atomic_load(&g->state);
	if (state & GATE_SHUT)
		atomic_fetch_sub(&g->inside, 1);
	return state;
}

static inline void gate_leave(struct gate *g)
{
	atomic_fetch_sub_explicit(&g->inside, 1, memory_order_release);
}

/* By the owner. */
static inline bool gate_is_empty(struct gate *g)
{
	return !atomic_load(&g->inside);
}

#endif /* REGION_GATE_H */
