// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region that has migrated: its former owner says where it is, and the same handle opens it
 * there. One thread looks for it, the others wait for that. Accesses that were told so were not
 * done; they are done by the new link.
 *
 * A former link keeps its gate until the remote is closed, as a thread may be about to look at it,
 * and finds that it has ended. Its mapping goes as soon as no thread is inside the gate, its
 * descriptors as soon as no thread uses them (link_use()).
 */
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/process/cancel.h"
#include "region/peer/state.h"

#define HOPS	  16 /* owners that say that it has migrated from them, too */
#define FOLLOW_MS 5000
#define NAP_NS	  50000
#define LOOKS	  200 /* naps, in which the last accesses by a former link are over */

static const struct timespec nap = { 0, NAP_NS };

int remote_look_up(struct kedge_remote *r, uint64_t until)
{
	struct kedge_place place;
	struct owner_place is;
	int rc;

	if (!r->directory)
		return 0;
	rc = kedge_directory_find(r->directory, r->words.region, &place, clock_left_ms(until));
	if (rc == -ENOENT)
		return 0;
	if (!rc && !place_read(&place, &is))
		rc = kedge_reason(-EPROTO, "what the directory has for the region is no place");
	if (!rc)
		r->where = is;
	return rc;
}

/*
 * The owner that was named has ended, or has no such handle. That which made the handle may have
 * the region again, or know better, and then the directory. True: it is worth another try.
 */
static bool look_elsewhere(struct kedge_remote *r, int rc, uint64_t until, bool *home,
			   bool *looked)
{
	const struct owner_place was = r->where;

	if (rc != -ECONNREFUSED && rc != -EKEYREJECTED && rc != -EHOSTUNREACH)
		return false;
	if (!*home) {
		*home = true;
		handle_place(&r->words, &r->where);
		if (memcmp(&r->where, &was, sizeof(was)) != 0)
			return true;
	}
	if (*looked || !r->directory)
		return false;
	*looked = true;
	return !remote_look_up(r, until) && memcmp(&r->where, &was, sizeof(was)) != 0;
}

int remote_find(struct kedge_remote *r, uint64_t until, struct link **out)
{
	bool home = false, looked = false;
	struct link *l;
	int hops, rc;

	for (hops = 0; hops < HOPS; hops++) {
		l = link_make(&r->handle);
		if (!l)
			return kedge_reason(-ENOMEM, "no memory for a remote region");
		rc = link_reach(l, &r->words, &r->where, until);
		if (!rc) {
			*out = l;
			return 0;
		}
		r->where = rc == REGION_MOVED ? l->to : r->where;
		link_free(l, false);
		if (rc != REGION_MOVED && !look_elsewhere(r, rc, until, &home, &looked))
			return rc;
	}
	return kedge_reason(-ELOOP, "%d owners in a row say that the region has migrated from them",
			    HOPS);
}

/* True: @where has changed. */
static bool look_where(struct kedge_remote *r, struct link *l)
{
	if (l->stream && atomic_load(&l->ended) == EREMCHG) {
		r->where = l->to;
		return true;
	}
	if (l->gate && atomic_load(&l->gate->why) == EREMCHG) {
		r->where = l->gate->to;
		return true;
	}
	return false;
}

static void close_former(struct kedge_remote *r)
{
	struct link *l;

	for (l = atomic_load(&r->link)->former; l; l = l->former)
		if (!l->closed && !atomic_load(&l->users) && (!l->gate || gate_is_empty(l->gate)))
			link_close(l);
}

/* An access by a former link is short; where it is not that is closed with another. */
static void retire(struct kedge_remote *r, struct link *was)
{
	int n;

	atomic_store(&was->retired, true);
	for (n = 0; n < LOOKS; n++) {
		close_former(r);
		if (was->closed)
			return;
		nanosleep(&nap, NULL);
	}
}

static int not_there(int rc)
{
	switch (rc) {
	case -ECONNREFUSED:
		return kedge_reason(-ECONNRESET, "the region has migrated, and its owner has ended "
				    "since, or is in another network namespace");
	case -EKEYREJECTED:
		return kedge_reason(-EKEYREVOKED, "the region has migrated, and its owner has no "
				    "such handle any more");
	}
	return rc;
}

static int follow(struct kedge_remote *r, struct link *was, uint64_t until)
{
	const bool known = look_where(r, was);
	struct link *l;
	int rc = remote_find(r, until, &l);

	/* Its owner was to do accesses, and has ended, and the region has migrated meanwhile. */
	if (rc == -ECONNREFUSED && !known && look_where(r, was))
		rc = remote_find(r, until, &l);
	if (rc)
		return not_there(rc);
	l->former = was;
	atomic_store(&r->link, l);
	retire(r, was);
	return 0;
}

int remote_follow(struct kedge_remote *r, struct link *seen, uint64_t until)
{
	const uint64_t least = clock_after_ms(FOLLOW_MS);
	int rc = 0;

	NO_CANCEL();
	if (until < least)
		until = least;
	while (atomic_exchange(&r->following, true)) {
		if (atomic_load(&r->link) != seen)
			return 0;
		if (clock_ns() >= until)
			return kedge_reason(-ETIMEDOUT, "the region has migrated, and its new "
					    "owner does not answer");
		nanosleep(&nap, NULL);
	}
	if (atomic_load(&r->link) == seen)
		rc = follow(r, seen, until);
	atomic_store(&r->following, false);
	return rc;
}

bool remote_again(struct kedge_remote *r, struct link *seen, uint64_t until, int *rc)
{
	if (*rc != REGION_MOVED)
		return false;
	*rc = remote_follow(r, seen, until);
	return !*rc;
}
