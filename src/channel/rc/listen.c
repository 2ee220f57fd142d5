// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener: peers are looked at before anything is made for them, and turned away
 * with a reason.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/meet/meet.h"
#include "channel/rc/internal.h"

/* For what the peer does between rdma_accept() and the connection. */
#define ACCEPT_NS 3000000000ull
#define BACKLOG	  64
/* Each has its queues and buffers. */
#define WAITING_MAX 16

/* A peer that was answered: its side is to say that it has heard of it. */
struct waiting {
	struct list node; /* l->waiting */
	struct rc *c;
	struct rdma_hello theirs;
	uint64_t until;
};

/* @fd: readable when there is something to accept. @events_id: the descriptor of events as
 * it was opened; a program may close what is not its own. @removed: the
 * device at its address is gone, which the kernel says once. */
struct rc_listener {
	int fd;
	bool removed;
	struct list waiting;
	uint32_t waiting_cnt;
	struct rdma_event_channel *events;
	struct fd_id events_id;
	struct rdma_cm_id *id;
	struct kedge_channel_opts opts;
	pid_t pid;
};

static int listen_at(struct rc_listener *l, const struct rdma_addrinfo *at)
{
	if (rdma_create_id(l->events, &l->id, l, RDMA_PS_TCP))
		return kedge__rc_failed("rdma_create_id");
	if (!rdma_bind_addr(l->id, at->ai_src_addr) &&
	    !rdma_listen(l->id, BACKLOG))
		return 0;
	if (errno == EADDRINUSE)
		return kedge_reason(-EADDRINUSE, "somebody listens there");
	return kedge__rc_failed("rdma_listen");
}

static void close_cm(struct rc_listener *l)
{
	if (l->id)
		rdma_destroy_id(l->id);
	if (l->events)
		rdma_destroy_event_channel(l->events);
	if (l->fd >= 0)
		close(l->fd);
}

static int open_fd(struct rc_listener *l)
{
	struct epoll_event ev = { .events = EPOLLIN };

	errno = 0;
	l->fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->fd >= 0 &&
	    !epoll_ctl(l->fd, EPOLL_CTL_ADD, l->events->fd, &ev))
		return 0;
	return kedge__rc_failed("a descriptor to wait on");
}

int kedge__rc_listen(const char *node, const char *service,
		     const struct kedge_channel_opts *opts,
		     struct rc_listener **out)
{
	struct rc_listener *l = calloc(1, sizeof(*l));
	struct rdma_addrinfo *list = NULL;
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory for a listener");
	l->opts = *opts;
	/* It is the caller's, and not kept. */
	l->opts.secret = NULL;
	l->pid = getpid();
	l->fd = -1;
	list_init(&l->waiting);
	rc = kedge__rc_first_use();
	if (!rc)
		rc = kedge__rc_find(node, service, true, &list);
	if (!rc)
		rc = kedge__rc_events_open(&l->events);
	if (!rc)
		rc = open_fd(l);
	if (!rc)
		kedge__fd_note(l->events->fd, &l->events_id);
	errno = 0;
	if (!rc)
		rc = listen_at(l, list);
	if (list)
		rdma_freeaddrinfo(list);
	if (!rc) {
		*out = l;
		return 0;
	}
	close_cm(l);
	free(l);
	return rc;
}

static void turn_away(struct rc_listener *l, struct rdma_cm_id *id, int why)
{
	struct rdma_hello hello;

	kedge__rdma_hello(&hello, &l->opts);
	hello.status = why;
	rdma_reject(id, &hello, sizeof(hello));
}

/* The peers that have asked and got no answer. */
static void reject_all(struct rc_listener *l)
{
	struct rc_event got;

	while (!kedge__rc_event(l->events, 0, &got)) {
		if (got.type != RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		rdma_reject(got.id, NULL, 0);
		rdma_destroy_id(got.id);
	}
}


const struct kedge_channel_opts *
kedge__rc_listener_opts(const struct rc_listener *l)
{
	return &l->opts;
}

int kedge__rc_listener_fd(const struct rc_listener *l)
{
	return l->fd;
}

int kedge__rc_listener_address(const struct rc_listener *l, char *text)
{
	const struct sockaddr *a = rdma_get_local_addr(l->id);
	socklen_t len = a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						 : sizeof(struct sockaddr_in);

	return kedge__address_text(a, len, text);
}

static int left(void)
{
	return kedge_reason(-ECONNRESET, "the peer left in the handshake");
}

/* The kernel says EINVAL of a request that is in no state to be answered any more. */
static int gone_or(int rc)
{
	return rc == -EINVAL ? left() : rc;
}

/* ---- peers that were answered ---- */

static void drop(struct rc_listener *l, struct waiting *w, const char *why)
{
	if (why)
		kedge__log(KEDGE_LOG_INFO, "a peer came to nothing: %s", why);
	list_remove(&w->node);
	l->waiting_cnt--;
	if (w->c)
		kedge__rdma_free(&w->c->r);
	free(w);
}

/* True with *@rc: 0 and *@out, or a failure of this side's. False: not yet, or never. */
static bool is_there(struct rc_listener *l, struct waiting *w, struct rc **out,
		     struct transport_peer *peer, int *rc)
{
	struct rc_event got;

	*rc = kedge__rc_mine(w->c) ? kedge__rc_event(w->c->events, 0, &got)
				   : -EBADF;
	if (*rc == -ETIMEDOUT && clock_ns() < w->until)
		return false;
	if (!*rc && got.type == RDMA_CM_EVENT_ESTABLISHED)
		*rc = kedge__rdma_agree(&w->c->r, &l->opts, &w->theirs, peer);
	else if (!*rc)
		*rc = left();
	if (*rc) {
		drop(l, w, kedge_strerror(*rc));
		return false;
	}
	*out = w->c;
	epoll_ctl(l->fd, EPOLL_CTL_DEL, w->c->events->fd, NULL);
	w->c = NULL;
	drop(l, w, NULL);
	return true;
}

static bool any_there(struct rc_listener *l, struct rc **out,
		      struct transport_peer *peer, int *rc, uint64_t *until)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &l->waiting) {
		struct waiting *w = list_entry(n, struct waiting, node);

		if (w->until < *until)
			*until = w->until;
		if (is_there(l, w, out, peer, rc))
			return true;
	}
	return false;
}

static bool is_mine(const struct rc_listener *l)
{
	return kedge__fd_same(l->events->fd, &l->events_id);
}

void kedge__rc_listener_close(struct rc_listener *l)
{
	bool ours = l->pid == getpid();
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &l->waiting)
		drop(l, list_entry(n, struct waiting, node), NULL);
	if (ours && is_mine(l)) {
		reject_all(l);
		close_cm(l);
	} else if (is_mine(l)) {
		close(l->events->fd);
		close(l->fd);
	}
	free(l);
}

/* ---- peers that ask ---- */

/* @id is the new end's from kedge__rc_open() on. */
static int answer(struct rc_listener *l, struct rdma_cm_id *id,
		  const struct rdma_hello *theirs, struct rc **out)
{
	struct rdma_conn_param param;
	struct rdma_hello ours;
	struct rc *c;
	int rc;

	rc = kedge__rdma_hello_check(theirs, sizeof(*theirs));
	if (!rc && l->waiting_cnt == WAITING_MAX)
		rc = kedge_reason(-ECONNREFUSED, "too many peers are at it");
	if (!rc)
		rc = gone_or(kedge__rc_open(id, &c));
	if (rc) {
		turn_away(l, id, rc);
		rdma_destroy_id(id);
		return rc;
	}
	rc = gone_or(kedge__rc_ready(c));
	if (rc) {
		turn_away(l, id, rc);
		goto free_rc;
	}
	kedge__rdma_hello(&ours, &l->opts);
	kedge__rc_param(&param, &ours);
	errno = 0;
	if (rdma_accept(id, &param)) {
		rc = gone_or(kedge__rc_failed("rdma_accept"));
		goto free_rc;
	}
	*out = c;
	return 0;

free_rc:
	kedge__rdma_free(&c->r);
	return rc;
}

static int take_peer(struct rc_listener *l, const struct rc_event *got)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct waiting *w = calloc(1, sizeof(*w));
	int rc = w ? answer(l, got->id, &got->hello, &w->c) : -ENOMEM;

	if (rc) {
		free(w);
		return rc;
	}
	w->theirs = got->hello;
	w->until = clock_after_ns(ACCEPT_NS);
	list_init(&w->node);
	list_add_tail(&l->waiting, &w->node);
	l->waiting_cnt++;
	if (!epoll_ctl(l->fd, EPOLL_CTL_ADD, w->c->events->fd, &ev))
		return 0;
	rc = kedge__rc_failed("epoll_ctl");
	drop(l, w, NULL);
	return rc;
}

/* Of the peer's making: another one may be better. */
static bool of_peer(int rc)
{
	return rc == -EPROTO || rc == -ECONNRESET || rc == -ECONNREFUSED;
}

/* A listener at every address has no device: it hears of none. */
static int removed(void)
{
	return kedge_reason(-ENODEV, "the RDMA device at the listener's address was "
			    "removed: open another listener when it is back");
}

/* All that have asked: 0, or a failure of this side's. */
static int take_all(struct rc_listener *l)
{
	struct rc_event got;
	int rc;

	for (;;) {
		if (l->removed)
			return removed();
		rc = kedge__rc_event(l->events, 0, &got);
		if (rc)
			return rc == -ETIMEDOUT ? 0 : rc;
		l->removed = got.type == RDMA_CM_EVENT_DEVICE_REMOVAL && got.id == l->id;
		/* Others are of peers that broke off. */
		if (got.type != RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		rc = take_peer(l, &got);
		if (rc && !of_peer(rc))
			return rc;
		if (rc)
			kedge__log(KEDGE_LOG_INFO, "a peer was turned away: %s",
				   kedge_strerror(rc));
	}
}

int kedge__rc_accept(struct rc_listener *l, int timeout_ms, struct rc **out,
		     struct transport_peer *peer)
{
	uint64_t deadline = clock_deadline(timeout_ms), until;
	int rc;

	for (;;) {
		/* librdmacm would write to what has its number. */
		if (!is_mine(l))
			return kedge_reason(-EBADF, "the program closed the "
					    "listener's descriptor: open "
					    "another one");
		rc = take_all(l);
		if (rc)
			return rc;
		until = deadline;
		if (any_there(l, out, peer, &rc, &until))
			return rc;
		if (clock_ns() >= deadline)
			return kedge_reason(-ETIMEDOUT, "no peer connected in "
					    "time");
		rc = kedge__wait_for(l->fd, POLLIN, until, -1);
		if (rc && rc != -ETIMEDOUT)
			return rc;
	}
}
