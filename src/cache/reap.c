// SPDX-License-Identifier: BSD-2-Clause
/*
 * The end of a region: its last put, and the device that ends the registration.
 * region.c has what comes before.
 */
#include "cache/internal.h"

/* The last put of a window. Without the lock: the device is slow. */
static void lend_end(struct kedge_cache *c, uint32_t id)
{
	device_unbind(c->dev, &cold_at(c, id)->dev);
	region_put_slow(c, cold_at(c, id)->base, (uint32_t)-1);
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
	overput_tell(c);
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
	if (!is_held(c, id) && !cold_at(c, id)->in_limbo &&
	    state_of(&c->regions[id]) == REGION_DYING)
		region_die(c, &c->regions[id], &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	cancel_restore(saved);
}
