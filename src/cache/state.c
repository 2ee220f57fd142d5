// SPDX-License-Identifier: BSD-2-Clause
/* Changes of a region's state: freed.c has why each has a number. */
#include "cache/internal.h"

uint32_t state_word(const struct region *r)
{
	return atomic_load_explicit(&r->state, memory_order_acquire);
}

/* acq_rel: what was known is read after the word, and taken back before it. */
bool state_change(struct region *r, uint32_t *word, uint32_t to)
{
	return atomic_compare_exchange_weak_explicit(
		&r->state, word, to + REGION_VERSION, memory_order_acq_rel,
		memory_order_acquire);
}

void state_count(struct kedge_cache *c, uint64_t len, uint32_t from, uint32_t to)
{
	if (~from & to & REGION_FREED)
		atomic_fetch_add_explicit(&c->freed_bytes, (int64_t)len,
					  memory_order_relaxed);
	if (from & ~to & REGION_FREED)
		atomic_fetch_sub_explicit(&c->freed_bytes, (int64_t)len,
					  memory_order_relaxed);
}

void set_state(struct kedge_cache *c, struct region *r, uint32_t set,
	       uint32_t keep)
{
	uint32_t word = state_word(r), to;

	do
		to = (word & (~REGION_BYTE | keep)) | set;
	while (!state_change(r, &word, to));
	state_count(c, r->mr.len, word, to);
}
