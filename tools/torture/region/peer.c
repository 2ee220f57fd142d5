// SPDX-License-Identifier: BSD-2-Clause
/* The peers of kedge torture --region. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/torture/region/waves.h"

void waves_found(struct waves *w, _Atomic uint64_t *cnt, const char *fmt, ...)
{
	va_list ap;

	if (atomic_fetch_add(cnt, 1) || *w->found)
		return;
	va_start(ap, fmt);
	vsnprintf(w->found, sizeof(w->found), fmt, ap);
	va_end(ap);
}

void waves_nap(long us)
{
	const struct timespec t = { 0, us * 1000 };

	nanosleep(&t, NULL);
}

/* ---- a peer ---- */

struct visit {
	struct waves *w;
	struct waves_peer *p;
	unsigned int i;
	uint64_t life;
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
	return kedge_remote_open(&h, WAVES_LIMIT_MS, &v->r);
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
		waves_nap(1000);
		return;
	}
	if (!is_over(v, rc) && !atomic_load(&v->w->stop))
		waves_found(v->w, &v->w->errors, "%s: %s", what, kedge_strerror(rc));
}

/* Of the same owner before and after: another one's count begins anew. */
static int add(struct visit *v)
{
	int rc = kedge_remote_fetch_add(v->r, 0, 1, NULL, WAVES_LIMIT_MS);

	if (!rc)
		atomic_fetch_add(&v->p->added, 1);
	return rc;
}

/* Some of its own values, at places all over the region as well, and back. */
static int put_and_get(struct visit *v)
{
	const uint64_t span = WAVES_LEN / WAVES_BLOCK / (WAVES_PEERS + 1);
	uint64_t at = waves_place(v->i);
	int rc;

	if (util_rng_next(&v->rng) % 2)
		at = (1 + v->i + (WAVES_PEERS + 1) * (util_rng_next(&v->rng) % (span - 1))) *
		     WAVES_BLOCK;
	memset(v->block, (int)(util_rng_next(&v->rng) & 0xff), sizeof(v->block));
	rc = kedge_remote_put(v->r, at, v->block, sizeof(v->block), WAVES_LIMIT_MS);
	if (rc)
		return rc;
	if (at == waves_place(v->i))
		atomic_store(&v->p->sure, v->life);
	rc = kedge_remote_get(v->r, at, v->got, sizeof(v->got), WAVES_LIMIT_MS);
	if (!rc && memcmp(v->block, v->got, sizeof(v->got)) != 0)
		waves_found(v->w, &v->w->lost, "peer %u reads %u, where it had put %u", v->i,
			    v->got[0], v->block[0]);
	return rc;
}

/* A region that comes and goes: refused, or there. */
static int reach_far(struct visit *v)
{
	int rc = kedge_remote_put(v->r, WAVES_MORE - 8 - 8 * v->i, v->block, 8, WAVES_LIMIT_MS);

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
	struct visit v = { .w = w, .p = &w->peer[i], .i = i,
			   .life = atomic_load(&w->peer[i].life) };
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
