// SPDX-License-Identifier: BSD-2-Clause
/*
 * Providers without connected endpoints: reliable datagrams (FI_EP_RDM).
 *
 * Such an endpoint knows no peer and cannot tell that one dies. So the ends meet
 * over a connection of libkedge's own (meet/meet.h): its handshake is over before
 * anything of libfabric's is made, and there they exchange what the endpoints are
 * called. It stays, and its end is the peer's. Each channel has an endpoint of its
 * own, which receives from that one peer only (FI_DIRECTED_RECV).
 *
 * A FIN is ordered behind its data: each write completes when it has landed
 * (FI_DELIVERY_COMPLETE), and the FIN is sent after that. Message order is not
 * relied on, as it does not cover the data in all providers. Packets do without:
 * "shm" takes no second one before the peer has seen the first.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/ofi/internal.h"

#define NAME_MAX_LEN 256u

/* The ends tell each other this, twice. The second time @len is 0: receives are
 * posted, so that no provider has to keep what comes. */
struct rdm_name {
	char provider[64];
	uint32_t len;
	uint32_t pid;
	uint32_t rx_cnt;
	uint32_t zero;
	uint8_t name[NAME_MAX_LEN];
};

static int failed(int rc, const char *what)
{
	return kedge_reason(kedge__ofi_errno(rc), "%s: %s", what,
			    fi_strerror(-rc));
}

/* ---- the provider ---- */

/* ---- over the connection ---- */

static int has_left(void)
{
	return kedge_reason(-ECONNRESET, "the peer left in the handshake");
}

/* A connection on which so little was said has room for it. */
static int say(int fd, const struct rdm_name *n)
{
	ssize_t len = send(fd, n, sizeof(*n), MSG_NOSIGNAL | MSG_DONTWAIT);

	return len == (ssize_t)sizeof(*n) ? 0 : has_left();
}

/* To its last byte, and no further. */
static int hear(int fd, struct rdm_name *n, uint64_t deadline)
{
	size_t got = 0;
	ssize_t len;
	int rc;

	while (got < sizeof(*n)) {
		len = recv(fd, (char *)n + got, sizeof(*n) - got, MSG_DONTWAIT);
		if (!len || (len < 0 && errno != EAGAIN && errno != EINTR))
			return has_left();
		if (len > 0) {
			got += (size_t)len;
			continue;
		}
		rc = kedge__wait_for(fd, POLLIN, deadline, -1);
		if (rc)
			return rc;
	}
	if (n->len > NAME_MAX_LEN || n->zero || n->rx_cnt < 8 ||
	    n->rx_cnt > 4096)
		return kedge_reason(-EPROTO, "the peer's handshake has no "
				    "valid address: it is no kedge of this "
				    "version, or broken");
	return 0;
}

static int tell_name(struct ofi *o, const char *provider)
{
	struct rdm_name n = { .rx_cnt = RX_CNT };
	size_t len = sizeof(n.name);
	int rc;

	strncpy(n.provider, provider, sizeof(n.provider) - 1);
	rc = fi_getname(&o->ep->fid, n.name, &len);
	if (rc)
		return failed(rc, "fi_getname");
	n.len = (uint32_t)len;
	n.pid = (uint32_t)getpid();
	return say(o->ctl_fd, &n);
}

static int meet(struct ofi *o, const char *provider, uint64_t deadline)
{
	struct rdm_name n;
	int rc;

	rc = hear(o->ctl_fd, &n, deadline);
	if (rc)
		return rc;
	if (!n.len)
		return kedge_reason(-EPROTO, "the peer's handshake has no "
				    "valid address: it is no kedge of this "
				    "version, or broken");
	if (strncmp(n.provider, provider, sizeof(n.provider)))
		return kedge_reason(-EPROTO, "the peer's provider is \"%.*s\", "
				    "this one's \"%s\"",
				    (int)sizeof(n.provider) - 1, n.provider,
				    provider);
	/* Its endpoints use each other's memory, and crash when one is closed. */
	if (!strcmp(provider, "shm") && n.pid == (uint32_t)getpid())
		return kedge_reason(-EOPNOTSUPP, "libfabric's \"shm\" is for "
				    "two processes");
	rc = fi_av_insert(o->av, n.name, 1, &o->peer, 0, NULL);
	if (rc != 1)
		return kedge_reason(-EIO, "\"%s\" does not take the "
				    "peer's address: are both ends of one "
				    "version of libfabric?", provider);
	o->r.credit = o->r.credit_max = n.rx_cnt;
	rc = kedge__rdma_post_all(&o->r);
	if (rc)
		return rc;
	n = (struct rdm_name){ .rx_cnt = RX_CNT };
	rc = say(o->ctl_fd, &n);
	if (!rc)
		rc = hear(o->ctl_fd, &n, deadline);
	return rc;
}

/* ---- the endpoint ---- */

/* This host's address on the way to the peer, in digits. */
static int local_node(int fd, char *node, size_t len)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_storage room;
	} a = { .room = { 0 } };
	socklen_t addr_len = sizeof(a);
	struct sockaddr_in v4 = { .sin_family = AF_INET };

	if (getsockname(fd, &a.any, &addr_len))
		return kedge_reason(-errno, "the connection has no address");
	/* A listener for both families has IPv4 addresses in IPv6 ones. */
	if (a.any.sa_family == AF_INET6 &&
	    IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr)) {
		memcpy(&v4.sin_addr, a.v6.sin6_addr.s6_addr + 12, 4);
		a.v4 = v4;
		addr_len = sizeof(v4);
	}
	if (getnameinfo(&a.any, addr_len, node, (socklen_t)len, NULL, 0,
			NI_NUMERICHOST))
		return kedge_reason(-EIO, "the connection has no address");
	return 0;
}

static int open_data(int fd, const char *provider, struct ofi **out)
{
	struct ofi_fabric *fabric;
	struct fi_info *info;
	char node[NI_MAXHOST];
	int rc;

	rc = local_node(fd, node, sizeof(node));
	if (rc)
		return rc;
	rc = kedge__ofi_getinfo_rdm(provider, node, &info);
	if (rc)
		return rc;
	rc = kedge__ofi_fabric_open(info, &fabric);
	if (rc)
		goto free_info;
	rc = kedge__ofi_open(fabric, info, out);
	kedge__ofi_fabric_put(fabric);
free_info:
	fi_freeinfo(info);
	return rc;
}

int kedge__ofi_rdm(int fd, const char *provider,
		   const struct kedge_channel_opts *opts, uint64_t deadline,
		   struct ofi **out)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	struct ofi *o;
	int rc;

	rc = open_data(fd, provider, &o);
	if (rc) {
		close(fd);
		return rc;
	}
	o->ctl_fd = fd;
	o->r.heap_max = opts->heap_bytes;
	rc = tell_name(o, provider);
	if (!rc)
		rc = meet(o, provider, deadline);
	/* Now: what was said there would wake for ever. */
	if (!rc && epoll_ctl(o->r.fd, EPOLL_CTL_ADD, fd, &ev))
		rc = kedge_reason(-errno, "no descriptor to wait on");
	if (rc)
		kedge__rdma_free(&o->r);
	else
		*out = o;
	return rc;
}

/* ---- the sign of life ---- */
