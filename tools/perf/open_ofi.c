// SPDX-License-Identifier: BSD-2-Clause
/* Where kedge perf opens channels over libfabric. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/ofi.h"
#include "tools/perf/perf.h"

#define SERVICE	   "7475"
#define LOOPBACK   "127.0.0.1"
#define TIMEOUT_MS 10000
/* Others may take a port between our finding it and our listening there. */
#define TRIES 16

/* "ofi:shm" is libfabric's shm: "shm" is ours. */
static const char *provider_of(const struct perf_place *at)
{
	return strncmp(at->transport, "ofi:", 4) ? at->transport
						 : at->transport + 4;
}

static const char *service_of(const struct perf_place *at)
{
	return at->service ? at->service : SERVICE;
}

int perf_listen_ofi(const struct perf_place *at,
		    const struct kedge_channel_opts *opts,
		    struct kedge_listener **listener)
{
	const struct ofi_calls *ofi;
	int rc = ofi_load(&ofi);

	return rc ? rc : ofi->listener_open(provider_of(at), at->node,
					    service_of(at), opts, listener);
}

int perf_connect_ofi(const struct perf_place *at,
		     const struct kedge_channel_opts *opts, int timeout_ms,
		     struct kedge_channel **ch)
{
	const struct ofi_calls *ofi;
	int rc = ofi_load(&ofi);

	return rc ? rc : ofi->channel_open(provider_of(at),
					   at->node ? at->node : LOOPBACK,
					   service_of(at), opts, timeout_ms,
					   ch);
}

/* ---- both ends on this host ---- */

/* What rank 1 tells rank 0. */
struct here {
	int32_t rc;
	char port[8];
};

static int free_port(char port[8])
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);
	int rc = 0;

	if (fd < 0)
		return -errno;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		rc = -errno;
	else
		snprintf(port, 8, "%u", ntohs(a.sin_port));
	close(fd);
	return rc;
}

static int listen_somewhere(const struct perf_place *at,
			    const struct kedge_channel_opts *opts,
			    struct here *here, struct kedge_listener **l)
{
	const struct perf_place place = { at->transport, LOOPBACK,
					  here->port };
	int rc, tries = TRIES;

	do {
		rc = free_port(here->port);
		if (!rc)
			rc = perf_listen_ofi(&place, opts, l);
	} while (rc == -EADDRINUSE && --tries);
	return rc;
}

static int pair_accept(const struct perf_place *at, int fd,
		       const struct kedge_channel_opts *opts,
		       struct kedge_channel **ch)
{
	struct here here = { 0 };
	struct kedge_listener *l;
	int rc;

	rc = here.rc = listen_somewhere(at, opts, &here, &l);
	/* A failure is told, too: the other end waits. */
	if (send(fd, &here, sizeof(here), MSG_NOSIGNAL) != sizeof(here) && !rc)
		rc = -ECONNRESET;
	if (here.rc)
		return rc;
	if (!rc)
		rc = kedge_listener_accept(l, TIMEOUT_MS, ch);
	kedge_listener_close(l);
	return rc;
}

static int pair_connect(const struct perf_place *at, int fd,
			const struct kedge_channel_opts *opts,
			struct kedge_channel **ch)
{
	struct perf_place place = { at->transport, LOOPBACK, NULL };
	struct here here;

	if (recv(fd, &here, sizeof(here), MSG_WAITALL) != sizeof(here))
		return kedge_reason(-ECONNRESET, "the other end is gone");
	here.port[sizeof(here.port) - 1] = '\0';
	if (here.rc)
		return kedge_reason(here.rc, "the other end cannot listen");
	place.service = here.port;
	return perf_connect_ofi(&place, opts, TIMEOUT_MS, ch);
}

int perf_pair_ofi(const struct perf_place *at, unsigned int rank, int fd,
		  const struct kedge_channel_opts *opts,
		  struct kedge_channel **ch)
{
	int rc;

	rc = rank ? pair_accept(at, fd, opts, ch)
		  : pair_connect(at, fd, opts, ch);
	if (!rc)
		close(fd);
	return rc;
}
