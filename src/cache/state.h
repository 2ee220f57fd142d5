/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of a region: one word, of which the low byte is a phase and its flags. What is above
 * that is for freed.c, and no lookup reads it. Part of internal.h.
 */
#ifndef CACHE_STATE_H
#define CACHE_STATE_H

#include "notify/internal.h"

enum region_phase {
	REGION_FREE = 0,
	REGION_WHOLE,	 /* in the index */
	REGION_HOLED,	 /* in the index, with pages missing */
	REGION_MAKING,	 /* being registered; no caller has it */
	REGION_DYING,	 /* out of the index; its last put deregisters it */
	REGION_DEAD,	 /* being deregistered */
};

#define REGION_PHASE 7u
/* Flags, in the phases WHOLE and HOLED: */
#define REGION_ASK   8u	 /* its memory may change unannounced: a lookup asks the kernel first */
#define REGION_FREED 16u /* an allocator has taken a part of it back: see freed.c */

#define REGION_BYTE    0xffu
#define REGION_LISTED  0x100u /* its id is in c->freed_new, or in the list of c->freed_first */
#define REGION_VERSION 0x200u /* one step: each change of the word is one */

static inline uint32_t phase_of(uint32_t state)
{
	return state & REGION_PHASE;
}

static inline bool is_whole(uint32_t state)
{
	return phase_of(state) == REGION_WHOLE;
}

static inline bool is_holed(uint32_t state)
{
	return phase_of(state) == REGION_HOLED;
}

/* The trust that a lookup needs before a region in that state serves it. */
static inline enum trust trust_for(uint32_t state)
{
	return state & (REGION_ASK | REGION_FREED) ? TRUST_ALL : TRUST_ANNOUNCED;
}

#endif /* CACHE_STATE_H */
