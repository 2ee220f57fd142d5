// SPDX-License-Identifier: BSD-2-Clause
/*
 * The owner that gives its region away, step by step; wire.h has the messages. Up to COMMIT each
 * failure leaves it the owner: it says ABORT, and goes on. From then on it does not by itself.
 */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "base/base.h"
#include "region/migrate/arrival.h"
#include "region/migrate/job.h"
#include "region/watch/watch.h"

#define ABORT_MS 1000
#define TELL_MS	 1000
#define HEARD_MS 1000
#define NAP_NS	 20000000
#define COMMIT_BYTES_MS 65536 /* pages that are had in a millisecond, at the least */

/* ---- to the other process ---- */

static int say(struct job *j, enum msg_op op)
{
	const struct msg m = { .op = op, .id = j->id };

	return wire_send(&j->wire, &m, NULL, job_until(j));
}

static int hear_refusal(struct job *j, const struct msg *m)
{
	char why[REASON_LEN + 1] = { 0 };

	if (m->len > REASON_LEN || wire_read(&j->wire, why, m->len, job_until(j)))
		return job_lost(-EPROTO);
	return kedge_reason(m->rc == -EALREADY ? m->rc : -EREMOTEIO, "the process that the "
			    "invitation is of does not take the region: %s", why);
}

static int expect_until(struct job *j, enum msg_op op, uint64_t until)
{
	struct msg m;
	int rc = wire_hear(&j->wire, &m, until);

	if (rc)
		return job_lost(rc);
	if (m.op == MSG_REFUSE)
		return hear_refusal(j, &m);
	return m.op == op && m.id == j->id && !m.len ? 0 : job_lost(-EPROTO);
}

static int expect(struct job *j, enum msg_op op)
{
	return expect_until(j, op, job_until(j));
}

/* The other process has all the pages before it answers. */
static int offer(struct job *j)
{
	const uint64_t more = j->info.len / COMMIT_BYTES_MS * UINT64_C(1000000);
	const struct msg_begin b = { .region = j->r->id, .len = htole64(j->info.len),
				     .max_len = htole64(j->r->max_len),
				     .page_size = htole64(j->r->page_size) };
	const struct msg m = { .op = MSG_BEGIN, .id = j->id, .len = sizeof(b) };
	int rc = wire_send(&j->wire, &m, &b, job_until(j));

	return rc ? job_lost(rc) : expect_until(j, MSG_OK, job_until(j) + more);
}

static int meet(struct job *j)
{
	enum invite_state state;
	uint64_t id;
	int rc = wire_dial(&j->wire, &j->to, job_until(j), &state, &id);

	if (!rc && state == INVITE_OWNER)
		rc = kedge_reason(-EALREADY, "the invitation was used by another region");
	return rc ? rc : offer(j);
}

/* ---- handles ---- */

static void fill(struct msg_handle *h, const struct slot *s, uint64_t own)
{
	const uint64_t now = clock_ns();
	struct handle_words w;

	alias_words(s, own, &w);
	*h = (struct msg_handle){ .name = w.name, .slot = w.slot, .generation = w.generation,
				  .offset = s->offset, .len = s->len, .access = s->access,
				  .served = s->served };
	if (s->expires)
		h->left_ms = s->expires > now ? (s->expires - now) / 1000000u + 1 : 1;
	memcpy(h->key, s->key, sizeof(h->key));
}

/* All of them: while the region is leaving no other is added. */
static struct msg_handle *list_handles(struct job *j, uint64_t own, uint32_t *cnt)
{
	struct msg_handle *all;
	struct list *l, *tmp;
	uint32_t n = 0;

	sig_lock_blocked(&shares_lock);
	list_for_each_safe(l, tmp, &j->r->slots)
		n++;
	all = calloc(n ? n : 1, sizeof(*all));
	*cnt = 0;
	list_for_each_safe(l, tmp, &j->r->slots)
		if (all && !list_entry(l, struct slot, node)->revoked)
			fill(&all[(*cnt)++], list_entry(l, struct slot, node), own);
	sig_unlock_blocked(&shares_lock);
	return all;
}

static int send_handles(struct job *j)
{
	struct msg_handle *all;
	uint32_t cnt, at = 0, n;
	uint64_t own;
	int rc = serve_use(&own);

	if (rc)
		return rc;
	all = list_handles(j, own, &cnt);
	if (!all)
		return job_lost(-ENOMEM);
	for (; !rc && at < cnt; at += n) {
		n = cnt - at < HANDLES_MAX ? cnt - at : HANDLES_MAX;
		rc = wire_send_handles(&j->wire, j->id, all + at, n, job_until(j));
	}
	sodium_memzero(all, cnt * sizeof(*all));
	free(all);
	return rc ? job_lost(rc) : 0;
}

/* ---- the change ---- */

static int turn_out(struct job *j)
{
	char name[PEER_NAME];
	pid_t pid = 0;
	int rc = depart_begin(j->r, (int)j->o.timeout_ms, &pid);

	if (rc == -ETIMEDOUT)
		return kedge_reason(rc, "an access of %s was not over in %u ms: is it stopped?",
				    peer_name(pid, name), j->o.timeout_ms);
	return rc ? kedge_reason(rc, "no memory for a bit for each page") : 0;
}

/* A thread of the program's may have suspended it, and be about to resume it. */
static int stop_peers(struct job *j)
{
	const uint64_t until = job_until(j);
	int rc;

	do
		j->paused = clock_ns();
	while ((rc = depart_stop(j->r)) == -EBUSY && job_naps(until));
	return rc;
}

/* This process stores no more, and then peers wait. */
static int send_rest(struct job *j)
{
	int rc = job_freeze(j);

	if (!rc)
		rc = rounds_shut(j);
	if (rc)
		return rc;
	rc = stop_peers(j);
	if (!rc)
		rc = rounds_last(j);
	/* The other process is not given bytes that were never the region's. */
	if (!rc)
		rc = watch_look(j->r, 0, j->info.len);
	if (!rc)
		rc = send_handles(j);
	if (!rc && say(j, MSG_SYNC))
		rc = job_lost(-ECONNRESET);
	if (!rc)
		rc = expect(j, MSG_OK);
	lent_close(j);
	if (!rc && say(j, MSG_FINAL))
		rc = job_lost(-ECONNRESET);
	return rc ? rc : expect(j, MSG_READY);
}

/* The owner before this one may take the region for its own, if this process has ended. */
static int may_go_on(struct job *j)
{
	if (!j->r->from)
		return 0;
	if (!arrival_is_heard(j->r->from, job_until(j)))
		return kedge_reason(-ETIMEDOUT, "the process that the region came from has not "
				    "said that it knows, nor ended, and the region may not go on "
				    "before that: is it stopped, or its host gone?");
	j->r->from = NULL;
	return 0;
}

static int copy(struct job *j)
{
	int rc = may_go_on(j);

	if (!rc)
		rc = watch_look(j->r, 0, j->info.len);
	if (!rc)
		rc = meet(j);
	if (!rc)
		rc = lent_begin(j);
	if (!rc)
		rc = turn_out(j);
	if (!rc)
		watch_pause(j->r);
	if (!rc)
		rc = rounds_begin(j);
	if (!rc)
		rc = rounds_run(j);
	return rc ? rc : send_rest(j);
}

/* The region stays here. ABORT is said before an access is done again. */
static void stay(struct job *j, bool says)
{
	const struct msg m = { .op = MSG_ABORT, .id = j->id };

	lent_close(j);
	/* An end without ABORT could be taken for that of this process. */
	if (says && j->wire.fd >= 0 &&
	    wire_send(&j->wire, &m, NULL, clock_after_ms(ABORT_MS)))
		wire_break(&j->wire);
	wire_end(&j->wire);
	rounds_reopen(j);
	rounds_end(j);
	watch_go_on(j->r);
	if (j->r->stage != REGION_HERE)
		depart_end(j->r);
}

/* The other process ends the connection when it has heard; a HEARD on its way is lost with one that
 * is cut. */
static void be_heard(struct job *j)
{
	const struct timespec nap = { 0, NAP_NS };
	uint64_t until = clock_after_ms(HEARD_MS);
	enum invite_state state;
	struct msg m;
	uint64_t id;

	if (wire_hear(&j->wire, &m, until) == -EPIPE)
		return;
	until = clock_after_ms(HEARD_MS);
	while (clock_ns() < until) {
		wire_end(&j->wire);
		if (!wire_dial(&j->wire, &j->to, until, &state, &id) && !say(j, MSG_HEARD))
			return;
		nanosleep(&nap, NULL);
	}
}

static void leave(struct job *j, struct departure *d)
{
	struct owner_place to;

	handle_place(&j->to, &to);
	depart_to(j->r, &to, d);
	j->info.pause_ns = clock_ns() - j->paused;
	say(j, MSG_HEARD);
	/* To unmap takes time for each page: peers are not kept waiting for that. */
	rounds_end(j);
	sig_lock_blocked(&shares_lock);
	served_end(j->r);
	sig_unlock_blocked(&shares_lock);
	region_leave(j->r);
	be_heard(j);
	wire_end(&j->wire);
	telling_wait(TELL_MS);
}

/* ---- COMMIT, and what became of it ---- */

enum outcome { UNKNOWN, OURS, THEIRS };

static enum outcome commit(struct job *j)
{
	struct msg m;
	int rc = say(j, MSG_COMMIT);

	if (!rc)
		rc = wire_hear(&j->wire, &m, job_until(j));
	if (!rc && m.op == MSG_DONE && m.id == j->id)
		return THEIRS;
	/* By the connection of the copy: it would have said DONE before it served a peer. */
	return rc == -EPIPE && !j->asked ? OURS : UNKNOWN;
}

/* The end alone of the copy's connection could be taken for that of this process. */
static void let_go(struct job *j)
{
	if (!j->asked && j->wire.fd >= 0 && say(j, MSG_ASKS))
		wire_break(&j->wire);
	wire_end(&j->wire);
	j->asked = true;
}

static enum outcome ask(struct job *j, uint64_t until)
{
	enum invite_state state;
	uint64_t id;
	int rc;

	let_go(j);
	rc = wire_dial(&j->wire, &j->to, until, &state, &id);
	if (rc == -ECONNREFUSED || rc == -EKEYREJECTED)
		return OURS;
	if (rc)
		return UNKNOWN;
	if (id != j->id || state == INVITE_OPEN)
		return OURS;
	return state == INVITE_OWNER ? THEIRS : commit(j);
}

static enum outcome ask_long(struct job *j)
{
	const struct timespec nap = { 0, NAP_NS };
	const uint64_t until = job_until(j);
	enum outcome is = UNKNOWN;

	while (is == UNKNOWN && clock_ns() < until) {
		is = ask(j, until);
		if (is == UNKNOWN)
			nanosleep(&nap, NULL);
	}
	return is;
}

static int settle(struct job *j, enum outcome is, struct departure *d)
{
	if (is == UNKNOWN)
		is = ask_long(j);
	switch (is) {
	case THEIRS:
		leave(j, d);
		return 0;
	case OURS:
		free(d);
		stay(j, false);
		return kedge_reason(-ECONNRESET, "the process that the invitation is of ended, or "
				    "gave up, before it owned the region, which stays");
	case UNKNOWN:
		break;
	}
	free(d);
	let_go(j);
	rounds_end(j);
	return kedge_reason(-EINPROGRESS, "the process that the invitation is of does not say "
			    "whether it owns the region: call kedge_region_migrate() again with "
			    "this invitation");
}

/* The memory to tell peers by is had before COMMIT, behind which no step may fail. */
static int ready_to_leave(struct departure **d)
{
	int rc = departures_hold();

	if (rc)
		return rc;
	*d = calloc(1, sizeof(**d));
	return *d ? 0 : kedge_reason(-ENOMEM, "no memory to tell peers by");
}

static void tell_of(struct job *j)
{
	j->r->doubt = (struct doubt){ .id = j->id, .number = j->to.generation,
				      .name = j->to.name };
}

/* It may have failed because a part of it is missing. */
static int look_why(struct job *j, int rc)
{
	if (watch_look(j->r, 0, j->info.len) != -ENODATA)
		return rc;
	snprintf(j->reason, sizeof(j->reason), "%s", kedge_strerror(-ENODATA));
	return -ENODATA;
}

void job_migrate(struct job *j)
{
	struct departure *d = NULL;
	int rc = ready_to_leave(&d);

	randombytes_buf(&j->id, sizeof(j->id));
	if (!rc)
		rc = copy(j);
	if (rc) {
		snprintf(j->reason, sizeof(j->reason), "%s", kedge_strerror(rc));
		rc = look_why(j, rc);
		free(d);
		stay(j, true);
	} else {
		tell_of(j);
		d->until = clock_after_ms(j->o.forward_ms);
		rc = settle(j, commit(j), d);
	}
	j->rc = rc;
}

void job_settle(struct job *j)
{
	struct departure *d = NULL;
	int rc = ready_to_leave(&d);

	j->id = j->r->doubt.id;
	j->paused = clock_ns();
	j->shut = true;
	if (!rc) {
		d->until = clock_after_ms(j->o.forward_ms);
		rc = settle(j, UNKNOWN, d);
	} else {
		rc = kedge_reason(-EINPROGRESS, "no memory to ask who owns the region");
	}
	j->rc = rc;
}
