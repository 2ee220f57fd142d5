// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region comes to this process, step by step; wire.h has the messages. The copy is a region of
 * this process's from the beginning, with its pages and its budget; its peers wait, and it is
 * closed again if it does not become this process's own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/base.h"
#include "region/migrate/arrival.h"
#include "region/watch/watch.h"

#define SLICE_NS UINT64_C(50000000)
#define HEARD_NS UINT64_C(1000000000)

static int lost(int rc)
{
	switch (rc) {
	case -ETIMEDOUT:
		return kedge_reason(rc, "the region was not here in time");
	case -EPIPE:
	case -ECONNRESET:
		return kedge_reason(-ECONNRESET, "the connection to the region's owner was lost "
				    "before all of it was here");
	case -EPROTO:
		return kedge_reason(rc, "the region's owner does not keep to the protocol");
	}
	return kedge_reason(rc, "no memory for what is received: error %d", -rc);
}

static int say(struct arrival *a, enum msg_op op)
{
	const struct msg m = { .op = op, .id = a->id };

	return wire_send(&a->wire, &m, NULL, a->until);
}

/* @rc with its reason, which the owner is told. */
static int refuse(struct arrival *a, int rc)
{
	char why[REASON_LEN];
	struct msg m = { .op = MSG_REFUSE, .id = a->id, .rc = rc };

	snprintf(why, sizeof(why), "%s", kedge_strerror(rc));
	m.len = strlen(why);
	wire_send(&a->wire, &m, why, a->until);
	return kedge_reason(rc, "%s", why);
}

static int hear_begin(struct arrival *a)
{
	struct msg_begin b;
	struct msg m;
	int rc = wire_hear(&a->wire, &m, a->until);

	if (!rc && (m.op != MSG_BEGIN || m.len != sizeof(b)))
		rc = -EPROTO;
	if (!rc)
		rc = wire_read(&a->wire, &b, sizeof(b), a->until);
	if (rc)
		return lost(rc);
	a->id = m.id;
	a->region_id = b.region;
	a->len = le64toh(b.len);
	a->max_len = le64toh(b.max_len);
	a->page_size = le64toh(b.page_size);
	return 0;
}

/* Its peers wait until it is this process's. */
static int make_region(struct arrival *a)
{
	const struct kedge_region_opts o = {
		.size = sizeof(o), .max_len = a->max_len,
		.page_size = a->page_size == kedge__page_size() ? 0 : a->page_size,
	};
	int rc;

	if (a->most && a->len > a->most)
		return refuse(a, kedge_reason(-EFBIG, "the region has %llu bytes, and the "
					      "invitation is for %llu",
					      (unsigned long long)a->len,
					      (unsigned long long)a->most));
	rc = kedge_region_create(a->len, &o, &a->r);
	if (rc)
		return refuse(a, rc);
	sig_lock(&shares_lock);
	a->r->stage = REGION_LEAVING;
	a->r->comes = true;
	a->r->counts.migrations++;
	a->r->id = a->region_id;
	sig_unlock(&shares_lock);
	rc = say(a, MSG_OK);
	return rc ? lost(rc) : 0;
}

/* ---- what it consists of ---- */

static void fill(struct slot *s, const struct msg_handle *h)
{
	s->access = h->access;
	s->offset = h->offset;
	s->len = h->len;
	s->served = h->served;
	if (h->left_ms && h->left_ms < UINT64_MAX / 4000000u)
		s->expires = clock_after_ms(h->left_ms);
	memcpy(s->key, h->key, sizeof(s->key));
}

/* With shares_lock. */
static int add_handle(struct arrival *a, const struct msg_handle *h)
{
	struct slot *s;
	int rc;

	if (h->access & ~(KEDGE_HANDLE_READ | KEDGE_HANDLE_WRITE | KEDGE_HANDLE_ATOMIC) ||
	    h->offset % 8 || h->offset >= a->r->max_len || h->len > a->r->max_len - h->offset)
		return -EPROTO;
	s = slot_make(a->r, &rc);
	if (!s)
		return rc;
	fill(s, h);
	rc = alias_make(h->name, h->slot, h->generation, s);
	if (rc)
		slot_free(s);
	return rc;
}

static int read_handles(struct arrival *a, const struct msg *m)
{
	static const struct msg_handle none;
	struct msg_handle *h = calloc(HANDLES_MAX, sizeof(none));
	uint64_t i;
	int rc = h ? wire_read_handles(&a->wire, m, h, a->until) : -ENOMEM;

	sig_lock_blocked(&shares_lock);
	for (i = 0; !rc && i < m->off; i++)
		rc = add_handle(a, &h[i]);
	sig_unlock_blocked(&shares_lock);
	if (h)
		sodium_memzero(h, HANDLES_MAX * sizeof(none));
	free(h);
	return rc;
}

static int given_up(void)
{
	return kedge_reason(-ECANCELED, "the region's owner has given up, and keeps it");
}

/* Up to FINAL: 0, or a negative errno with its reason. */
static int receive(struct arrival *a)
{
	struct msg m;
	int rc;

	do {
		rc = wire_hear(&a->wire, &m, a->until);
		if (!rc && m.id != a->id)
			rc = -EPROTO;
		if (rc)
			break;
		switch (m.op) {
		case MSG_DATA:
			rc = wire_read_runs(&a->wire, &m, a->r->at, a->r->len, a->until);
			break;
		case MSG_HANDLES:
			rc = read_handles(a, &m);
			break;
		case MSG_SYNC:
			rc = say(a, MSG_OK);
			break;
		case MSG_BORROW:
			rc = arrival_lend(a, &m);
			break;
		case MSG_UNLEND:
			arrival_unlend(a);
			rc = say(a, MSG_OK);
			break;
		case MSG_FINAL:
			arrival_unlend(a);
			return 0;
		case MSG_ABORT:
			return given_up();
		default:
			rc = -EPROTO;
		}
	} while (!rc);
	return lost(rc);
}

/* ---- the change of the owner ---- */

/*
 * DONE comes before a peer is served: an owner that hears the end of the connection without it
 * takes the region for its own again. So where it cannot be written the region is not taken. But
 * no peer that the former owner sends here may come before its handle is known. So all is done with
 * shares_lock, which all requests wait for. DONE finds room in the socket: it is the first message
 * since OK was read.
 */
static bool own(struct arrival *a, bool says)
{
	const struct msg m = { .op = MSG_DONE, .id = a->id };
	bool owns;

	sig_lock_blocked(&shares_lock);
	owns = !says || !wire_send(&a->wire, &m, NULL, 0);
	if (owns) {
		a->invite->state = INVITE_OWNER;
		a->invite->id = a->id;
		arrive(a->r);
	}
	sig_unlock_blocked(&shares_lock);
	return owns;
}

/*
 * The former owner knows, or has ended: true, and the connection is closed. A silent one is kept
 * for later; also that of a process that shows the invitation, and is another: its end is no proof,
 * as it is not @copy's.
 */
static bool hear_heard(struct wire *w, struct invite *i, bool copy, uint64_t until)
{
	struct msg m;
	int rc = wire_hear(w, &m, until);
	const bool heard = rc ? copy && rc == -EPIPE : m.op == MSG_HEARD && m.id == i->id;
	struct invite_conn c = { .fd = w->fd, .tcp = w->tcp, .copy = copy };

	memcpy(c.seal, w->seal, SEAL_LEN);
	if (rc == -ETIMEDOUT && w->whole && invite_keep(i, &c))
		w->fd = -1;
	wire_end(w);
	return heard;
}

bool arrival_is_heard(struct invite *i, uint64_t until)
{
	struct invite_conn c;
	struct wire w;
	bool heard = false;

	while (!heard && clock_ns() < until && invite_wait(i, until)) {
		if (!invite_take(i, &c))
			continue;
		wire_begin(&w, c.fd, c.tcp, c.seal);
		heard = hear_heard(&w, i, c.copy, until);
	}
	return heard;
}

/* Another connection: of the same owner, that asks. */
static bool take_another(struct arrival *a)
{
	struct invite_conn c;

	if (!invite_take(a->invite, &c))
		return false;
	wire_end(&a->wire);
	wire_begin(&a->wire, c.fd, c.tcp, c.seal);
	return true;
}

/* 1: the connection is lost, and another may come. */
static int hear_verdict(struct arrival *a)
{
	struct msg m;
	int rc = wire_hear(&a->wire, &m, a->until);

	if (!rc && m.op == MSG_COMMIT && m.id == a->id && own(a, true)) {
		if (!hear_heard(&a->wire, a->invite, a->first, clock_ns() + HEARD_NS))
			a->r->from = a->invite;
		return 0;
	}
	if (!rc && m.op == MSG_ABORT && m.id == a->id)
		return given_up();
	/* All that the owner's process has said is read: it has ended, while its peers waited. */
	if (rc == -EPIPE && a->first)
		return !own(a, false);
	a->first = false;
	wire_end(&a->wire);
	return 1;
}

/* Before a peer comes, which could not have the memory else. The region stays, whether or not it
 * can be watched. */
static void watch(struct kedge_region *r)
{
	sig_lock(&r->lock);
	if (watch_begin(r))
		kedge__log(KEDGE_LOG_WARN, "a region that has come is not watched: no descriptor, "
			   "memory or thread is to be had");
	sig_unlock(&r->lock);
}

/*
 * The copy is whole. Without a verdict it is given up in the end, and an owner that asks then is
 * told so: it has it still.
 */
static int decide(struct arrival *a)
{
	int rc = 1;

	watch(a->r);
	a->first = true;
	invite_is(a->invite, INVITE_WHOLE, a->id);
	/* A local socket has all that the owner has said, also where that has ended. */
	if (say(a, MSG_READY) && a->wire.tcp) {
		a->first = false;
		wire_end(&a->wire);
	}
	while (rc == 1 && clock_ns() < a->until) {
		if (take_another(a))
			a->first = false;
		if (a->wire.fd < 0)
			invite_wait(a->invite, a->until);
		else if (wire_wait(&a->wire, clock_ns() + SLICE_NS))
			rc = hear_verdict(a);
	}
	if (rc)
		invite_is(a->invite, INVITE_OPEN, 0);
	/* One that has come since is turned away by the end of its connection. */
	if (rc && take_another(a))
		wire_end(&a->wire);
	return rc == 1 ? lost(-ETIMEDOUT) : rc;
}

static int one(struct arrival *a)
{
	int rc = hear_begin(a);

	if (!rc)
		rc = make_region(a);
	if (!rc)
		rc = receive(a);
	if (!rc)
		rc = decide(a);
	wire_end(&a->wire);
	if (!rc)
		return 0;
	snprintf(a->reason, sizeof(a->reason), "%s", kedge_strerror(rc));
	arrival_unlend(a);
	kedge_region_close(a->r);
	a->r = NULL;
	return rc;
}

void arrival_run(struct arrival *a)
{
	if (!invite_wait(a->invite, a->until)) {
		a->rc = -ETIMEDOUT;
		snprintf(a->reason, sizeof(a->reason), "no owner has come with the invitation");
		return;
	}
	take_another(a);
	a->rc = one(a);
}
