// SPDX-License-Identifier: BSD-2-Clause
/*
 * The life of a region:
 *
 *   FREE -> MAKING -> WHOLE <-> ... -> HOLED -> DYING -> DEAD -> FREE
 *              \________________________________^
 *
 * MAKING: the device is at it. DYING: out of the index, or never in it (memory
 * that cannot be watched), and held. DEAD: not held, and the device is ending it.
 * Lists of regions are chained by their cold part's next; 0 ends them.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/internal.h"
#include "cache/priv.h"

#define HUGE ((size_t)2 << 20)

void *reserve(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* Huge pages for the part that only a big cache uses. */
	if (len > 2 * HUGE)
		madvise((char *)p + HUGE, len - HUGE, MADV_HUGEPAGE);
	return p;
}

/* Make a struct region_cold for @id if need be; true if there is one. */
static bool has_cold(struct kedge_cache *c, uint32_t id)
{
	struct region_cold **piece = &c->cold[id >> COLD_SHIFT];

	if (!*piece)
		*piece = reserve(COLD_CNT * sizeof(**piece));
	return *piece;
}

struct region *region_new(struct kedge_cache *c)
{
	uint32_t id = c->free_ids;
	struct region *r;

	if (id)
		c->free_ids = cold_at(c, id)->next;
	else if (c->ids_used < c->ids && has_cold(c, c->ids_used))
		id = c->ids_used++;
	else
		return NULL;
	r = &c->regions[id];
	/* A put too many of what it was before is none of what it is now. */
	is_held(c, id);
	*cold_at(c, id) = (struct region_cold){ .watch.queue = &c->queue,
						.id = id };
	set_mr(r, 0, 0);
	r->mr.device_handle = 0;
	r->mr.offset = 0;
	r->mr.access = 0;
	r->mr.reserved = id;
	set_state(c, r, REGION_MAKING, 0);
	c->live++;
	return r;
}

int no_region(const struct kedge_cache *c)
{
	return c->ids_used < c->ids
		? -ENOMEM
		: kedge_reason(-ENOSPC, "all %u regions are held: put some "
			       "back", c->ids);
}

/* Back to the free ones. The device does not know it any more. */
void region_forget(struct kedge_cache *c, struct region *r)
{
	uint32_t id = region_id(c, r);

	free(cold_at(c, id)->frames);
	cold_at(c, id)->frames = NULL;
	set_state(c, r, REGION_FREE, 0);
	cold_at(c, id)->next = c->free_ids;
	c->free_ids = id;
	c->live--;
	if (unlikely(c->exclusive))
		pthread_cond_broadcast(&c->moved);
}

void lru_add(struct kedge_cache *c, struct region *r)
{
	uint32_t id = region_id(c, r);
	struct region_cold *cold = cold_at(c, id);

	cold->queued = atomic_load_explicit(&r->used, memory_order_relaxed);
	cold->next = 0;
	cold->prev = c->lru_last;
	if (c->lru_last)
		cold_at(c, c->lru_last)->next = id;
	else
		c->lru_first = id;
	c->lru_last = id;
}

void lru_remove(struct kedge_cache *c, struct region *r)
{
	struct region_cold *cold = cold_of(c, r);

	if (cold->prev)
		cold_at(c, cold->prev)->next = cold->next;
	else
		c->lru_first = cold->next;
	if (cold->next)
		cold_at(c, cold->next)->prev = cold->prev;
	else
		c->lru_last = cold->prev;
}

/*
 * Take a region of the index out of it and put it on the list *killed. The list
 * goes to region_collect() before the lock is let go.
 */
void region_kill(struct kedge_cache *c, struct region *r, enum why why,
		 uint32_t *killed)
{
	struct region_cold *cold = cold_of(c, r);

	index_clear(c, r->mr.addr, r->mr.addr + r->mr.len, region_id(c, r));
	set_state(c, r, REGION_DYING, 0);
	lru_remove(c, r);
	preserve_or_unwatch(c, r, why == WHY_CHANGED);
	cold->next = *killed;
	*killed = region_id(c, r);
}

void region_die(struct kedge_cache *c, struct region *r, uint32_t *dead)
{
	set_state(c, r, REGION_DEAD, 0);
	preserve_begin(c, r);
	cold_of(c, r)->next = *dead;
	*dead = region_id(c, r);
}

/* Empty a list of what no lookup finds any more: *dead gets what is not held. */
static void collect(struct kedge_cache *c, uint32_t *list, uint32_t *dead)
{
	uint32_t id, next;

	for (id = *list; id; id = next) {
		next = cold_at(c, id)->next;
		cold_at(c, id)->next = 0;
		cold_at(c, id)->in_limbo = false;
		if (!is_held(c, id))
			region_die(c, &c->regions[id], dead);
	}
	*list = 0;
}

static void to_limbo(struct kedge_cache *c, uint32_t *list)
{
	uint32_t id, next;

	for (id = *list; id; id = next) {
		next = cold_at(c, id)->next;
		cold_at(c, id)->in_limbo = true;
		cold_at(c, id)->next = c->limbo;
		c->limbo = id;
	}
	*list = 0;
}

/*
 * Move those of *killed that are not held to *dead, for region_reap(). The
 * others are deregistered by their last put. Proof in refs.c. Where lookups
 * under way cannot be told, they wait for the next call.
 */
void region_collect(struct kedge_cache *c, uint32_t *killed, uint32_t *dead)
{
	if (!*killed && !c->limbo)
		return;
	if (!readers_wait(c)) {
		to_limbo(c, killed);
		return;
	}
	collect(c, killed, dead);
	collect(c, &c->limbo, dead);
}

bool region_seize(struct kedge_cache *c, uint32_t *killed)
{
	uint32_t dead = 0;

	if (readers_wait(c))
		collect(c, killed, &dead);
	else
		to_limbo(c, killed);
	return dead;
}

uint64_t kedge__cache_priv(const struct kedge_cache *c,
			   const struct kedge_mr *mr)
{
	return cold_at(c, mr->reserved)->dev.priv;
}

/* In no index before, so there is no lookup to wait for. */
void lend_begin(struct kedge_cache *c, struct region *r)
{
	set_state(c, r, REGION_DYING, 0);
	ref_own(c, region_id(c, r));
	c->st.lent++;
}
