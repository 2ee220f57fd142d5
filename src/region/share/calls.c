// SPDX-License-Identifier: BSD-2-Clause
/* Handles of regions and suspensions, as the program has them. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/share/share.h"
#include "region/watch/watch.h"

#define OPTS_V1 STRUCT_END(struct kedge_handle_opts, expires_ms)
#define FLAGS	KEDGE_HANDLE_SERVED
#define ALL	(KEDGE_HANDLE_READ | KEDGE_HANDLE_WRITE | KEDGE_HANDLE_ATOMIC)
#define MOST_MS (UINT64_MAX / 4000000u)
#define NAP_NS	1000000

static int check_part(const struct kedge_region *r, const struct kedge_handle_opts *o)
{
	if (o->access & ~ALL)
		return kedge_reason(-EINVAL, "an access is unknown");
	if (o->flags & ~FLAGS || o->pad)
		return kedge_reason(-EINVAL, "a flag is unknown");
	if (o->offset % 8)
		return kedge_reason(-EINVAL, "the offset is no multiple of 8");
	if (o->offset >= r->max_len || o->len > r->max_len - o->offset)
		return kedge_reason(-EINVAL, "the region can grow to %" PRIu64 " bytes, and the "
				    "part ends behind that", r->max_len);
	return 0;
}

static void fill(struct slot *s, const struct kedge_handle_opts *o)
{
	s->access = o->access ? o->access : ALL;
	s->offset = o->offset;
	s->len = o->len ? o->len : s->region->max_len - o->offset;
	s->served = o->flags & KEDGE_HANDLE_SERVED;
	s->expires = o->expires_ms && o->expires_ms < MOST_MS
			     ? clock_ns() + o->expires_ms * 1000000u : 0;
}

/* With shares_lock, once its handles are not on their way to another owner: or -EREMCHG, and they
 * are there. */
static int lock_settled(struct kedge_region *r)
{
	const struct timespec nap = { 0, NAP_NS };
	bool doubt;

	for (;;) {
		sig_lock(&shares_lock);
		if (r->stage < REGION_LEAVING)
			return 0;
		doubt = r->stage == REGION_LEAVING;
		sig_unlock(&shares_lock);
		if (!doubt)
			return region_refused(-EREMCHG);
		sig_lock(&r->lock);
		doubt = r->refuses == -EINPROGRESS;
		sig_unlock(&r->lock);
		if (doubt)
			return region_refused(-EINPROGRESS);
		nanosleep(&nap, NULL);
	}
}

/* One that migrates is watched where it stays. */
static int watch(struct kedge_region *r)
{
	int rc = 0;

	sig_lock(&r->lock);
	if (!r->refuses)
		rc = watch_begin(r);
	sig_unlock(&r->lock);
	return rc;
}

static int advertise(struct kedge_region *r, const struct kedge_handle_opts *o,
		     struct kedge_handle *out)
{
	struct handle_words w = { .zero = 0 };
	struct slot *s;
	int rc = handle_host(&w.host);

	if (!rc)
		rc = serve_use(&w.name);
	if (!rc && o->node)
		rc = place_use(o->node, o->service, &w);
	if (!rc)
		rc = watch(r);
	if (rc)
		return rc;
	rc = lock_settled(r);
	if (rc)
		return rc;
	if (!r->id)
		randombytes_buf(&r->id, sizeof(r->id));
	s = slot_make(r, &rc);
	if (s) {
		w.region = r->id;
		fill(s, o);
		w.slot = s->index;
		w.generation = s->generation;
		memcpy(w.key, s->key, sizeof(w.key));
	}
	sig_unlock(&shares_lock);
	if (!rc)
		handle_write(&w, out);
	return rc;
}

KEDGE_API int kedge_region_advertise(struct kedge_region *r,
				     const struct kedge_handle_opts *user,
				     struct kedge_handle *out)
{
	struct kedge_handle_opts o;
	int rc = region_check(r);

	NO_CANCEL();
	if (!rc && !out)
		rc = kedge_reason(-EINVAL, "the result is NULL");
	if (!rc)
		rc = kedge__opts_copy(&o, sizeof(o), OPTS_V1, user);
	if (!rc)
		rc = check_part(r, &o);
	return rc ? rc : advertise(r, &o, out);
}

/* Expired ones, too. */
static struct slot *slot_of(struct kedge_region *r, const struct handle_words *w)
{
	struct slot *s = NULL;
	int rc = slot_find(w, &s);

	return (!rc || rc == -EKEYEXPIRED) && s->region == r ? s : NULL;
}

static int revoke_handle(struct kedge_region *r, const struct handle_words *w)
{
	char name[PEER_NAME];
	struct slot *s;
	pid_t pid = 0;
	int rc = lock_settled(r);

	if (rc)
		return rc;
	s = slot_of(r, w);
	if (s) {
		/* It opens no more from now on, and is not free yet. */
		s->revoked = true;
		gates_end(s, EKEYREVOKED);
	}
	sig_unlock(&shares_lock);
	if (!s)
		return kedge_reason(-ENOENT, "the region has no such handle");
	rc = gates_wait(r, s, PATIENCE_MS, &pid);
	gates_cut(r, s);
	sig_lock(&shares_lock);
	gates_part(s);
	slot_free(s);
	r->counts.revoked++;
	sig_unlock(&shares_lock);
	return rc ? kedge_reason(rc, "the handle is revoked, and an access of %s that had begun is "
				 "not over: is it stopped?", peer_name(pid, name)) : 0;
}

KEDGE_API int kedge_region_revoke(struct kedge_region *r, const struct kedge_handle *h)
{
	struct handle_words w;
	int rc = region_check(r);

	NO_CANCEL();
	if (!rc && !h)
		rc = kedge_reason(-EINVAL, "the handle is NULL");
	if (!rc && !handle_read(h, &w))
		rc = kedge_reason(-ENOENT, "it is no handle");
	return rc ? rc : revoke_handle(r, &w);
}

/* It has not migrated. */
static int check_here(struct kedge_region *r)
{
	int rc = region_check(r);

	if (rc)
		return rc;
	sig_lock(&shares_lock);
	rc = r->stage == REGION_LEFT ? -EREMCHG : 0;
	sig_unlock(&shares_lock);
	return rc ? region_refused(rc) : 0;
}

static void count_suspension(struct kedge_region *r)
{
	sig_lock(&shares_lock);
	r->counts.suspensions++;
	sig_unlock(&shares_lock);
}

KEDGE_API int kedge_region_suspend(struct kedge_region *r, int timeout_ms)
{
	char name[PEER_NAME];
	int rc = check_here(r);
	pid_t pid = 0;

	NO_CANCEL();
	if (rc)
		return rc;
	if (gates_close(r, timeout_ms, &pid))
		return kedge_reason(-ETIMEDOUT, "an access of %s was not over in %d ms: is it "
				    "stopped?", peer_name(pid, name), timeout_ms);
	count_suspension(r);
	return 0;
}

KEDGE_API int kedge_region_resume(struct kedge_region *r)
{
	int rc = check_here(r);

	NO_CANCEL();
	if (rc)
		return rc;
	return gates_open(r) ? 0 : kedge_reason(-EINVAL, "the region is not suspended");
}
