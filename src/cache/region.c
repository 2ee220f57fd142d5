// SPDX-License-Identifier: BSD-2-Clause
/*
 * The life of a region:
 *
 *   FREE -> MAKING -> WHOLE <-> ... -> HOLED -> DYING -> DEAD -> FREE
 *              \________________________________^
 *
 * MAKING: the device is at it. DYING: out of the index, or never in it (memory
 * that cannot be watched), and held. DEAD: nobody holds it, the device is ending
 * it. Lists of regions are chained by their cold part's next; 0 ends them.
 */
#include <stdlib.h>

#include "cache/internal.h"
#include "cache/priv.h"

/* Whether there is a struct region_cold for @id, made if need be. */
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
	*cold_at(c, id) = (struct region_cold){ .watch.queue = &c->queue,
						.id = id };
	memset(&r->mr, 0, sizeof(r->mr));
	r->mr.reserved = id;
	set_state(r, REGION_MAKING);
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

/* Back to the free ones. The device knows nothing of it any more. */
void region_forget(struct kedge_cache *c, struct region *r)
{
	uint32_t id = region_id(c, r);

	free(cold_at(c, id)->frames);
	cold_at(c, id)->frames = NULL;
	set_state(r, REGION_FREE);
	cold_at(c, id)->next = c->free_ids;
	c->free_ids = id;
	c->live--;
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
	set_state(r, REGION_DYING);
	lru_remove(c, r);
	preserve_or_unwatch(c, r, why == WHY_CHANGED);
	cold->next = *killed;
	*killed = region_id(c, r);
}

void region_die(struct kedge_cache *c, struct region *r, uint32_t *dead)
{
	set_state(r, REGION_DEAD);
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
		if (!refs_sum(c, id))
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
 * Move those of *killed that nobody holds to *dead, for region_reap(). The
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

/* Deregister a list of dead regions; what died meanwhile comes back. */
static uint32_t reap(struct kedge_cache *c, uint32_t dead)
{
	uint32_t more = preserve_dead(c, dead), id, next;

	for (id = dead; id; id = cold_at(c, id)->next) {
		if (cold_at(c, id)->base)
			lend_end(c, id);
		else
			device_dereg(c->dev, &cold_at(c, id)->dev);
	}
	pthread_mutex_lock(&c->lock);
	for (id = dead; id; id = next) {
		next = cold_at(c, id)->next;
		if (!cold_at(c, id)->base) {
			c->bytes -= c->regions[id].mr.len;
			c->st.deregistrations++;
		}
		region_forget(c, &c->regions[id]);
	}
	pthread_mutex_unlock(&c->lock);
	return more;
}

/* Without the lock: the device is slow. */
void region_reap(struct kedge_cache *c, uint32_t dead)
{
	while (dead)
		dead = reap(c, dead);
}

/*
 * A put that found its region dying, or has no record of its own (@by is then
 * -1). Many may come here for the same region: one of them finds the sum 0
 * while it is DYING.
 */
void region_put_slow(struct kedge_cache *c, uint32_t id, uint32_t by)
{
	uint32_t none = 0, dead = 0;
	int saved;

	if (!nf_owned(c->nf))
		return; /* a forked child: the device is the parent's */
	saved = cancel_disable();
	pthread_mutex_lock(&c->lock);
	if (by) {
		ref_add(c, id, by);
		own_rec_grow(c);
	}
	region_collect(c, &none, &dead);
	if (state_of(&c->regions[id]) == REGION_DYING &&
	    !cold_at(c, id)->in_limbo && !refs_sum(c, id))
		region_die(c, &c->regions[id], &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	cancel_restore(saved);
}

uint64_t kedge__cache_priv(const struct kedge_cache *c,
			   const struct kedge_mr *mr)
{
	return cold_at(c, mr->reserved)->dev.priv;
}
