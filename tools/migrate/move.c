// SPDX-License-Identifier: BSD-2-Clause
/* One move: the region goes to the other host, and all of it is checked there. */
#include <errno.h>
#include <stdio.h>

#include "tools/migrate/run.h"

#define WORK_AFTER 50 /* accesses of each peer: some are at the new owner's in any case */

static uint64_t accesses(const struct run *r)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < r->opts->peers; i++)
		n += atomic_load(&r->load->writer[i].ops);
	return n;
}

static void forget_longest(struct run *r)
{
	unsigned int i;

	for (i = 0; i < r->opts->peers; i++)
		atomic_store(&r->load->writer[i].longest, 0);
}

static uint64_t longest(const struct run *r)
{
	uint64_t most = 0, ns;
	unsigned int i;

	for (i = 0; i < r->opts->peers; i++) {
		ns = atomic_load(&r->load->writer[i].longest);
		most = ns > most ? ns : most;
	}
	return most;
}

/* A process that lacks something is no fault of the migration. */
static int failed(struct run *r, const struct said *s)
{
	switch (s->rc) {
	case -EREMOTEIO:
	case -ENOMEM:
	case -EAGAIN:
	case -EMFILE:
	case -ENFILE:
		return talk_fail(s, "migrate the region");
	}
	load_found(r->load, &r->load->errors, "the migration failed: %s", s->why);
	return RUN_OVER;
}

int move_invite(struct run *r, struct kedge_handle *invitation)
{
	const struct order o = { .kind = DO_INVITE };
	struct said s;
	int rc = talk_ask(r, &r->host[!r->owner], &o, SAY_INVITED, &s);

	*invitation = s.handle;
	return !rc && s.rc ? talk_fail(&s, "invite the region") : rc;
}

static int transfer(struct run *r, struct move *m)
{
	struct order o = { .kind = DO_MIGRATE };
	struct said s;
	int rc = move_invite(r, &o.handle);

	if (!rc)
		rc = talk_ask(r, &r->host[r->owner], &o, SAY_MIGRATED, &s);
	r->stores = false;
	if (!rc && s.rc)
		rc = failed(r, &s);
	m->info = s.info;
	if (!rc)
		rc = talk_expect(r, &r->host[!r->owner], SAY_ARRIVED, &s);
	if (rc || !s.rc)
		return rc;
	load_found(r->load, &r->load->errors, "the region has gone, and has not come: %s", s.why);
	return RUN_OVER;
}

int move_one_owner(struct run *r)
{
	const struct order o = { .kind = DO_QUERY };
	struct said was, is;
	int rc = talk_ask(r, &r->host[!r->owner], &o, SAY_DONE, &was);

	if (!rc)
		rc = talk_ask(r, &r->host[r->owner], &o, SAY_DONE, &is);
	if (rc || (was.rc == -EREMCHG && !is.rc))
		return rc;
	load_found(r->load, was.rc || is.rc ? &r->load->errors : &r->load->owners,
		   "the former owner says %d, and the new one %d", was.rc, is.rc);
	return RUN_OVER;
}

/* Bytes go from the former owner to the new one, while the peers are paused. */
static int beside(struct run *r, struct move *m)
{
	struct order o = { .kind = DO_LISTEN, .n = m->info.last };
	struct said s;
	int rc;

	if (!o.n)
		return 0;
	rc = talk_ask(r, &r->host[r->owner], &o, SAY_LISTENS, &s);
	if (!rc && s.rc)
		return talk_fail(&s, "listen for what a socket takes");
	o.kind = DO_SEND;
	o.port = s.port;
	if (r->spaces.node[r->owner])
		snprintf(o.node, sizeof(o.node), "%s", r->spaces.node[r->owner]);
	if (!rc)
		rc = talk_must(r, &r->host[!r->owner], &o, "measure what a socket takes", &s);
	m->copy_ns = s.copy_ns;
	m->socket_ns = s.socket_ns;
	return rc ? rc : talk_expect(r, &r->host[r->owner], SAY_DONE, &s);
}

static int look(struct run *r, struct move *m)
{
	const struct order o = { .kind = DO_CLOSE };
	struct said s;
	int rc = run_pause(r, false);

	if (!rc)
		rc = move_one_owner(r);
	if (!rc)
		rc = run_check(r, &r->handle, false);
	if (!rc)
		rc = beside(r, m);
	return rc ? rc : talk_must(r, &r->host[!r->owner], &o, "close the region", &s);
}

int move_there(struct run *r, struct move *m)
{
	const uint64_t before = accesses(r);
	int rc;

	m->from = r->host[r->owner].pid;
	m->to = r->host[!r->owner].pid;
	forget_longest(r);
	rc = transfer(r, m);
	bar_wipe(&r->bar);
	if (rc)
		return rc;
	r->owner = !r->owner;
	rc = run_store(r);
	if (!rc)
		rc = run_work(r, WORK_AFTER);
	m->longest = longest(r);
	m->accesses = accesses(r) - before;
	if (!rc)
		rc = look(r, m);
	run_resume(r);
	return rc;
}
