// SPDX-License-Identifier: BSD-2-Clause
/* See net.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/common/net.h"
#include "tools/common/ofi.h"
#include "tools/common/rdma_lib.h"
#include "tools/common/rdma_addr.h"

#define LOOPBACK   "127.0.0.1"
#define TIMEOUT_MS 10000
/* Others may take a port between our finding it and our listening there. */
#define TRIES 16

/* "ofi:shm" and "ofi:verbs" are libfabric's: "shm" and "verbs" are ours. */
static const char *provider_of(const char *transport)
{
	return strncmp(transport, "ofi:", 4) ? transport : transport + 4;
}

static bool is_rdma(const char *transport)
{
	return !strcmp(transport, "verbs");
}

int net_listen(const char *transport, const char *node, const char *service,
	       const struct kedge_channel_opts *opts,
	       struct kedge_listener **listener)
{
	const struct rdma_calls *rdma;
	const struct ofi_calls *ofi;
	int rc;

	if (!strcmp(transport, "tcp"))
		return kedge_listener_open_tcp(node, service, opts, listener);
	if (is_rdma(transport)) {
		rc = rdma_load(&rdma);
		return rc ? rc : rdma->listener_open(node, service, opts,
						     listener);
	}
	rc = ofi_load(&ofi);
	return rc ? rc : ofi->listener_open(provider_of(transport), node,
					    service, opts, listener);
}

int net_connect(const char *transport, const char *node, const char *service,
		const struct kedge_channel_opts *opts, int timeout_ms,
		struct kedge_channel **ch)
{
	const struct rdma_calls *rdma;
	const struct ofi_calls *ofi;
	int rc;

	node = node ? node : LOOPBACK;
	if (!strcmp(transport, "tcp"))
		return kedge_channel_open_tcp(node, service, opts, timeout_ms,
					      ch);
	if (is_rdma(transport)) {
		rc = rdma_load(&rdma);
		return rc ? rc : rdma->channel_open(node, service, opts,
						    timeout_ms, ch);
	}
	rc = ofi_load(&ofi);
	return rc ? rc : ofi->channel_open(provider_of(transport), node,
					   service, opts, timeout_ms, ch);
}

/* ---- both ends on this host ---- */

/* The message of rank 1 to rank 0. */
struct here {
	int32_t rc;
	char addr[RDMA_ADDR_LEN];
	char port[8];
};

/* RDMA devices are not behind the loopback interface. */
static int own_addr(const char *transport, char addr[RDMA_ADDR_LEN])
{
	if (!strncmp(provider_of(transport), "verbs", 5))
		return rdma_addr(addr);
	snprintf(addr, RDMA_ADDR_LEN, "%s", LOOPBACK);
	return 0;
}

static int free_port(const char *addr, char port[8])
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (inet_pton(AF_INET, addr, &a.sin_addr) != 1)
		rc = -EINVAL;
	else if (bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		rc = -errno;
	else
		snprintf(port, 8, "%u", ntohs(a.sin_port));
	close(fd);
	return rc;
}

static int listen_somewhere(const char *transport,
			    const struct kedge_channel_opts *opts,
			    struct here *here, struct kedge_listener **l)
{
	int rc = own_addr(transport, here->addr), tries = TRIES;

	if (rc)
		return rc;
	do {
		rc = free_port(here->addr, here->port);
		if (!rc)
			rc = net_listen(transport, here->addr, here->port,
					opts, l);
	} while (rc == -EADDRINUSE && --tries);
	return rc;
}

static int pair_accept(const char *transport, int fd,
		       const struct kedge_channel_opts *opts,
		       struct kedge_channel **ch)
{
	struct here here = { 0 };
	struct kedge_listener *l;
	int rc;

	rc = here.rc = listen_somewhere(transport, opts, &here, &l);
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

static int pair_connect(const char *transport, int fd,
			const struct kedge_channel_opts *opts,
			struct kedge_channel **ch)
{
	struct here here;

	if (recv(fd, &here, sizeof(here), MSG_WAITALL) != sizeof(here))
		return kedge_reason(-ECONNRESET, "the other end is gone");
	here.addr[sizeof(here.addr) - 1] = '\0';
	here.port[sizeof(here.port) - 1] = '\0';
	if (here.rc)
		return kedge_reason(here.rc, "the other end cannot listen");
	return net_connect(transport, here.addr, here.port, opts, TIMEOUT_MS,
			   ch);
}

int net_pair(const char *transport, unsigned int rank, int fd,
	     const struct kedge_channel_opts *opts, struct kedge_channel **ch)
{
	int rc;

	rc = rank ? pair_accept(transport, fd, opts, ch)
		  : pair_connect(transport, fd, opts, ch);
	if (!rc)
		close(fd);
	return rc;
}

int net_try(const char *transport)
{
	struct kedge_listener *l;
	struct here here;
	int rc = listen_somewhere(transport, NULL, &here, &l);

	if (!rc)
		kedge_listener_close(l);
	return rc;
}
