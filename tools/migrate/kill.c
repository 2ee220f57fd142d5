// SPDX-License-Identifier: BSD-2-Clause
/*
 * A migration in which one process is killed, at any moment: a quarter of the kills come at any
 * time since the order, a quarter since the first bytes were sent, half of them as the owner
 * changes. There is one whole owner then, with all that was acknowledged, or the only process that
 * had the region was killed.
 */
#include <errno.h>
#include <signal.h>

#include "base/base.h"
#include "tools/migrate/run.h"

#define WORK_AFTER 20
#define ASK_MAX	   10 /* orders to an owner in doubt */

/** struct aim - the migration under way
 * @total, @pause: nanoseconds that another one took which was left alone
 * @invitation:    the target's
 * @migrated:      the owner has said @said, which is that it is over
 */
struct aim {
	uint64_t total;
	uint64_t pause;
	struct kedge_handle invitation;
	bool migrated;
	struct said said;
};

static int fault(struct run *r, const char *what, const char *why)
{
	load_found(r->load, &r->load->errors, "%s: %s", what, why);
	return RUN_OVER;
}

/* ---- the moment ---- */

/* The owner is heard until it says @kind, or that it is over; or until clock_ns() is @until. */
static int hear_owner(struct run *r, struct aim *a, uint32_t kind, uint64_t until)
{
	int rc;

	do {
		rc = talk_hear_until(&r->host[r->owner], &a->said, until);
		if (!rc && a->said.kind == SAY_PROGRESS)
			bar_draw(&r->bar, &a->said.info);
		a->migrated = !rc && a->said.kind == SAY_MIGRATED;
	} while (!rc && !a->migrated && a->said.kind != kind);
	return rc == -EPIPE ? fault(r, "the owner", "it has ended by itself") : rc;
}

/* A nap of up to @ns, or to the end of the migration. */
static int nap_below(struct run *r, struct aim *a, uint64_t ns)
{
	const uint64_t until = clock_ns() + (ns ? util_rng_below(&r->rng, ns) : 0);
	int rc = a->migrated ? 0 : hear_owner(r, a, SAY_MIGRATED, until);

	return rc == -ETIMEDOUT ? 0 : rc;
}

static int wait_for_moment(struct run *r, struct aim *a)
{
	const uint64_t hang = talk_hang(r);
	int rc;

	switch (util_rng_below(&r->rng, 4)) {
	case 0:
		return nap_below(r, a, a->total + a->total / 4);
	case 1:
		rc = hear_owner(r, a, SAY_PROGRESS, hang);
		rc = rc ? rc : nap_below(r, a, a->total);
		break;
	default:
		rc = hear_owner(r, a, SAY_FROZEN, hang);
		rc = rc ? rc : nap_below(r, a, 2 * a->pause);
	}
	return rc == -ETIMEDOUT ? fault(r, "the owner", "it is silent for minutes") : rc;
}

/* ---- the outcome ---- */

/* The host is killed; @said is the answer @kind if it had given that before. */
static int kill_host(struct run *r, unsigned int i, uint32_t kind, struct said *said)
{
	struct said s;
	int rc;

	kill(r->host[i].pid, SIGKILL);
	do {
		rc = talk_hear(r, &r->host[i], &s);
		if (!rc && s.kind == kind)
			*said = s;
	} while (!rc);
	run_kill(&r->host[i]);
	return rc == -EPIPE ? 0 : rc;
}

static int must_own(struct run *r)
{
	const struct order o = { .kind = DO_QUERY };
	struct said s;
	int rc = talk_ask(r, &r->host[r->owner], &o, SAY_DONE, &s);

	return !rc && s.rc ? fault(r, "no process owns the region", s.why) : rc;
}

/* The region has an owner, and all peers reach it but those that were killed. */
static int goes_on(struct run *r)
{
	int rc = must_own(r);

	if (!rc)
		rc = run_store(r);
	if (!rc)
		rc = run_work(r, WORK_AFTER);
	if (!rc)
		rc = run_pause(r, false);
	return rc ? rc : run_check(r, &r->handle, false);
}

/* The former owner cannot say where the region is, so a handle of the new owner's is taken. Peers
 * that were not told in time have failed. */
static int is_there(struct run *r)
{
	const struct order o = { .kind = DO_ADVERTISE };
	struct said s;
	int rc = must_own(r);

	if (!rc)
		rc = run_pause(r, true);
	if (!rc)
		rc = talk_must(r, &r->host[r->owner], &o, "advertise the region", &s);
	return rc ? rc : run_check(r, &s.handle, true);
}

static int kill_owner(struct run *r, struct aim *a, enum outcome *is)
{
	struct said s;
	bool gave;
	int rc = kill_host(r, r->owner, SAY_MIGRATED, &a->said);

	gave = a->said.kind == SAY_MIGRATED;
	if (!rc && gave && a->said.rc)
		rc = fault(r, "the migration failed", a->said.why);
	r->stores = false;
	r->owner = !r->owner;
	if (!rc)
		rc = talk_expect(r, &r->host[r->owner], SAY_ARRIVED, &s);
	if (rc)
		return rc;
	*is = s.rc ? REGION_ENDED : REGION_MOVED;
	if (!s.rc)
		return is_there(r);
	if (gave)
		return fault(r, "the region has gone, and has not come", s.why);
	return s.rc == -ECONNRESET || s.rc == -ETIMEDOUT ? 0 : fault(r, "the target", s.why);
}

/* The owner's word in the end; an owner in doubt is told to ask again. */
static int settle(struct run *r, struct aim *a)
{
	const struct order o = { .kind = DO_MIGRATE, .handle = a->invitation };
	int i, rc = 0;

	if (!a->migrated)
		rc = talk_expect(r, &r->host[r->owner], SAY_MIGRATED, &a->said);
	for (i = 0; !rc && a->said.rc == -EINPROGRESS && i < ASK_MAX; i++)
		rc = talk_ask(r, &r->host[r->owner], &o, SAY_MIGRATED, &a->said);
	return rc;
}

static int kill_target(struct run *r, struct aim *a, enum outcome *is)
{
	struct said arrived = { .kind = SAY_DONE };
	int rc = kill_host(r, !r->owner, SAY_ARRIVED, &arrived);

	if (!rc)
		rc = settle(r, a);
	r->stores = false;
	if (rc)
		return rc;
	*is = a->said.rc ? REGION_STAYED : REGION_ENDED;
	if (!a->said.rc)
		return 0;
	if (arrived.kind == SAY_ARRIVED && !arrived.rc) {
		load_found(r->load, &r->load->owners, "the target owned the region, and the owner "
			   "goes on: %s", a->said.why);
		return RUN_OVER;
	}
	if (a->said.rc != -ECONNRESET && a->said.rc != -ECONNREFUSED)
		return fault(r, "the migration failed", a->said.why);
	return goes_on(r);
}

static int kill_peer(struct run *r, struct aim *a, enum outcome *is)
{
	const unsigned int i = (unsigned int)util_rng_below(&r->rng, r->opts->peers);
	struct said s;
	int rc;

	atomic_store(&r->load->writer[i].killed, true);
	run_kill(&r->peer[i]);
	rc = settle(r, a);
	r->stores = false;
	if (!rc && a->said.rc)
		rc = fault(r, "the migration failed", a->said.why);
	if (!rc)
		rc = talk_expect(r, &r->host[!r->owner], SAY_ARRIVED, &s);
	if (!rc && s.rc)
		rc = fault(r, "the region has gone, and has not come", s.why);
	if (rc)
		return rc;
	r->owner = !r->owner;
	*is = REGION_MOVED;
	rc = move_one_owner(r);
	return rc ? rc : goes_on(r);
}

/* ---- all ---- */

static int kill_one(struct run *r, struct aim *a)
{
	struct order o = { .kind = DO_MIGRATE };
	enum outcome is = REGION_ENDED;
	int rc = move_invite(r, &o.handle);

	a->invitation = o.handle;
	a->migrated = false;
	a->said.kind = SAY_DONE;
	if (!rc)
		rc = proc_send(r->host[r->owner].fd, &o, sizeof(o));
	if (!rc)
		rc = wait_for_moment(r, a);
	if (rc)
		return rc;
	switch (r->opts->victim) {
	case VICTIM_OWNER:
		rc = kill_owner(r, a, &is);
		break;
	case VICTIM_TARGET:
		rc = kill_target(r, a, &is);
		break;
	default:
		rc = kill_peer(r, a, &is);
	}
	r->kills++;
	r->outcome[is] += !rc;
	return rc;
}

/* The time of a migration that is left alone is the measure of moments. */
static int measure(struct run *r, struct aim *a)
{
	struct move m = { .longest = 0 };
	int rc = run_begin(r);

	bar_begin(&r->bar, 0, r->opts->count, "kill");
	if (!rc)
		rc = move_there(r, &m);
	run_end(r);
	a->total = m.info.total_ns;
	a->pause = m.info.pause_ns;
	return rc;
}

int kill_all(struct run *r)
{
	struct aim a = { .total = 0 };
	unsigned int i;
	int rc = measure(r, &a);

	for (i = 0; !rc && i < r->opts->count; i++) {
		bar_begin(&r->bar, i + 1, r->opts->count, "kill");
		rc = run_begin(r);
		if (!rc)
			rc = kill_one(r, &a);
		run_end(r);
	}
	bar_wipe(&r->bar);
	return rc;
}
