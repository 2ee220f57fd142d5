// SPDX-License-Identifier: BSD-2-Clause
/*
 * The boss: starts ranks, gives them sessions, stops and kills them, and looks
 * at the board when both are through. It has no channel and no threads of its
 * own, so that it can fork a rank at any time.
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

struct boss {
	const struct chan_opts *opts;
	struct chan_result *res;
	struct chan_board *board;
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

static bool time_is_up(const struct boss *b)
{
	return clock_ns() >= b->end;
}

/* ---- ranks ---- */

static int rank_start(struct boss *b, unsigned int i)
{
	b->rank[i]->board = b->board;
	b->rank[i]->transport = b->opts->transport;
	b->rank[i]->me = i;
	return proc_start(&b->proc[i], chan_rank_child, b->rank[i]);
}

/* Its end, by itself or not: what waitpid() says. */
static int rank_wait(struct boss *b, unsigned int i)
{
	int status = 0;

	while (waitpid(b->proc[i].pid, &status, 0) < 0 && errno == EINTR)
		;
	close(b->proc[i].fd);
	b->proc[i].pid = 0;
	b->busy[i] = false;
	b->died[i] = true;
	return status;
}

static void rank_kill(struct boss *b, unsigned int i)
{
	kill(b->proc[i].pid, SIGKILL);
	rank_wait(b, i);
	if (b->stopped == i)
		b->cont_at = NEVER;
}

static void rank_crashed(struct boss *b, unsigned int i, int status)
{
	b->res->crashes++;
	if (b->crashes++ >= NOTES)
		return;
	if (WIFSIGNALED(status))
		chan_note(&b->res->sum, "rank %u died by signal %d (%s), "
			  "session %" PRIu64, i, WTERMSIG(status),
			  strsignal(WTERMSIG(status)), b->go.session);
	else
		chan_note(&b->res->sum, "rank %u ended with status %d, session "
			  "%" PRIu64, i, WEXITSTATUS(status), b->go.session);
}

/* After the last session: its end is a leak check. */
static void rank_stop(struct boss *b, unsigned int i)
{
	int status;

	if (!b->proc[i].pid)
		return;
	shutdown(b->proc[i].fd, SHUT_RDWR);
	status = rank_wait(b, i);
	if (status)
		rank_crashed(b, i, status);
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

static int session_start(struct boss *b)
{
	int sv[2], rc = 0;
	unsigned int i;

	for (i = 0; i < 2 && !rc; i++)
		if (!b->proc[i].pid)
			rc = rank_start(b, i);
	if (rc)
		return rc;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	for (i = 0; i < 2 && !rc; i++) {
		rc = go_send(b->proc[i].fd, &b->go, sv[i]);
		b->busy[i] = !rc;
		b->died[i] = false;
	}
	close(sv[0]);
	close(sv[1]);
	return rc;
}

static void session_plan(struct boss *b)
{
	uint64_t left = b->opts->messages - b->res->messages;
	uint64_t now;

	chan_plan(&b->rng, b->opts->mix, &b->go);
	if (b->opts->messages && b->go.messages > (left + 1) / 2)
		b->go.messages = (uint32_t)((left + 1) / 2);
	b->go.session = b->res->sessions++;
	now = clock_ns();
	b->kill_at = NEVER;
	if (!util_rng_below(&b->rng, KILL_ONCE))
		b->kill_at = now + util_rng_below(&b->rng, KILL_NS);
	b->victim = (unsigned int)util_rng_below(&b->rng, 2);
	b->stop_at = now + util_rng_below(&b->rng, STOP_NS);
	b->cont_at = NEVER;
	b->beat_ns = now;
	chan_board_clear(b->board);
	b->board->forgets = strcmp(b->opts->transport, "shm");
}

static void kill_one(struct boss *b)
{
	b->kill_at = NEVER;
	if (!b->busy[b->victim])
		return;
	b->board->killed_ns = clock_ns();
	rank_kill(b, b->victim);
	b->res->deaths++;
}

static void stop_one(struct boss *b)
{
	unsigned int i = (unsigned int)util_rng_below(&b->rng, 2);
	uint64_t now = clock_ns();

	b->stop_at = now + util_rng_below(&b->rng, STOP_NS) + STOPPED_NS;
	if (!b->busy[i] || b->cont_at != NEVER)
		return;
	kill(b->proc[i].pid, SIGSTOP);
	b->stopped = i;
	b->cont_at = now + util_rng_below(&b->rng, STOPPED_NS);
	b->res->stops++;
}

static void cont_one(struct boss *b)
{
	b->cont_at = NEVER;
	if (b->proc[b->stopped].pid)
		kill(b->proc[b->stopped].pid, SIGCONT);
}

static void make_events(struct boss *b)
{
	uint64_t now = clock_ns(), beat = b->board->beat[0] + b->board->beat[1];
	unsigned int i;

	if (now >= b->kill_at)
		kill_one(b);
	if (now >= b->stop_at)
		stop_one(b);
	if (now >= b->cont_at)
		cont_one(b);
	if (time_is_up(b))
		b->board->stop = 1;
	if (beat != b->beat) {
		b->beat = beat;
		b->beat_ns = now;
	}
	if (now - b->beat_ns < CHAN_LATE_NS)
		return;
	b->res->hangs++;
	chan_note(&b->res->sum, "nothing moves any more in session %" PRIu64,
		  b->go.session);
	for (i = 0; i < 2; i++)
		if (b->busy[i])
			rank_kill(b, i);
}

/* What rank @i says: it is through, or is no more. */
static void rank_said(struct boss *b, unsigned int i)
{
	uint32_t sessions;
	int status;

	if (!proc_recv(b->proc[i].fd, &sessions, sizeof(sessions))) {
		b->busy[i] = false;
		return;
	}
	b->board->killed_ns = clock_ns();
	status = rank_wait(b, i);
	rank_crashed(b, i, status);
}

static void session_watch(struct boss *b)
{
	struct pollfd p[2];
	unsigned int i;

	while (b->busy[0] || b->busy[1]) {
		for (i = 0; i < 2; i++)
			p[i] = (struct pollfd){
				.fd = b->busy[i] ? b->proc[i].fd : -1,
				.events = POLLIN,
			};
		poll(p, 2, POLL_MS);
		for (i = 0; i < 2; i++)
			if (p[i].revents)
				rank_said(b, i);
		make_events(b);
		util_progress_at(&b->progress, b->res->messages +
						      b->board->dir[0].sent +
						      b->board->dir[1].sent);
	}
	if (b->cont_at != NEVER)
		cont_one(b);
}

static int session_run(struct boss *b)
{
	struct chan_audit audit;
	int rc;

	session_plan(b);
	rc = session_start(b);
	if (rc)
		return rc;
	session_watch(b);
	chan_board_audit(b->board, b->died, &audit);
	b->res->messages += audit.messages;
	b->res->lost += audit.lost;
	b->res->wrong += audit.wrong;
	if (*audit.why && b->audits++ < NOTES)
		chan_note(&b->res->sum, "session %" PRIu64 ": %s",
			  b->go.session, audit.why);
	return 0;
}

/* ---- all of it ---- */

static void add_up(struct boss *b)
{
	struct chan_tally *to = &b->res->sum, *t;
	unsigned int i, k;

	for (i = 0; i < 2; i++) {
		t = &b->board->tally[i];
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
		to->maps += t->maps;
		b->res->wrong += t->wrong;
		b->res->leaks += t->leaks;
		if (t->notice_ns > to->notice_ns)
			to->notice_ns = t->notice_ns;
		for (k = 0; k < t->why_cnt && k < NOTES; k++)
			chan_note(to, "%s", t->why[k]);
	}
}

static int run(struct boss *b)
{
	uint64_t start = clock_ns();
	int rc = 0;

	b->end = b->opts->seconds > 0
			 ? start + (uint64_t)(b->opts->seconds * 1e9) : NEVER;
	util_progress_start(&b->progress, "torture", b->opts->messages, false);
	while (!rc && !time_is_up(b) &&
	       (!b->opts->messages || b->res->messages < b->opts->messages))
		rc = session_run(b);
	rank_stop(b, 0);
	rank_stop(b, 1);
	util_progress_stop(&b->progress);
	b->res->elapsed_ns = clock_ns() - start;
	add_up(b);
	return rc;
}

/* What is missing here would be a fault of each session. In a child: a provider
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
	struct boss b = { .opts = opts, .res = &res };
	struct chan_rank *ranks = calloc(2, sizeof(*ranks));
	int rc = try_transport(opts->transport);

	if (rc) {
		free(ranks);
		return rc;
	}
	rc = ranks ? chan_board_make(&b.board) : -ENOMEM;
	if (rc)
		goto free_ranks;
	b.rank[0] = &ranks[0];
	b.rank[1] = &ranks[1];
	util_rng_init(&b.rng, opts->seed);
	rc = run(&b);
	chan_board_free(b.board);
free_ranks:
	free(ranks);
	return rc ? util_fail(rc, "cannot run") : chan_report(opts, &res);
}
