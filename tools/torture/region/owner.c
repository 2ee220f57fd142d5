// SPDX-License-Identifier: BSD-2-Clause
/*
 * The owners of kedge torture --region: one has the region, and the other waits for it. That one
 * waits in slices, so now and then a migration comes to an end in its middle, and the region
 * stays where it was.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/torture/region/waves.h"

#define SLICE_MS 1000 /* at most */

/* @region: NULL: the other one has it */
struct own {
	struct waves *w;
	unsigned int i;
	struct kedge_region *region;
	struct kedge_handle handle;
	volatile unsigned char *at;
	struct util_rng rng;
};

static bool must(struct own *o, const char *what, int rc)
{
	if (rc)
		waves_found(o->w, &o->w->errors, "%s: %s", what, kedge_strerror(rc));
	return !rc;
}

static void publish(struct own *o, const struct kedge_handle *h)
{
	atomic_fetch_add(&o->w->turn, 1);
	o->w->handle = *h;
	atomic_fetch_add(&o->w->turn, 1);
}

static void another_handle(struct own *o)
{
	struct kedge_handle old = o->handle;

	if (!must(o, "advertise", kedge_region_advertise(o->region, NULL, &o->handle)))
		return;
	publish(o, &o->handle);
	must(o, "revoke", kedge_region_revoke(o->region, &old));
	atomic_fetch_add(&o->w->handles, 1);
}

static bool is_whole(const unsigned char *p)
{
	return !memcmp(p, p + 1, WAVES_BLOCK - 1);
}

/* Suspended: what peers were told is there, and they find it as it is after. */
static void look(struct own *o)
{
	unsigned char saved[(WAVES_PEERS + 1) * WAVES_BLOCK];
	uint64_t sum = 0, n, killed = atomic_load(&o->w->killed);
	unsigned int i;
	bool unsure[WAVES_PEERS];

	for (i = 0; i < WAVES_PEERS; i++)
		sum += atomic_load(&o->w->peer[i].added);
	memcpy(saved, (const void *)(uintptr_t)o->at, sizeof(saved));
	memcpy(&n, saved, sizeof(n));
	/* One addition of each may be there that is not noted yet. */
	if (n < sum || n > sum + WAVES_PEERS + killed)
		waves_found(o->w, &o->w->lost, "%llu additions are there of %llu",
			    (unsigned long long)n, (unsigned long long)sum);
	for (i = 0; i < WAVES_PEERS; i++) {
		unsure[i] = atomic_load(&o->w->peer[i].sure) != atomic_load(&o->w->peer[i].life);
		if (!unsure[i] && !is_whole(saved + waves_place(i)))
			waves_found(o->w, &o->w->torn, "the block of peer %u is torn", i);
	}
	memset((void *)(uintptr_t)o->at, 0xa5, sizeof(saved));
	waves_nap((long)(util_rng_next(&o->rng) % 50));
	for (i = 0; i < sizeof(saved); i += 64)
		if (o->at[i] != 0xa5)
			waves_found(o->w, &o->w->torn, "a peer stores in a suspended region");
	memcpy((void *)(uintptr_t)o->at, saved, sizeof(saved));
}

static void suspend(struct own *o)
{
	if (!must(o, "suspend", kedge_region_suspend(o->region, WAVES_LIMIT_MS)))
		return;
	look(o);
	must(o, "resume", kedge_region_resume(o->region));
	atomic_fetch_add(&o->w->suspensions, 1);
}

static void longest(_Atomic uint64_t *most, uint64_t ns)
{
	if (ns > atomic_load(most))
		atomic_store(most, ns);
}

static void move(struct own *o)
{
	uint64_t pause = 0;

	if (!must(o, "move", kedge_region_move(o->region, NULL, WAVES_LIMIT_MS, &pause)))
		return;
	longest(&o->w->pause_ns, pause);
	atomic_fetch_add(&o->w->moves, 1);
}

static void change_len(struct own *o)
{
	int rc;

	/* A peer that got no processor may be in an access from before a trim. */
	do {
		rc = kedge_region_grow(o->region, WAVES_MORE);
	} while (rc == -ETIMEDOUT && !atomic_load(&o->w->stop));
	if (rc == -ETIMEDOUT || !must(o, "grow", rc))
		return;
	waves_nap((long)(util_rng_next(&o->rng) % 200));
	must(o, "trim", kedge_region_trim(o->region, WAVES_LEN));
	atomic_fetch_add(&o->w->lengths, 1);
}

/* ---- from one to the other ---- */

static bool find_addr(struct own *o)
{
	struct kedge_region_info info = { .size = sizeof(info) };

	if (!must(o, "query", kedge_region_query(o->region, &info)))
		return false;
	o->at = (volatile unsigned char *)(uintptr_t)info.addr;
	return true;
}

static bool may_stay(int rc)
{
	return rc == -ETIMEDOUT || rc == -ECANCELED || rc == -ECONNRESET ||
	       rc == -ECONNREFUSED || rc == -EKEYREJECTED;
}

/* It ends with the region here, or there: which is not known is asked again. */
static void migrate(struct own *o)
{
	const struct kedge_migrate_opts opts = { .size = sizeof(opts),
						 .flags = KEDGE_MIGRATE_QUIET };
	const struct waves_invite *to = &o->w->invite[!o->i];
	struct kedge_migrate_info info = { .size = sizeof(info) };
	struct kedge_handle h;
	int rc;

	if (!atomic_load(&to->open))
		return;
	h = to->handle;
	do
		rc = kedge_region_migrate(o->region, &h, &opts, &info);
	while (rc == -EINPROGRESS);
	if (may_stay(rc)) {
		atomic_fetch_add(&o->w->stayed, 1);
		return;
	}
	if (!must(o, "migrate", rc))
		return;
	kedge_region_close(o->region);
	o->region = NULL;
	longest(&o->w->migrate_ns, info.pause_ns);
	atomic_fetch_add(&o->w->migrations, 1);
}

static bool stops(const struct own *o)
{
	return atomic_load(&o->w->stop);
}

/* Until the region is here, or all ends. */
static void wait_for_it(struct own *o)
{
	struct waves_invite *mine = &o->w->invite[o->i];
	struct kedge_invitation *inv;
	int rc;

	if (!must(o, "invite", kedge_invitation_open(NULL, &inv, &mine->handle))) {
		waves_nap(100000);
		return;
	}
	atomic_store(&mine->open, true);
	do
		rc = kedge_invitation_accept(inv, 1 + (int)(util_rng_next(&o->rng) % SLICE_MS),
					     &o->region);
	while (may_stay(rc) && !stops(o));
	atomic_store(&mine->open, false);
	kedge_invitation_close(inv);
	if (!stops(o))
		must(o, "accept", rc);
	if (!rc && find_addr(o))
		o->handle = o->w->handle;
}

/* ---- what it does ---- */

static void act(struct own *o)
{
	const uint64_t what = util_rng_next(&o->rng) % 100;

	if (what < 2)
		move(o);
	else if (what < 6)
		migrate(o);
	else if (what < 14)
		another_handle(o);
	else if (what < 24)
		change_len(o);
	else
		suspend(o);
	waves_nap((long)(util_rng_next(&o->rng) % 500));
}

/* The first region. */
static int create(struct own *o)
{
	int rc = kedge_region_create(WAVES_LEN, NULL, &o->region);

	if (!rc)
		rc = kedge_region_advertise(o->region, NULL, &o->handle);
	if (rc) {
		snprintf(o->w->found, sizeof(o->w->found), "%s", kedge_strerror(rc));
		return CMD_CANNOT;
	}
	if (!find_addr(o))
		return CMD_CANNOT;
	publish(o, &o->handle);
	return 0;
}

int waves_own(struct waves *w, unsigned int i)
{
	struct own o = { .w = w, .i = i };
	int rc;

	util_rng_init(&o.rng, w->seed ^ (WAVES_OWNERS * atomic_load(&w->owners) + i));
	rc = i ? 0 : create(&o);
	if (rc)
		return rc;
	while (!stops(&o)) {
		if (o.region)
			act(&o);
		else
			wait_for_it(&o);
	}
	kedge_region_close(o.region);
	return 0;
}
