// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region on its way to another owner, as its peers have it. First those that have the memory are
 * turned out of it: no one else sees what they store. They come again, and the thread of serve.c
 * does their accesses, which are noted in @dirty. Then those wait; and when the region has another
 * owner all are told where: those that are connected at once, so that it does not matter how long
 * this process lives on, and others that come with a handle, for a time.
 */
#include <stdlib.h>

#include <sodium.h>

#include "base/base.h"
#include "region/keeper.h"
#include "region/share/share.h"

static struct list departures = { &departures, &departures }; /* guarded by shares_lock */
static struct sig_lock hold_lock = SIG_LOCK_INIT; /* taken before any other; guards: */
static bool holds;

int depart_begin(struct kedge_region *r, int timeout_ms, pid_t *pid)
{
	const uint64_t pages = r->len / kedge__page_size();
	uint64_t *bits = calloc(pages / 64 + 1, sizeof(*bits));
	int rc;

	if (!bits)
		return -ENOMEM;
	sig_lock(&shares_lock);
	r->stage = REGION_SERVED;
	r->counts.migrations++;
	r->dirty = bits;
	gates_turn_out(r, -REGION_BY_STREAM, NULL);
	sig_unlock(&shares_lock);
	rc = gates_wait(r, NULL, timeout_ms, pid);
	if (rc)
		depart_end(r);
	return rc;
}

/* Peers of a region that is suspended do not go on before the program says so, here. */
static int check_open(const struct kedge_region *r)
{
	return r->suspended ? kedge_reason(-EBUSY, "the region is suspended: kedge_region_resume() "
					   "it before it migrates") : 0;
}

int depart_may(struct kedge_region *r)
{
	int rc;

	sig_lock(&shares_lock);
	rc = r->stage == REGION_HERE ? check_open(r) : 0;
	sig_unlock(&shares_lock);
	return rc;
}

int depart_stop(struct kedge_region *r)
{
	int rc;

	sig_lock(&shares_lock);
	rc = check_open(r);
	if (!rc)
		r->stage = REGION_LEAVING;
	sig_unlock(&shares_lock);
	return rc;
}

/* With shares_lock. */
static void tell_peers(struct kedge_region *r, const struct owner_place *to)
{
	struct list *l, *tmp;
	struct conn *c;

	gates_turn_out(r, -REGION_MOVED, to);
	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		c->moved = true;
		c->to = *to;
		if (c->stream)
			telling_begin(c);
		gate_take(c);
	}
}

/* With shares_lock. A revoked one has no peer to be told. */
static void take_slots(struct kedge_region *r, struct departure *d)
{
	struct list *l, *tmp;
	struct slot *s;

	list_for_each_safe(l, tmp, &r->slots) {
		s = list_entry(l, struct slot, node);
		list_remove(&s->node);
		r->counts.handles--;
		s->region = NULL;
		s->left = d;
		list_add_tail(&d->slots, &s->node);
	}
}

/* With shares_lock. Peers that were turned out of the memory may have it again: they are told that
 * the region is where it is. */
static void call_back(struct kedge_region *r, const struct owner_place *here)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &r->conns) {
		c = list_entry(l, struct conn, of_region);
		if (!c->stream || !c->local || !c->slot || c->slot->served)
			continue;
		c->moved = true;
		c->to = *here;
		gate_take(c);
	}
}

void depart_end(struct kedge_region *r)
{
	struct owner_place here = { .port = 0 };
	bool known = !handle_host(&here.host) && !serve_use(&here.name);

	sig_lock(&shares_lock);
	free(r->dirty);
	r->dirty = NULL;
	r->stage = REGION_HERE;
	if (known)
		call_back(r, &here);
	sig_unlock(&shares_lock);
	serve_nudge();
}

/* The handle may have been here before, and gone; or this process made it; or it is still here, as
 * the region comes from this process itself. */
static void enter(struct slot *s)
{
	struct handle_words w;
	struct slot *was;
	bool same;

	alias_words(s, 0, &w);
	/* By number alone the slot may be found that it has here. */
	same = !slot_look(w.name, w.slot, w.generation, &was) && was != s &&
	       !sodium_memcmp(was->key, s->key, sizeof(s->key));
	if (same && was->left)
		slot_free(was);
	else if (same)
		alias_remove(was);
	alias_insert(s);
}

void arrive(struct kedge_region *r)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &r->slots)
		enter(list_entry(l, struct slot, node));
	r->stage = REGION_HERE;
	r->comes = false;
}

/* ---- those that are told ---- */

void depart_to(struct kedge_region *r, const struct owner_place *to, struct departure *d)
{
	sig_lock(&shares_lock);
	tell_peers(r, to);
	list_init(&d->slots);
	d->to = *to;
	take_slots(r, d);
	list_add_tail(&departures, &d->of_all);
	free(r->dirty);
	r->dirty = NULL;
	r->stage = REGION_LEFT;
	r->left_to = *to;
	sig_unlock(&shares_lock);
	serve_nudge();
}

int departures_hold(void)
{
	int rc = 0;

	sig_lock(&hold_lock);
	if (!holds)
		rc = keeper_use();
	holds |= !rc;
	sig_unlock(&hold_lock);
	return rc;
}

/* True: all of them are over. */
static bool expire(void)
{
	const uint64_t now = clock_ns();
	struct list *l, *tmp, *m, *next;
	struct departure *d;
	bool none;

	sig_lock(&shares_lock);
	list_for_each_safe(l, tmp, &departures) {
		d = list_entry(l, struct departure, of_all);
		if (now < d->until)
			continue;
		list_for_each_safe(m, next, &d->slots)
			slot_free(list_entry(m, struct slot, node));
		list_remove(&d->of_all);
		free(d);
	}
	none = list_empty(&departures);
	sig_unlock(&shares_lock);
	return none;
}

void departures_expire(void)
{
	sig_lock(&hold_lock);
	if (holds && expire()) {
		holds = false;
		keeper_unuse();
	}
	sig_unlock(&hold_lock);
}

void departures_forget(void)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &departures)
		free(list_entry(l, struct departure, of_all));
	list_init(&departures);
	telling_forget();
	sig_lock_init(&hold_lock);
	holds = false;
}
