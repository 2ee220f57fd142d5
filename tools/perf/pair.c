// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pairs whose ranks are both children. They sleep in recv() until they are
 * asked. A rank that dies, fails or does nothing for long ends the run: the
 * other one waits for it, and is killed.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf/perf.h"

#define REDRAW_MS 200
#define OTHER_MS  500
/* No batch takes that long, on no machine. */
#define STUCK_NS 120000000000ull

static const char *rank_name(unsigned int rank)
{
	return rank ? "receiver" : "sender";
}

/* Say how a rank ended. */
static int died(struct perf_pair *pair, unsigned int rank)
{
	struct proc *p = &pair->proc[rank];
	int status = 0;

	close(p->fd);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	p->pid = 0;
	if (WIFSIGNALED(status))
		util_error("%s, %s: its %s was killed: %s",
			   pair->cfg.side->name, pair->cfg.name,
			   rank_name(rank), strsignal(WTERMSIG(status)));
	else
		util_error("%s, %s: its %s has ended by itself, with status %d",
			   pair->cfg.side->name, pair->cfg.name,
			   rank_name(rank), WEXITSTATUS(status));
	return CMD_CANNOT;
}

static int take(struct perf_pair *pair, unsigned int rank, struct perf_rep *rep)
{
	int rc = proc_recv(pair->proc[rank].fd, rep, sizeof(*rep));

	if (rc == -EPIPE)
		return died(pair, rank);
	if (rc)
		return util_fail(rc, "%s, %s", pair->cfg.side->name,
				 pair->cfg.name);
	if (!rep->rc)
		return 0;
	util_error("%s, %s, %s: %s", pair->cfg.side->name, pair->cfg.name,
		   rank_name(rank), rep->why);
	return CMD_CANNOT;
}

/* What the other rank has to say of a failure, which may be the cause. */
static void ask_other(struct perf_pair *pair, unsigned int rank)
{
	struct pollfd pfd = { .fd = pair->proc[rank].fd, .events = POLLIN };
	struct perf_rep rep;

	if (poll(&pfd, 1, OTHER_MS) > 0)
		take(pair, rank, &rep);
}

/* The replies of the ranks in @want, in whatever order they come. */
static int wait_ranks(struct perf_pair *pair, unsigned int want,
		      struct perf_rep rep[2], struct util_progress *progress,
		      uint64_t done)
{
	const uint64_t start = clock_ns();
	struct pollfd pfd[2];
	unsigned int i;
	int rc = 0;

	while (want && !rc) {
		for (i = 0; i < 2; i++)
			pfd[i] = (struct pollfd){
				.fd = want & (1u << i) ? pair->proc[i].fd : -1,
				.events = POLLIN
			};
		if (poll(pfd, 2, REDRAW_MS) < 0 && errno != EINTR)
			return util_fail(-errno, "cannot wait");
		if (progress)
			util_progress_at(progress, done);
		for (i = 0; i < 2 && !rc; i++) {
			if (pfd[i].fd < 0 || !pfd[i].revents)
				continue;
			rc = take(pair, i, &rep[i]);
			want &= ~(1u << i);
			if (rc && want)
				ask_other(pair, !i);
		}
		if (!rc && want && clock_ns() - start > STUCK_NS) {
			util_error("%s, %s: nothing has come for %llu s",
				   pair->cfg.side->name, pair->cfg.name,
				   STUCK_NS / 1000000000u);
			rc = CMD_CANNOT;
		}
	}
	return rc;
}

int perf_pair_start(struct perf_pair *pair)
{
	struct perf_child child[2];
	struct perf_rep hello[2];
	unsigned int rank;
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return util_fail(-errno, "cannot connect two processes");
	for (rank = 0; rank < 2; rank++) {
		child[rank] = (struct perf_child){
			.cfg = &pair->cfg,
			.rank = rank,
			.ends = { ends[0], ends[1] },
		};
		rc = proc_start(&pair->proc[rank], perf_rank_child,
				      &child[rank]);
		if (rc) {
			rc = util_fail(rc, "cannot start a process");
			break;
		}
	}
	/* A copy here would hide from a rank that the other is gone. */
	close(ends[0]);
	close(ends[1]);
	if (!rc)
		rc = wait_ranks(pair, 3, hello, NULL, 0);
	if (!rc)
		pair->facts = hello[0].facts;
	return rc;
}

int perf_pair_run(struct perf_pair *pair, const struct perf_req *req,
		  struct perf_rep rep[2], struct util_progress *progress,
		  uint64_t done)
{
	unsigned int rank;
	int rc;

	if (pair->remote)
		return perf_remote_run(pair, req, rep, progress, done);
	for (rank = 2; rank-- > 0;) {
		rc = proc_send(pair->proc[rank].fd, req, sizeof(*req));
		/* That it is gone shows below. */
		if (rc && rc != -EPIPE)
			return util_fail(rc, "%s", pair->cfg.name);
	}
	return wait_ranks(pair, 3, rep, progress, done);
}

int perf_pair_ask(struct perf_pair *pair, const struct perf_req *req,
		  struct perf_rep *rep)
{
	struct perf_rep both[2];
	int rc;

	if (pair->remote) {
		perf_rank_run(pair->local, req, rep);
		return rep->rc;
	}
	rc = proc_send(pair->proc[0].fd, req, sizeof(*req));
	if (!rc)
		rc = proc_recv(pair->proc[0].fd, &both[0], sizeof(both[0]));
	*rep = both[0];
	return rc ? rc : rep->rc;
}

void perf_pair_stop(struct perf_pair *pair, bool failed)
{
	unsigned int rank;

	if (pair->remote)
		perf_remote_stop(pair);
	for (rank = 0; rank < 2; rank++) {
		/* It may be waiting for the other one, for ever. */
		if (failed && pair->proc[rank].pid > 0)
			kill(pair->proc[rank].pid, SIGKILL);
		proc_stop(&pair->proc[rank]);
	}
}
