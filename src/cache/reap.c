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

#define STUCK_RETRY_NS 10000000u

/* The device has failed to end it. With the lock held. */
static void stuck_add(struct kedge_cache *c, uint32_t id, int rc)
{
	struct region_cold *cold = cold_at(c, id);

	cold->stuck = true;
	cold->due = false; /* its data are preserved */
	cold->next = c->stuck.first;
	c->stuck.first = id;
	c->stuck.cnt++;
	c->stuck.rc = rc;
	c->stuck.retry_ns = clock_ns() + STUCK_RETRY_NS;
	c->st.dereg_failures++;
	if (c->exclusive)
		pthread_cond_broadcast(&c->moved);
}

void stuck_take(struct kedge_cache *c, uint32_t *dead)
{
	uint32_t id;

	while ((id = c->stuck.first)) {
		c->stuck.first = cold_at(c, id)->next;
		c->stuck.cnt--;
		cold_at(c, id)->stuck = false;
		cold_at(c, id)->next = *dead;
		*dead = id;
	}
}

uint32_t stuck_due(struct kedge_cache *c)
{
	uint32_t dead = 0;

	if (unlikely(c->stuck.first) && clock_ns() >= c->stuck.retry_ns)
		stuck_take(c, &dead);
	return dead;
}

int stuck_reason(const struct kedge_cache *c)
{
	return kedge_reason(-EBUSY, "%s cannot end an earlier registration of that memory "
			    "(error %d), and takes no byte twice",
			    c->dev->ops.name, -c->stuck.rc);
}

static void ended(struct kedge_cache *c, uint32_t id)
{
	if (!cold_at(c, id)->base) {
		c->bytes -= c->regions[id].mr.len;
		c->st.deregistrations++;
	}
	region_forget(c, &c->regions[id]);
}

/* 0, or why the device fails to end a region. */
static int end_one(struct kedge_cache *c, uint32_t id)
{
	if (!cold_at(c, id)->base)
		return device_dereg(c->dev, &cold_at(c, id)->dev);
	lend_end(c, id);
	return 0;
}

static void tell_first(struct kedge_cache *c, int rc)
{
	bool told;

	pthread_mutex_lock(&c->lock);
	told = c->stuck.told;
	c->stuck.told = true;
	pthread_mutex_unlock(&c->lock);
	if (!told)
		kedge__log(KEDGE_LOG_ERROR,
			   "device %s has failed to end a registration (%s): its bytes stay "
			   "accounted, and it is tried again",
			   c->dev->ops.name, strerrordesc_np(-rc));
}

/* Deregister a list of dead regions; what died meanwhile comes back. *cnt grows by those ended. */
static uint32_t reap(struct kedge_cache *c, uint32_t dead, uint32_t *cnt)
{
	uint32_t more = preserve_dead(c, dead), id, next;
	int failed = 0;

	for (id = dead; id; id = cold_at(c, id)->next)
		cold_at(c, id)->end_rc = end_one(c, id);
	pthread_mutex_lock(&c->lock);
	for (id = dead; id; id = next) {
		int rc = cold_at(c, id)->end_rc;

		next = cold_at(c, id)->next;
		if (rc)
			stuck_add(c, id, failed = rc);
		else
			ended(c, id);
		*cnt += !rc;
	}
	pthread_mutex_unlock(&c->lock);
	if (failed)
		tell_first(c, failed);
	return more;
}

/* Without the lock: the device is slow. */
uint32_t region_reap(struct kedge_cache *c, uint32_t dead)
{
	uint32_t cnt = 0;

	while (dead)
		dead = reap(c, dead, &cnt);
	overput_tell(c);
	return cnt;
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
