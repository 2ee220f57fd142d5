// SPDX-License-Identifier: BSD-2-Clause
/*
 * The supervisor: starts ranks, gives them sessions, stops and kills them, and
 * looks at the ledger when both are through. It has no channel and no threads
 * of its own, so that it can fork a rank at any time.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/proc.h"
#include "tools/common/net.h"
#include "tools/torture/channel/chan.h"

#define MS	   1000000ull
#define KILL_ONCE  3u   /* in so many sessions */
#define KILL_NS	   (150 * MS)
#define STOP_NS	   (100 * MS)
#define STOPPED_NS (40 * MS)
#define POLL_MS	   5
#define NEVER	   UINT64_MAX
#define NOTES	   3u /* of each kind and rank; other kinds find room, too */

struct supervisor {
	const struct chan_opts *opts;
	struct chan_result *res;
	struct chan_ledger *ledger;
	struct util_rng rng;
	struct util_progress progress;
	struct chan_rank *rank[2]; /* what they are forked with */
	struct proc proc[2];
	uint64_t end; /* when the time is up */
	unsigned int audits, crashes; /* that are noted */
	/* of the session */
	struct chan_go go;
	bool busy[2], died[2];
	uint64_t kill_at, stop_at, cont_at;
	unsigned int victim, stopped;
	uint64_t beat, beat_ns;
};

static bool time_is_up(const struct supervisor *s)
{
	return clock_ns() >= s->end;
}

/* ---- ranks ---- */

static int rank_start(struct supervisor *s, unsigned int i)
{
	s->rank[i]->ledger = s->ledger;
	s->rank[i]->transport = s->opts->transport;
	s->rank[i]->me = i;
	return proc_start(&s->proc[i], chan_rank_child, s->rank[i]);
}

/* Its end, by itself or not: what waitpid() says. */
static int rank_wait(struct supervisor *s, unsigned int i)
{
	int status = 0;

	while (waitpid(s->proc[i].pid, &status, 0) < 0 && errno == EINTR)
		;
	close(s->proc[i].fd);
	s->proc[i].pid = 0;
	s->busy[i] = false;
	s->died[i] = true;
	return status;
}

static void rank_kill(struct supervisor *s, unsigned int i)
{
	kill(s->proc[i].pid, SIGKILL);
	rank_wait(s, i);
	if (s->stopped == i)
		s->cont_at = NEVER;
}

static void rank_crashed(struct supervisor *s, unsigned int i, int status)
{
	s->res->crashes++;
	if (s->crashes++ >= NOTES)
		return;
	if (WIFSIGNALED(status))
		chan_note(&s->res->sum, "rank %u died by signal %d (%s), "
			  "session %" PRIu64, i, WTERMSIG(status),
			  strsignal(WTERMSIG(status)), s->go.session);
	else
		chan_note(&s->res->sum, "rank %u ended with status %d, session "
			  "%" PRIu64, i, WEXITSTATUS(status), s->go.session);
}

/* After the last session: its end is a leak check. */
static void rank_stop(struct supervisor *s, unsigned int i)
{
	int status;

	if (!s->proc[i].pid)
		return;
	shutdown(s->proc[i].fd, SHUT_RDWR);
	status = rank_wait(s, i);
	if (status)
		rank_crashed(s, i, status);
}

/* ---- a session ---- */

static int go_send(int to, const struct chan_go *go, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { { 0 } };
	struct iovec iov = { (void *)(uintptr_t)go, sizeof(*go) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(to, &m, MSG_NOSIGNAL) == sizeof(*go) ? 0 : -errno;
}

static int session_start(struct supervisor *s)
{
	int sv[2], rc = 0;
	unsigned int i;

	for (i = 0; i < 2 && !rc; i++)
		if (!s->proc[i].pid)
			rc = rank_start(s, i);
	if (rc)
		return rc;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	for (i = 0; i < 2 && !rc; i++) {
		rc = go_send(s->proc[i].fd, &s->go, sv[i]);
		s->busy[i] = !rc;
		s->died[i] = false;
	}
	close(sv[0]);
	close(sv[1]);
	return rc;
}

static void session_plan(struct supervisor *s)
{
	uint64_t left = s->opts->messages - s->res->messages;
	uint64_t now;

	chan_plan(&s->rng, s->opts->mix, &s->go);
	if (s->opts->messages && s->go.messages > (left + 1) / 2)
		s->go.messages = (uint32_t)((left + 1) / 2);
	s->go.session = s->res->sessions++;
	now = clock_ns();
	s->kill_at = NEVER;
	if (!util_rng_below(&s->rng, KILL_ONCE))
		s->kill_at = now + util_rng_below(&s->rng, KILL_NS);
	s->victim = (unsigned int)util_rng_below(&s->rng, 2);
	s->stop_at = now + util_rng_below(&s->rng, STOP_NS);
	s->cont_at = NEVER;
	s->beat_ns = now;
	chan_ledger_clear(s->ledger);
	s->ledger->forgets = strcmp(s->opts->transport, "shm");
}

static void kill_one(struct supervisor *s)
{
	s->kill_at = NEVER;
	if (!s->busy[s->victim])
		return;
	s->ledger->killed_ns = clock_ns();
	rank_kill(s, s->victim);
	s->res->deaths++;
}

static void stop_one(struct supervisor *s)
{
	unsigned int i = (unsigned int)util_rng_below(&s->rng, 2);
	uint64_t now = clock_ns();

	s->stop_at = now + util_rng_below(&s->rng, STOP_NS) + STOPPED_NS;
	if (!s->busy[i] || s->cont_at != NEVER)
		return;
	kill(s->proc[i].pid, SIGSTOP);
	s->stopped = i;
	s->cont_at = now + util_rng_below(&s->rng, STOPPED_NS);
	s->res->stops++;
}

static void cont_one(struct supervisor *s)
{
	s->cont_at = NEVER;
	if (s->proc[s->stopped].pid)
		kill(s->proc[s->stopped].pid, SIGCONT);
}

static void make_events(struct supervisor *s)
{
	uint64_t now = clock_ns(),
		 beat = s->ledger->beat[0] + s->ledger->beat[1];
	unsigned int i;

	if (now >= s->kill_at)
		kill_one(s);
	if (now >= s->stop_at)
		stop_one(s);
	if (now >= s->cont_at)
		cont_one(s);
	if (time_is_up(s))
		s->ledger->stop = 1;
	if (beat != s->beat) {
		s->beat = beat;
		s->beat_ns = now;
	}
	if (now - s->beat_ns < CHAN_LATE_NS)
		return;
	s->res->hangs++;
	chan_note(&s->res->sum, "nothing moves any more in session %" PRIu64,
		  s->go.session);
	for (i = 0; i < 2; i++)
		if (s->busy[i])
			rank_kill(s, i);
}

/* Takes the word of rank @i: it is through, or is no more. */
static void rank_said(struct supervisor *s, unsigned int i)
{
	uint32_t sessions;
	int status;

	if (!proc_recv(s->proc[i].fd, &sessions, sizeof(sessions))) {
		s->busy[i] = false;
		return;
	}
	s->ledger->killed_ns = clock_ns();
	status = rank_wait(s, i);
	rank_crashed(s, i, status);
}

static void session_watch(struct supervisor *s)
{
	struct pollfd p[2];
	unsigned int i;

	while (s->busy[0] || s->busy[1]) {
		for (i = 0; i < 2; i++)
			p[i] = (struct pollfd){
				.fd = s->busy[i] ? s->proc[i].fd : -1,
				.events = POLLIN,
			};
		poll(p, 2, POLL_MS);
		for (i = 0; i < 2; i++)
			if (p[i].revents)
				rank_said(s, i);
		make_events(s);
		util_progress_at(&s->progress, s->res->messages +
						      s->ledger->dir[0].sent +
						      s->ledger->dir[1].sent);
	}
	if (s->cont_at != NEVER)
		cont_one(s);
}

static int session_run(struct supervisor *s)
{
	struct chan_audit audit;
	int rc;

	session_plan(s);
	rc = session_start(s);
	if (rc)
		return rc;
	session_watch(s);
	chan_ledger_audit(s->ledger, s->died, &audit);
	s->res->messages += audit.messages;
	s->res->lost += audit.lost;
	s->res->wrong += audit.wrong;
	if (*audit.why && s->audits++ < NOTES)
		chan_note(&s->res->sum, "session %" PRIu64 ": %s",
			  s->go.session, audit.why);
	return 0;
}

/* ---- all of it ---- */

static void add_up(struct supervisor *s)
{
	struct chan_tally *to = &s->res->sum, *t;
	unsigned int i, k;

	for (i = 0; i < 2; i++) {
		t = &s->ledger->tally[i];
		to->whole += t->whole;
		to->bytes += t->bytes;
		for (k = 0; k < ARRAY_SIZE(to->ways); k++)
			to->ways[k] += t->ways[k];
		to->cancelled += t->cancelled;
		to->timed_out += t->timed_out;
		to->truncated += t->truncated;
		to->reset += t->reset;
		to->faults += t->faults;
		to->other += t->other;
		to->forks += t->forks;
		to->attached += t->attached;
		to->maps += t->maps;
		s->res->wrong += t->wrong;
		s->res->leaks += t->leaks;
		if (t->notice_ns > to->notice_ns)
			to->notice_ns = t->notice_ns;
		for (k = 0; k < t->why_cnt && k < NOTES; k++)
			chan_note(to, "%s", t->why[k]);
	}
}

static int run(struct supervisor *s)
{
	uint64_t start = clock_ns();
	int rc = 0;

	s->end = s->opts->seconds > 0
			 ? start + (uint64_t)(s->opts->seconds * 1e9) : NEVER;
	util_progress_start(&s->progress, "torture", s->opts->messages, false);
	while (!rc && !time_is_up(s) &&
	       (!s->opts->messages || s->res->messages < s->opts->messages))
		rc = session_run(s);
	rank_stop(s, 0);
	rank_stop(s, 1);
	util_progress_stop(&s->progress);
	s->res->elapsed_ns = clock_ns() - start;
	add_up(s);
	return rc;
}

/* A feature missing here would be a fault of each session. In a child: a provider
 * may start threads, and the ranks are forked. */
static int try_transport(const char *transport)
{
	int status = 0, rc;
	pid_t pid;

	if (!strcmp(transport, "shm"))
		return CMD_OK;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		rc = net_try(transport);
		_exit(rc ? util_fail(rc, "cannot use transport %s", transport)
			 : CMD_OK);
	}
	/* One that crashes does so in the ranks, too, and is counted there. */
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
		       ? WEXITSTATUS(status) : CMD_OK;
}

int chan_torture(const struct chan_opts *opts)
{
	struct chan_result res = { 0 };
	struct supervisor s = { .opts = opts, .res = &res };
	struct chan_rank *ranks = calloc(2, sizeof(*ranks));
	int rc = try_transport(opts->transport);

	if (rc) {
		free(ranks);
		return rc;
	}
	rc = ranks ? chan_ledger_make(&s.ledger) : -ENOMEM;
	if (rc)
		goto free_ranks;
	s.rank[0] = &ranks[0];
	s.rank[1] = &ranks[1];
	util_rng_init(&s.rng, opts->seed);
	rc = run(&s);
	chan_ledger_free(s.ledger);
free_ranks:
	free(ranks);
	return rc ? util_fail(rc, "cannot run") : chan_report(opts, &res);
}
