// SPDX-License-Identifier: BSD-2-Clause
/* The processes of kedge migrate: they begin, work, pause, and end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/migrate/run.h"

#define WORK_FIRST 50
#define NAP_NS	   500000u

void run_kill(struct proc *p)
{
	if (p->pid <= 0)
		return;
	kill(p->pid, SIGKILL);
	proc_stop(p);
}

static int start(struct run *r, struct proc *p, void (*serve)(int, void *), unsigned int space,
		 unsigned int index)
{
	sigset_t old;
	int rc;

	r->start.space = r->spaces.fd[space];
	r->start.node = r->spaces.node[space];
	r->start.index = index;
	r->start.handle = r->handle;
	fflush(NULL);
	signals_block_all(&old);
	rc = proc_start(p, serve, &r->start);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (rc)
		util_fail(rc, "cannot start a process");
	return rc;
}

static int start_hosts(struct run *r)
{
	const struct order create = { .kind = DO_CREATE };
	struct said s;
	unsigned int i;
	int rc = 0;

	for (i = 0; i < 2 && !rc; i++) {
		rc = start(r, &r->host[i], migrate_host, i, 0);
		if (!rc)
			rc = talk_expect(r, &r->host[i], SAY_DONE, &s);
		if (!rc && s.rc)
			rc = talk_fail(&s, "enter a network namespace");
	}
	if (!rc)
		rc = talk_must(r, &r->host[0], &create, "have the region", &s);
	r->handle = s.handle;
	return rc;
}

static int start_peers(struct run *r)
{
	struct said s;
	unsigned int i;
	int rc = start(r, &r->checker, migrate_checker, 0, 0);

	if (!rc)
		rc = talk_expect(r, &r->checker, SAY_DONE, &s);
	if (!rc && s.rc)
		rc = talk_fail(&s, "open the region's handle");
	for (i = 0; i < r->opts->peers && !rc; i++)
		rc = start(r, &r->peer[i], migrate_peer, 0, i);
	return rc;
}

int run_begin(struct run *r)
{
	int rc;

	load_forget(r->load);
	r->owner = 0;
	rc = start_hosts(r);
	if (!rc)
		rc = start_peers(r);
	if (!rc)
		rc = run_store(r);
	return rc ? rc : run_work(r, WORK_FIRST);
}

void run_end(struct run *r)
{
	unsigned int i;

	for (i = 0; i < r->opts->peers; i++)
		run_kill(&r->peer[i]);
	run_kill(&r->checker);
	for (i = 0; i < 2; i++)
		run_kill(&r->host[i]);
	for (i = 0; i < r->load->writers; i++) {
		r->accesses += atomic_load(&r->load->writer[i].ops);
		r->writes += atomic_load(&r->load->writer[i].writes);
	}
	r->stores = false;
}

/* ---- the load ---- */

static bool has_ended(const struct run *r, unsigned int w)
{
	return w < r->opts->peers && talk_has_ended(&r->peer[w]);
}

/* A peer that ends without being told to is a fault. */
static int lost_peer(struct run *r, unsigned int w)
{
	if (atomic_load(&r->load->writer[w].error))
		load_found(r->load, &r->load->errors, "peer %u: %s", w, r->load->writer[w].why);
	else
		load_found(r->load, &r->load->errors, "peer %u has crashed", w);
	return RUN_OVER;
}

static int nap(struct run *r, unsigned int w, uint64_t until)
{
	load_nap(NAP_NS);
	if (run_interrupted())
		return -EINTR;
	if (clock_ns() < until)
		return 0;
	load_found(r->load, &r->load->errors, "peer %u hangs", w);
	return RUN_OVER;
}

/* Writers that are there: the peers, and the owner if it stores. */
static unsigned int writers(const struct run *r)
{
	return r->opts->peers + r->stores;
}

static int work_one(struct run *r, unsigned int i, uint64_t from, uint64_t more)
{
	const uint64_t until = talk_hang(r);
	struct load_writer *w = &r->load->writer[i];
	int rc = 0;

	while (!rc && !atomic_load(&w->killed) && atomic_load(&w->ops) < from + more)
		rc = has_ended(r, i) ? lost_peer(r, i) : nap(r, i, until);
	return rc;
}

int run_work(struct run *r, uint64_t more)
{
	uint64_t from[LOAD_WRITERS_MAX];
	unsigned int i;
	int rc = 0;

	for (i = 0; i < writers(r); i++)
		from[i] = atomic_load(&r->load->writer[i].ops);
	for (i = 0; i < writers(r) && !rc; i++)
		rc = work_one(r, i, from[i], more);
	return rc;
}

int run_pause(struct run *r, bool may)
{
	const uint64_t turn = atomic_fetch_add(&r->load->pause, 1) + 1;
	const uint64_t until = talk_hang(r);
	unsigned int i;
	int rc = 0;

	for (i = 0; i < writers(r) && !rc; i++) {
		struct load_writer *w = &r->load->writer[i];

		while (!rc && !atomic_load(&w->killed) && atomic_load(&w->paused) != turn) {
			if (!has_ended(r, i))
				rc = nap(r, i, until);
			else if (may)
				break;
			else
				rc = lost_peer(r, i);
		}
	}
	return rc;
}

void run_resume(struct run *r)
{
	atomic_fetch_add(&r->load->pause, 1);
}

int run_check(struct run *r, const struct kedge_handle *h, bool alone)
{
	const struct order o = { .kind = DO_CHECK, .n = alone, .handle = *h };
	struct said s;
	int rc = talk_ask(r, &r->checker, &o, SAY_DONE, &s);

	if (rc || !s.rc)
		return rc;
	load_found(r->load, &r->load->errors, "the region cannot be read: %s", s.why);
	return RUN_OVER;
}

int run_store(struct run *r)
{
	const struct order o = { .kind = DO_STORE };
	struct said s;
	int rc = r->opts->own ? talk_must(r, &r->host[r->owner], &o, "store in the region", &s)
			      : 0;

	r->stores = r->opts->own && !rc;
	return rc;
}
