// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pairs whose ranks are both children. They sleep in recv() until they are
 * asked. A rank that dies or fails ends the run, and so does a pair that no message
 * has come to for long: the other one waits for it, and is killed. How long a batch
 * may take nobody knows: that depends on the machine and on the length of a message.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf/perf.h"

#define REDRAW_MS 200
#define OTHER_MS  500
/* No message takes that long, on no machine. A batch does: 22 of 64 MiB, over an
 * adapter that is emulated. */
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

/* Asks the other rank about a failure, as it may know the cause. */
static void ask_other(struct perf_pair *pair, unsigned int rank)
{
	struct pollfd pfd = { .fd = pair->proc[rank].fd, .events = POLLIN };
	struct perf_rep rep;

	if (poll(&pfd, 1, OTHER_MS) > 0)
		take(pair, rank, &rep);
}

/* ---- whether they get on ---- */

static int moved_map(struct perf_pair *pair)
{
	void *p = mmap(NULL, 2 * sizeof(*pair->moved), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	pair->moved = p;
	return 0;
}

static void moved_unmap(struct perf_pair *pair)
{
	if (pair->moved)
		munmap(pair->moved, 2 * sizeof(*pair->moved));
	pair->moved = NULL;
}

/** struct patience - how long nothing has come
 * @cnt:   messages of both ranks when we last looked
 * @since: when that number was first seen
 */
struct patience {
	uint64_t cnt;
	uint64_t since;
};

static void patience_init(struct patience *p)
{
	*p = (struct patience){ .since = clock_ns() };
}

static bool patience_ends(struct patience *p, const struct perf_pair *pair)
{
	uint64_t now = clock_ns(), cnt = 0;
	unsigned int i;

	/* relaxed: see take(), in pattern.c */
	for (i = 0; i < 2; i++)
		cnt += atomic_load_explicit(&pair->moved[i].cnt,
					    memory_order_relaxed);
	if (cnt != p->cnt)
		*p = (struct patience){ cnt, now };
	return now - p->since > STUCK_NS;
}

/* The replies of the ranks in @want, in whatever order they come. */
static int wait_ranks(struct perf_pair *pair, unsigned int want,
		      struct perf_rep rep[2], struct util_progress *progress,
		      uint64_t done)
{
	struct patience patience;
	struct pollfd pfd[2];
	unsigned int i;
	int rc = 0;

	patience_init(&patience);
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
		if (!rc && want && patience_ends(&patience, pair)) {
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

	rc = moved_map(pair);
	if (rc)
		return util_fail(rc, "cannot start a process");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return util_fail(-errno, "cannot connect two processes");
	for (rank = 0; rank < 2; rank++) {
		child[rank] = (struct perf_child){
			.cfg = &pair->cfg,
			.rank = rank,
			.moved = &pair->moved[rank],
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
	moved_unmap(pair);
}
