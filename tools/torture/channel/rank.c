// SPDX-License-Identifier: BSD-2-Clause
/*
 * A rank: one session after the other, as the supervisor says, each on a
 * channel of its own over the socket that comes with it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/common/proc.h"
#include "tools/common/net.h"
#include "tools/torture/channel/chan.h"

#define OPEN_MS	   20000
#define TICK	   64u /* polls between tricks */
#define IDLE_POLLS 256u
#define IDLE_WAITS 5u
#define DRAIN_NS   5000000000ull /* nothing comes any more */
#define NOTICE_NS  10000000000ull /* to see that a peer is dead */
#define SETTLED	   3u /* sessions until a process has all it keeps */
#define MAPS_SPARE 64u
#define LINGER_NS  12000000000ull /* for what close() leaves behind */

/* ---- tricks: forks, neighbours, cancels ---- */

/* The child's main: no part of the parent's channel is its own. */
static void __attribute__((noreturn)) child(struct chan_rank *r)
{
	uint8_t byte = 0;
	int rc = 0;

	if (kedge_channel_poll(r->ch, NULL, 0) != -ECHILD)
		rc = 1;
	if (kedge_channel_send(r->ch, &byte, 1, 0, 0, NULL) != -ECHILD)
		rc = 2;
	if (kedge_channel_recv(r->ch, &byte, 1, 0, 0, 0, NULL) != -ECHILD)
		rc = 3;
	if (kedge_channel_arm(r->ch) != -ECHILD ||
	    kedge_channel_alloc(r->ch, 1))
		rc = 4;
	usleep((useconds_t)util_rng_below(&r->rng, 3000));
	kedge_channel_close(r->ch);
	_exit(rc);
}

static void reap(struct chan_rank *r, int flags)
{
	int status;
	size_t i;

	for (i = 0; i < CHAN_CHILDREN; i++) {
		if (!r->child[i] ||
		    waitpid(r->child[i], &status, flags) != r->child[i])
			continue;
		r->child[i] = 0;
		if (status)
			chan_wrong(r->tally, "a forked child ended with %s %d",
				   WIFSIGNALED(status) ? "signal" : "status",
				   WIFSIGNALED(status) ? WTERMSIG(status)
						       : WEXITSTATUS(status));
	}
}

static void make_child(struct chan_rank *r)
{
	pid_t pid;
	size_t i;

	reap(r, WNOHANG);
	for (i = 0; i < CHAN_CHILDREN && r->child[i]; i++)
		;
	if (i == CHAN_CHILDREN)
		return;
	pid = fork();
	if (!pid)
		child(r);
	if (pid < 0)
		return;
	r->child[i] = pid;
	r->tally->forks++;
}

static void trick(struct chan_rank *r)
{
	uint64_t i = util_rng_below(&r->rng, CHAN_WINDOW);

	if (chan_once(r, 20))
		chan_send_cancel(r);
	if (chan_once(r, 40))
		chan_recv_cancel(r);
	if (chan_once(r, 500))
		make_child(r);
	if (r->recv[i].busy)
		chan_buf_disturb(r, &r->recv[i].buf);
	if (r->send[i].busy)
		chan_buf_disturb(r, &r->send[i].buf);
	if (chan_once(r, 64))
		chan_kept_look(r, false);
}

/* ---- a session ---- */

static void over(struct chan_rank *r, const struct kedge_completion *c)
{
	if (c->flags & KEDGE_COMPLETION_RECV)
		chan_recv_over(r, c);
	else
		chan_send_over(r, c);
}

/* The peer is gone: with reason, soon, and with an end to every operation. */
static void channel_lost(struct chan_rank *r, int rc)
{
	uint64_t killed = chan_killed_at(r), late = killed ? clock_ns() - killed : 0;
	uint8_t byte = 0;

	if (rc != -ECONNRESET)
		chan_wrong(r->tally, "the channel ended: %s",
			   kedge_strerror(rc));
	else if (!killed && !r->ledger->left[!r->me])
		chan_wrong(r->tally, "the channel ended, and the peer lives");
	if (r->sends || r->recvs)
		chan_wrong(r->tally, "the channel ended, and %u sends and %u "
			   "receives have not", r->sends, r->recvs);
	if (late > r->tally->notice_ns)
		r->tally->notice_ns = late;
	if (late > NOTICE_NS)
		chan_wrong(r->tally, "a dead peer was noticed after %llu ms",
			   (unsigned long long)late / 1000000);
	rc = kedge_channel_send(r->ch, &byte, 1, 0, 0, NULL);
	if (rc != -ECONNRESET)
		chan_wrong(r->tally, "sending to a dead peer: %s",
			   kedge_strerror(rc));
	if (!r->recvs)
		chan_recv_last(r);
}

static bool is_over(struct chan_rank *r)
{
	if (!r->out->closed || r->sends || !r->in->closed)
		return false;
	r->missing = chan_dir_missing(r->in, r->missing);
	return r->missing == r->in->sent;
}

/* Nothing moved in so many polls. */
static void idle(struct chan_rank *r, uint32_t polls)
{
	if (polls % TICK)
		return;
	chan_recv_orphans(r, polls > IDLE_POLLS + IDLE_WAITS * TICK);
	if (polls >= IDLE_POLLS)
		kedge_channel_wait(r->ch, 1);
}

/* All is said, and what is missing has not come for long. Receives that are
 * given up and posted again are no progress. */
static bool is_stuck(struct chan_rank *r, uint64_t *settled, uint64_t *since)
{
	uint64_t now = clock_ns();

	if (r->settled != *settled || !r->out->closed || !r->in->closed) {
		*settled = r->settled;
		*since = now;
	}
	r->ledger->beat[r->me] = r->settled;
	return now - *since > DRAIN_NS;
}

static void exchange(struct chan_rank *r)
{
	uint64_t since = clock_ns(), settled = 0, turns = 0;
	struct kedge_completion c[16];
	uint32_t polls = 0;
	ssize_t n, i;

	while (!is_over(r)) {
		chan_recv_some(r);
		chan_send_some(r);
		n = kedge_channel_poll(r->ch, c, ARRAY_SIZE(c));
		if (n < 0) {
			channel_lost(r, (int)n);
			return;
		}
		for (i = 0; i < n; i++)
			over(r, &c[i]);
		polls = n ? 0 : polls + 1;
		if (polls)
			idle(r, polls);
		if (++turns % TICK)
			continue;
		trick(r);
		if (is_stuck(r, &settled, &since))
			return; /* the audit says what is missing */
	}
}

static bool is_shm(const struct chan_rank *r)
{
	return !strcmp(r->transport, "shm");
}

static int open_channel(struct chan_rank *r, int fd)
{
	struct kedge_channel_opts o = {
		.size = sizeof(o),
		.flags = r->go.flags[r->me],
		.way = r->go.way[r->me],
		.timeout_ms = r->go.timeout_ms[r->me],
		.eager_max = r->go.eager_max[r->me],
		.unexpected_cnt = r->go.unexpected[r->me],
	};
	int rc;

	if (is_shm(r))
		rc = kedge_channel_open_fd(fd, &o, OPEN_MS, &r->ch);
	else
		rc = net_pair(r->transport, r->me, fd, &o, &r->ch);
	if (!rc)
		return 0;
	close(fd);
	if (!chan_killed_at(r))
		chan_wrong(r->tally, "cannot open: %s", kedge_strerror(rc));
	return rc;
}

static void begin(struct chan_rank *r)
{
	r->ch = NULL;
	r->out = &r->ledger->dir[r->me];
	r->in = &r->ledger->dir[!r->me];
	r->next_out = r->next_in = r->missing = 0;
	r->hold = r->owed = 0;
	r->posts = 0;
	r->sends = r->recvs = 0;
	memset(&r->order, 0, sizeof(r->order));
	util_rng_init(&r->rng, r->go.seed + r->me);
}

/* Operations that are posted still have no owner now. */
static void drop(struct chan_rank *r)
{
	const char *what;
	uint32_t i;

	for (i = 0; i < CHAN_WINDOW; i++) {
		struct chan_buf *b = &r->recv[i].buf;

		what = b->mem == MEM_NONE || b->mem == MEM_HEAP
			       ? NULL : chan_buf_check(b, false);
		if (what)
			chan_wrong(r->tally, "a receive that got nothing: a "
				   "byte %s has changed", what);
		chan_buf_drop(b);
		chan_buf_drop(&r->send[i].buf);
		r->recv[i].busy = r->send[i].busy = false;
	}
	chan_spares_drop(r);
	chan_blocks_drop(r);
}

/* Messages that close() left to be sent have a time to be gone, as a thread that asks the peer
 * for a segment. */
static void read_owned(const struct chan_rank *r, const struct chan_owned *was,
		       struct chan_owned *now)
{
	uint64_t end = clock_ns() + LINGER_NS;

	chan_owned_read(now);
	while (clock_ns() < end &&
	       (now->fds != was->fds || now->threads != was->threads)) {
		usleep(1000);
		chan_owned_read(now);
	}
}

static void count_attached(struct chan_rank *r)
{
	struct kedge_channel_stats st = { .size = sizeof(st) };

	if (!kedge_channel_stats(r->ch, &st))
		r->tally->attached += st.attached;
}

static void look_for_leaks(struct chan_rank *r, const struct chan_owned *was)
{
	struct chan_owned now;

	read_owned(r, was, &now);
	if (++r->sessions == SETTLED)
		r->maps = now.maps;
	if (now.fds == was->fds && now.threads == was->threads && !now.areas &&
	    (r->sessions <= SETTLED || now.maps <= r->maps + MAPS_SPARE))
		return;
	r->tally->leaks++;
	chan_wrong(r->tally, "after a session there are %u descriptors, not "
		   "%u; %u threads, not %u; %u mappings, once %u; %u areas, "
		   "not 0", now.fds, was->fds, now.threads, was->threads,
		   now.maps, r->maps, now.areas);
}

static void session(struct chan_rank *r, int fd)
{
	struct chan_owned was;

	begin(r);
	chan_owned_read(&was);
	was.fds--; /* the channel's own socket */
	if (!open_channel(r, fd)) {
		exchange(r);
		chan_kept_look(r, true);
		count_attached(r);
		r->ledger->left[r->me] = 1;
		kedge_channel_close(r->ch);
	}
	drop(r);
	reap(r, 0);
	look_for_leaks(r, &was);
}

/* ---- the process ---- */

/* A session and its socket, or a negative errno. */
static int go_recv(int from, struct chan_go *go, int *fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { { 0 } };
	struct iovec iov = { go, sizeof(*go) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c;

	if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) != sizeof(*go))
		return -EPIPE;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return -EPROTO;
	memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return 0;
}

void chan_rank_child(int fd, void *arg)
{
	struct chan_rank *r = arg;
	uint32_t i;
	int sock;

	r->fd = fd;
	r->tally = &r->ledger->tally[r->me];
	for (i = 0; i < CHAN_WINDOW; i++)
		if (chan_buf_init(&r->recv[i].buf) ||
		    chan_buf_init(&r->send[i].buf))
			return;
	/* Descriptors that libraries keep for the process are open from here on. */
	if (!is_shm(r))
		net_try(r->transport);
	while (!go_recv(fd, &r->go, &sock)) {
		session(r, sock);
		if (proc_send(fd, &r->sessions, sizeof(r->sessions)))
			return;
	}
	for (i = 0; i < CHAN_WINDOW; i++) {
		chan_buf_fini(&r->recv[i].buf);
		chan_buf_fini(&r->send[i].buf);
	}
	if (chan_leaks()) {
		r->tally->leaks++;
		chan_wrong(r->tally, "a sanitizer has found leaks");
	}
}
