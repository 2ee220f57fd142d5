// SPDX-License-Identifier: BSD-2-Clause
/* The peers and the owner of kedge torture --region. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/torture/region/waves.h"

#define LIMIT_MS 60000 /* an access that takes so long is an error */

void waves_found(struct waves *w, _Atomic uint64_t *cnt, const char *fmt, ...)
{
	va_list ap;

	if (atomic_fetch_add(cnt, 1) || *w->found)
		return;
	va_start(ap, fmt);
	vsnprintf(w->found, sizeof(w->found), fmt, ap);
	va_end(ap);
}

static void nap(long us)
{
	const struct timespec t = { 0, us * 1000 };

	nanosleep(&t, NULL);
}

/* ---- a peer ---- */

struct visit {
	struct waves *w;
	struct waves_peer *p;
	unsigned int i;
	struct kedge_remote *r;
	uint64_t turn;
	struct util_rng rng;
	unsigned char block[WAVES_BLOCK];
	unsigned char got[WAVES_BLOCK];
};

/* The handle that there is now. */
static int open_handle(struct visit *v)
{
	struct kedge_handle h;

	kedge_remote_close(v->r);
	v->r = NULL;
	v->turn = atomic_load(&v->w->turn);
	if (v->turn % 2 || !v->turn)
		return -EAGAIN;
	h = v->w->handle;
	if (atomic_load(&v->w->turn) != v->turn)
		return -EAGAIN;
	return kedge_remote_open(&h, LIMIT_MS, &v->r);
}

/* The handle was replaced; all else is an error, but at the end. */
static bool is_over(struct visit *v, int rc)
{
	return atomic_load(&v->w->turn) != v->turn &&
	       (rc == -EKEYREVOKED || rc == -EKEYREJECTED);
}

static void check_rc(struct visit *v, const char *what, int rc)
{
	/* The owner was killed, and it is not known here yet. */
	if (rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -EAGAIN) {
		nap(1000);
		return;
	}
	if (!is_over(v, rc) && !atomic_load(&v->w->stop))
		waves_found(v->w, &v->w->errors, "%s: %s", what, kedge_strerror(rc));
}

static uint64_t place(unsigned int i)
{
	return (i + 1) * WAVES_BLOCK;
}

/* Of the same owner before and after: another one's count begins anew. */
static int add(struct visit *v)
{
	int rc = kedge_remote_fetch_add(v->r, 0, 1, NULL, LIMIT_MS);

	if (!rc)
		atomic_fetch_add(&v->p->added, 1);
	return rc;
}

/* Some of its own values, at places all over the region as well, and back. */
static int put_and_get(struct visit *v)
{
	const uint64_t span = WAVES_LEN / WAVES_BLOCK / (WAVES_PEERS + 1);
	uint64_t at = place(v->i);
	int rc;

	if (util_rng_next(&v->rng) % 2)
		at = (1 + v->i + (WAVES_PEERS + 1) * (util_rng_next(&v->rng) % (span - 1))) *
		     WAVES_BLOCK;
	memset(v->block, (int)(util_rng_next(&v->rng) & 0xff), sizeof(v->block));
	rc = kedge_remote_put(v->r, at, v->block, sizeof(v->block), LIMIT_MS);
	if (rc)
		return rc;
	if (at == place(v->i))
		atomic_store(&v->p->unsure, false);
	rc = kedge_remote_get(v->r, at, v->got, sizeof(v->got), LIMIT_MS);
	if (!rc && memcmp(v->block, v->got, sizeof(v->got)) != 0)
		waves_found(v->w, &v->w->lost, "peer %u reads %u, where it had put %u", v->i,
			    v->got[0], v->block[0]);
	return rc;
}

/* What comes and goes: refused, or there. */
static int reach_far(struct visit *v)
{
	int rc = kedge_remote_put(v->r, WAVES_MORE - 8 - 8 * v->i, v->block, 8, LIMIT_MS);

	if (rc == -EFAULT) {
		atomic_fetch_add(&v->p->beyond, 1);
		return 0;
	}
	return rc;
}

static int work(struct visit *v)
{
	switch (util_rng_next(&v->rng) % 4) {
	case 0:
		return add(v);
	case 1:
		return reach_far(v);
	default:
		return put_and_get(v);
	}
}

int waves_visit(struct waves *w, unsigned int i)
{
	struct visit v = { .w = w, .p = &w->peer[i], .i = i };
	int rc = -EAGAIN;

	util_rng_init(&v.rng, w->seed + i + 1);
	while (!atomic_load(&w->stop)) {
		if (!v.r) {
			rc = open_handle(&v);
			atomic_fetch_add(&v.p->opened, !rc);
		} else {
			rc = work(&v);
			atomic_fetch_add(&v.p->ops, !rc);
		}
		if (!rc)
			continue;
		check_rc(&v, "a peer", rc);
		kedge_remote_close(v.r);
		v.r = NULL;
	}
	kedge_remote_close(v.r);
	return 0;
}

/* ---- the owner ---- */

struct own {
	struct waves *w;
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
		unsure[i] = atomic_load(&o->w->peer[i].unsure);
		if (!unsure[i] && !is_whole(saved + place(i)))
			waves_found(o->w, &o->w->torn, "the block of peer %u is torn", i);
	}
	memset((void *)(uintptr_t)o->at, 0xa5, sizeof(saved));
	nap((long)(util_rng_next(&o->rng) % 50));
	for (i = 0; i < sizeof(saved); i += 64)
		if (o->at[i] != 0xa5)
			waves_found(o->w, &o->w->torn, "a peer stores in a suspended region");
	memcpy((void *)(uintptr_t)o->at, saved, sizeof(saved));
}

static void suspend(struct own *o)
{
	if (!must(o, "suspend", kedge_region_suspend(o->region, LIMIT_MS)))
		return;
	look(o);
	must(o, "resume", kedge_region_resume(o->region));
	atomic_fetch_add(&o->w->suspensions, 1);
}

static void move(struct own *o)
{
	uint64_t pause = 0;

	if (!must(o, "move", kedge_region_move(o->region, NULL, LIMIT_MS, &pause)))
		return;
	if (pause > atomic_load(&o->w->pause_ns))
		atomic_store(&o->w->pause_ns, pause);
	atomic_fetch_add(&o->w->moves, 1);
}

static void change_len(struct own *o)
{
	if (!must(o, "grow", kedge_region_grow(o->region, WAVES_MORE)))
		return;
	nap((long)(util_rng_next(&o->rng) % 200));
	must(o, "trim", kedge_region_trim(o->region, WAVES_LEN));
	atomic_fetch_add(&o->w->lengths, 1);
}

static void act(struct own *o)
{
	const uint64_t what = util_rng_next(&o->rng) % 100;

	if (what < 2)
		move(o);
	else if (what < 10)
		another_handle(o);
	else if (what < 20)
		change_len(o);
	else
		suspend(o);
	nap((long)(util_rng_next(&o->rng) % 500));
}

int waves_own(struct waves *w)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	struct own o = { .w = w };
	int rc = kedge_region_create(WAVES_LEN, NULL, &o.region);

	util_rng_init(&o.rng, w->seed ^ atomic_load(&w->owners));
	if (!rc)
		rc = kedge_region_query(o.region, &info);
	if (!rc)
		rc = kedge_region_advertise(o.region, NULL, &o.handle);
	if (rc) {
		snprintf(w->found, sizeof(w->found), "%s", kedge_strerror(rc));
		return CMD_CANNOT;
	}
	o.at = (volatile unsigned char *)(uintptr_t)info.addr;
	publish(&o, &o.handle);
	while (!atomic_load(&w->stop))
		act(&o);
	kedge_region_close(o.region);
	return 0;
}
