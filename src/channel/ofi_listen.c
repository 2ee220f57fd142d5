// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener: a passive endpoint whose event queue tells of peers. A peer is
 * looked at before anything is made for it, and turned away with a reason.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel/ofi.h"

/* For what the peer does between fi_accept() and FI_CONNECTED. */
#define ACCEPT_NS 1000000000ull
/* And for the endpoints of datagrams, which take longer to make. */
#define MEET_NS 3000000000ull

struct ofi_listener {
	struct ofi_fabric *fabric;
	struct fi_info *info;
	struct fid_eq *eq;
	struct fid_pep *pep;
	int fd;
	pid_t pid;
	char *rdm; /* the provider, if another one connects for it */
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
		l->rdm = strdup(provider);
		rc = l->rdm ? 0 : -ENOMEM;
	}
	if (rc)
		goto free_info;
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
	free(l->rdm);
free_listener:
	free(l);
	return rc;
}

/* Those who have asked and got no answer. */
static void reject_all(struct ofi_listener *l)
{
	struct ofi_hello hello;
	struct fi_info *info;
	uint32_t event;
	int rc, idle = 0;

	/* Whom one call lets in the next one tells of. */
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
	if (l->pid == getpid()) {
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

unsigned int kedge__ofi_listener_port(const struct ofi_listener *l)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} addr;
	size_t len = sizeof(addr);

	memset(&addr, 0, sizeof(addr));
	if (fi_getname(&l->pep->fid, &addr, &len))
		return 0;
	if (addr.any.sa_family == AF_INET)
		return ntohs(addr.v4.sin_port);
	return addr.any.sa_family == AF_INET6 ? ntohs(addr.v6.sin6_port) : 0;
}

static void turn_away(struct ofi_listener *l, struct fi_info *info, int why)
{
	struct ofi_hello hello;

	kedge__ofi_hello(&hello, &l->opts, l->rdm);
	hello.status = why;
	fi_reject(l->pep, info->handle, &hello, sizeof(hello));
}

static int take_peer(struct ofi_listener *l, struct fi_info *info,
		     const struct ofi_hello *theirs, struct ofi **out,
		     struct transport_peer *peer)
{
	struct ofi_hello ours, answer;
	struct ofi *o;
	int rc;

	rc = kedge__ofi_hello_check(theirs, sizeof(*theirs));
	if (!rc && theirs->rdm != (l->rdm != NULL))
		rc = kedge_reason(-EPROTO, "the peer has another provider");
	if (!rc)
		rc = kedge__ofi_open(l->fabric, info, &o);
	if (rc) {
		turn_away(l, info, rc);
		return rc;
	}
	kedge__ofi_hello(&ours, &l->opts, l->rdm);
	rc = fi_accept(o->ep, &ours, sizeof(ours));
	if (rc) {
		/* In this order: the endpoint refers to the handle. */
		kedge__ofi_free(o);
		rc = failed(rc, "fi_accept");
		turn_away(l, info, rc);
		return rc;
	}
	rc = kedge__ofi_connected(o, clock_ns() + ACCEPT_NS, &answer);
	if (rc) {
		rc = kedge_reason(rc == -ETIMEDOUT ? -EPROTO : rc,
				  "the peer left in the handshake");
		goto free_ofi;
	}
	rc = kedge__ofi_agree(o, &l->opts, theirs, peer);
	if (!rc && l->rdm)
		rc = kedge__ofi_rdm(&o, l->rdm, clock_ns() + MEET_NS);
	if (rc)
		goto free_ofi;
	*out = o;
	return 0;

free_ofi:
	kedge__ofi_free(o);
	return rc;
}

int kedge__ofi_accept(struct ofi_listener *l, int timeout_ms, struct ofi **out,
		      struct transport_peer *peer)
{
	uint64_t deadline = kedge__ofi_deadline(timeout_ms);
	struct ofi_hello hello;
	struct fi_info *info;
	uint32_t event;
	int rc;

	for (;;) {
		rc = kedge__ofi_eq_read(l->eq, &event, &info, &hello);
		if (!rc && info) {
			rc = take_peer(l, info, &hello, out, peer);
			fi_freeinfo(info);
			return rc;
		}
		/* Errors are of peers that broke off. */
		if (rc && kedge__ofi_wait(l->fd, deadline))
			return kedge_reason(-ETIMEDOUT, "nobody came");
	}
}
