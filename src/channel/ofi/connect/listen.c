// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener: a passive endpoint, with an event queue that tells of peers. A peer is
 * looked at before anything is made for it, and turned away with a reason.
 *
 * For reliable datagrams a listener of libkedge's own transport over TCP stands in
 * its place: strangers get no further than its handshake.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/meet/meet.h"
#include "channel/ofi/internal.h"

/* For what the peer does between fi_accept() and FI_CONNECTED. */
#define ACCEPT_NS 3000000000ull
/* And for the endpoints of datagrams, which take longer to make, seconds on a host
 * with much to do: no peer has it before its handshake is over. */
#define MEET_NS 10000000000ull

struct ofi_listener {
	struct ofi_fabric *fabric;
	struct fi_info *info;
	struct fid_eq *eq;
	struct fid_pep *pep;
	int fd;
	pid_t pid;
	/* Reliable datagrams: the provider, and where its endpoints meet. Of
	 * the above only @fd and @pid are set then. */
	char *rdm;
	struct tcp_listener *meet;
	struct kedge_channel_opts opts;
};

static int failed(int rc, const char *what)
{
	return kedge_reason(kedge__ofi_errno(rc), "%s: %s", what,
			    fi_strerror(-rc));
}

static int listen_at(struct ofi_listener *l)
{
	int rc;

	rc = fi_passive_ep(l->fabric->fid, l->info, &l->pep, NULL);
	if (rc == -FI_EADDRINUSE)
		return kedge_reason(-EADDRINUSE, "somebody listens there");
	if (rc)
		return failed(rc, "fi_passive_ep");
	rc = fi_pep_bind(l->pep, &l->eq->fid, 0);
	if (rc)
		return failed(rc, "fi_pep_bind");
	rc = fi_listen(l->pep);
	if (rc == -FI_EADDRINUSE)
		return kedge_reason(-EADDRINUSE, "somebody listens there");
	return rc ? failed(rc, "fi_listen") : 0;
}

static int listen_rdm(struct ofi_listener *l, const char *provider,
		      const char *node, const char *service)
{
	int rc;

	l->rdm = strdup(provider);
	if (!l->rdm)
		return kedge_reason(-ENOMEM, "no memory for a listener");
	rc = kedge__meet_listen(node, service, &l->opts, &l->meet);
	if (rc) {
		free(l->rdm);
		return rc;
	}
	/* It is the caller's, and not kept. */
	l->opts.secret = NULL;
	l->fd = kedge__meet_fd(l->meet);
	return 0;
}

int kedge__ofi_listen(const char *provider, const char *node,
		      const char *service,
		      const struct kedge_channel_opts *opts,
		      struct ofi_listener **out)
{
	struct ofi_listener *l = calloc(1, sizeof(*l));
	bool rdm;
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory for a listener");
	l->opts = *opts;
	l->pid = getpid();
	rc = kedge__ofi_getinfo_any(provider, node, service, FI_SOURCE,
				    &l->info, &rdm);
	if (rc)
		goto free_listener;
	if (rdm) {
		rc = listen_rdm(l, provider, node, service);
		if (rc)
			goto free_listener;
		*out = l;
		return 0;
	}
	l->opts.secret = NULL;
	rc = kedge__ofi_fabric_open(l->info, &l->fabric);
	if (rc)
		goto free_info;
	rc = kedge__ofi_eq_open(l->fabric->fid, &l->eq, &l->fd);
	if (rc)
		goto put_fabric;
	rc = listen_at(l);
	if (rc)
		goto close_pep;
	*out = l;
	return 0;

close_pep:
	if (l->pep)
		fi_close(&l->pep->fid);
	fi_close(&l->eq->fid);
put_fabric:
	kedge__ofi_fabric_put(l->fabric);
free_info:
	fi_freeinfo(l->info);
free_listener:
	free(l);
	return rc;
}

/* Reject the peers that have asked and got no answer. */
static void reject_all(struct ofi_listener *l)
{
	struct rdma_hello hello;
	struct fi_info *info;
	uint32_t event;
	int rc, idle = 0;

	/* A read may let a request in that only the next one reports. */
	while (idle < 4) {
		rc = kedge__ofi_eq_read(l->eq, &event, &info, &hello);
		idle = rc ? idle + 1 : 0;
		if (rc || !info)
			continue;
		fi_reject(l->pep, info->handle, NULL, 0);
		fi_freeinfo(info);
	}
}

void kedge__ofi_listener_close(struct ofi_listener *l)
{
	if (l->meet) {
		kedge__meet_close(l->meet);
	} else if (l->pid == getpid()) {
		reject_all(l);
		fi_close(&l->pep->fid);
		fi_close(&l->eq->fid);
		kedge__ofi_fabric_put(l->fabric);
		fi_freeinfo(l->info);
	}
	free(l->rdm);
	free(l);
}

const struct kedge_channel_opts *
kedge__ofi_listener_opts(const struct ofi_listener *l)
{
	return &l->opts;
}

int kedge__ofi_listener_fd(const struct ofi_listener *l)
{
	return l->fd;
}

union ofi_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static size_t name_of(const struct ofi_listener *l, union ofi_address *a)
{
	size_t len = sizeof(*a);

	memset(a, 0, sizeof(*a));
	return fi_getname(&l->pep->fid, a, &len) ? 0 : len;
}

unsigned int kedge__ofi_listener_port(const struct ofi_listener *l)
{
	union ofi_address a;

	if (l->meet)
		return kedge__meet_port(l->meet);
	if (!name_of(l, &a))
		return 0;
	if (a.any.sa_family == AF_INET)
		return ntohs(a.v4.sin_port);
	return a.any.sa_family == AF_INET6 ? ntohs(a.v6.sin6_port) : 0;
}

int kedge__ofi_listener_address(const struct ofi_listener *l, char *text)
{
	union ofi_address a;

	if (l->meet)
		return kedge__meet_address(l->meet, text);
	return kedge__address_text(&a.any, (socklen_t)name_of(l, &a), text);
}

static void turn_away(struct ofi_listener *l, struct fi_info *info, int why)
{
	struct rdma_hello hello;

	kedge__rdma_hello(&hello, &l->opts);
	hello.status = why;
	fi_reject(l->pep, info->handle, &hello, sizeof(hello));
}

static int take_peer(struct ofi_listener *l, struct fi_info *info,
		     const struct rdma_hello *theirs, struct ofi **out,
		     struct transport_peer *peer)
{
	struct rdma_hello ours, answer;
	struct ofi *o;
	int rc;

	rc = kedge__rdma_hello_check(theirs, sizeof(*theirs));
	if (!rc)
		rc = kedge__ofi_open(l->fabric, info, &o);
	if (rc) {
		turn_away(l, info, rc);
		return rc;
	}
	kedge__rdma_hello(&ours, &l->opts);
	rc = fi_accept(o->ep, &ours, sizeof(ours));
	if (rc) {
		/* In this order: the endpoint refers to the handle. */
		kedge__rdma_free(&o->r);
		rc = failed(rc, "fi_accept");
		turn_away(l, info, rc);
		return rc;
	}
	rc = kedge__ofi_connected(o, clock_after_ns(ACCEPT_NS), &answer);
	if (rc) {
		rc = kedge_reason(rc == -ETIMEDOUT ? -EPROTO : rc,
				  "the peer left in the handshake");
		goto free_ofi;
	}
	rc = kedge__rdma_agree(&o->r, &l->opts, theirs, peer);
	if (rc)
		goto free_ofi;
	*out = o;
	return 0;

free_ofi:
	kedge__rdma_free(&o->r);
	return rc;
}

static int accept_rdm(struct ofi_listener *l, int timeout_ms, struct ofi **out,
		      struct transport_peer *peer)
{
	int fd, rc = kedge__meet_accept(l->meet, timeout_ms, &fd, peer);

	if (rc)
		return rc;
	rc = kedge__ofi_rdm(fd, l->rdm, &l->opts, clock_after_ns(MEET_NS), out);
	/* MEET_NS ran out, not the caller's own time. */
	return rc == -ETIMEDOUT ? kedge_reason(-EPROTO, "the peer says nothing "
					       "after the handshake")
				: rc;
}

int kedge__ofi_accept(struct ofi_listener *l, int timeout_ms, struct ofi **out,
		      struct transport_peer *peer)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	struct rdma_hello hello;
	struct fi_info *info;
	uint32_t event;
	int rc;

	if (l->meet)
		return accept_rdm(l, timeout_ms, out, peer);
	for (;;) {
		rc = kedge__ofi_eq_read(l->eq, &event, &info, &hello);
		if (!rc && info) {
			rc = take_peer(l, info, &hello, out, peer);
			fi_freeinfo(info);
			return rc;
		}
		/* Errors are of peers that broke off. */
		if (rc && kedge__rdma_wait(l->fd, deadline))
			return kedge_reason(-ETIMEDOUT, "no peer connected in time");
	}
}
