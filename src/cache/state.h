/* SPDX-License-Identifier: BSD-2-Clause */
/* The states of a region. Part of internal.h. */
#ifndef CACHE_STATE_H
#define CACHE_STATE_H

#include "notify/internal.h"

enum region_state {
	REGION_FREE = 0,
	REGION_WHOLE,	 /* in the index */
	REGION_HOLED,	 /* in the index, with pages missing */
	REGION_WHOLE_ASK, /* the same two, in memory with changes not */
	REGION_HOLED_ASK, /* announced: a lookup asks the kernel first */
	REGION_MAKING,	 /* being registered; no caller has it */
	REGION_DYING,	 /* out of the index; its last put deregisters it */
	REGION_DEAD,	 /* being deregistered */
};

static inline bool is_whole(uint32_t state)
{
	return state == REGION_WHOLE || state == REGION_WHOLE_ASK;
}

static inline bool is_holed(uint32_t state)
{
	return state == REGION_HOLED || state == REGION_HOLED_ASK;
}

/* The trust that a lookup needs before a region in that state serves it. */
static inline enum trust trust_for(uint32_t state)
{
	return state == REGION_WHOLE_ASK || state == REGION_HOLED_ASK
		       ? TRUST_ALL
		       : TRUST_ANNOUNCED;
}

#endif /* CACHE_STATE_H */
