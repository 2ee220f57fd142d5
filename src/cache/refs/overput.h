/* SPDX-License-Identifier: BSD-2-Clause */
/* Puts too many, where all holders of a registration have the same pointer. Part of internal.h. */
#ifndef CACHE_OVERPUT_H
#define CACHE_OVERPUT_H

#include <kedge/cache.h>

#include "cache/refs/refs.h"

/* The first put too many, to be told once the lock is free. */
struct overput {
	_Atomic bool news;
	bool told;
	uint64_t addr;
	uint64_t len;
};

/* overput.c. A put has left the calling thread's count of @id below 0. Without the lock. */
void overput_suspect(struct kedge_cache *c, uint32_t id);
/* True: a put by @rec's thread is to be looked at, as it holds none of @id. */
static inline bool overput_looks(struct thread_rec *rec, uint32_t id)
{
	if (likely(atomic_load_explicit(&rec->refs[id], memory_order_relaxed) - 1 <
		   UINT32_MAX / 2))
		return false;
	if (!rec->looks_after)
		return true;
	rec->looks_after--;
	return false;
}

/* With the lock held, where a sum is below 0: count the puts too many, and undo them. */
void overput_settle(struct kedge_cache *c, uint32_t id);
/* Without the lock: tell the first. */
void overput_tell(struct kedge_cache *c);
/* Count a put of @r too many that @c->overput is not to tell. Without the lock. */
void overput_count(struct kedge_cache *c);

/* With the lock held. False: it is not held, for sure where no lookup finds it (refs.c). */
static inline bool is_held(struct kedge_cache *c, uint32_t id)
{
	uint32_t sum = refs_sum(c, id);

	if (unlikely((int32_t)sum < 0)) {
		overput_settle(c, id);
		sum = refs_sum(c, id);
	}
	return sum;
}

/* ticket.c: with KEDGE_VERIFY=1 each get has a pointer of its own. */
struct tickets;

/* The address that the library was called from. */
#define CALL_SITE __builtin_return_address(0)

/* Without the lock. 0 or a negative errno. */
int tickets_open(struct kedge_cache *c);
void tickets_close(struct kedge_cache *c);
/* Give @r, which the caller holds, as *@mr; or -ENOMEM. */
int ticket_give(struct kedge_cache *c, struct region *r, const void *site,
		const struct kedge_mr **mr);
/* The region to put, or NULL: @mr was put before, which is told. */
struct region *ticket_take(struct kedge_cache *c, const struct kedge_mr *mr,
			   const void *site);
/* The call site of a get of @id that is held still, as text in @buf; "" without tickets. */
void ticket_holder(struct kedge_cache *c, uint32_t id, char *buf, size_t size);

#endif /* CACHE_OVERPUT_H */
