// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener: peers are looked at before anything is made for them, and turned away
 * with a reason.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/meet/meet.h"
#include "channel/rc/internal.h"

/* For what the peer does between rdma_accept() and the connection. */
#define ACCEPT_NS 3000000000ull
#define BACKLOG	  64

struct rc_listener {
	struct rdma_event_channel *events;
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
	rc = kedge__rc_find(node, service, true, &list);
	if (!rc)
		rc = kedge__rc_events_open(&l->events);
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
		if (!got.id)
			continue;
		rdma_reject(got.id, NULL, 0);
		rdma_destroy_id(got.id);
	}
}

void kedge__rc_listener_close(struct rc_listener *l)
{
	if (l->pid == getpid()) {
		reject_all(l);
		close_cm(l);
	} else {
		close(l->events->fd);
	}
	free(l);
}

const struct kedge_channel_opts *
kedge__rc_listener_opts(const struct rc_listener *l)
{
	return &l->opts;
}

int kedge__rc_listener_fd(const struct rc_listener *l)
{
	return l->events->fd;
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

/* Until the peer's side has heard of it. */
static int established(struct rc *c)
{
	struct rc_event got;
	int rc = kedge__rc_event(c->events, clock_ns() + ACCEPT_NS, &got);

	if (!rc && got.type == RDMA_CM_EVENT_ESTABLISHED)
		return 0;
	if (rc && rc != -ETIMEDOUT)
		return rc;
	return rc ? kedge_reason(-EPROTO, "the peer says nothing after the "
				 "handshake")
		  : left();
}

/* @id is the new end's from kedge__rc_open() on. */
static int take_peer(struct rc_listener *l, struct rdma_cm_id *id,
		     const struct rdma_hello *theirs, struct rc **out,
		     struct transport_peer *peer)
{
	struct rdma_conn_param param;
	struct rdma_hello ours;
	struct rc *c;
	int rc;

	rc = kedge__rdma_hello_check(theirs, sizeof(*theirs));
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
	rc = established(c);
	if (!rc)
		rc = kedge__rdma_agree(&c->r, &l->opts, theirs, peer);
	if (rc)
		goto free_rc;
	*out = c;
	return 0;

free_rc:
	kedge__rdma_free(&c->r);
	return rc;
}

int kedge__rc_accept(struct rc_listener *l, int timeout_ms, struct rc **out,
		     struct transport_peer *peer)
{
	uint64_t deadline = kedge__deadline_of(timeout_ms);
	struct rc_event got;
	int rc;

	for (;;) {
		rc = kedge__rc_event(l->events, deadline, &got);
		if (rc == -ETIMEDOUT)
			return kedge_reason(rc, "no peer connected in time");
		if (rc)
			return rc;
		/* Others are of peers that broke off. */
		if (got.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			return take_peer(l, got.id, &got.hello, out, peer);
	}
}
