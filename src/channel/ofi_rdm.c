// SPDX-License-Identifier: BSD-2-Clause
/*
 * Providers without connected endpoints: reliable datagrams (FI_EP_RDM).
 *
 * Such an endpoint knows nobody and tells nothing of a peer that dies. So the
 * ends connect by "tcp" first, as a channel over it would, and exchange there
 * what the endpoints are called; the connection stays, and its end is the
 * peer's. Each channel has an endpoint of its own, which receives from that one
 * peer only (FI_DIRECTED_RECV).
 *
 * What orders a FIN behind its data: each write completes when it has landed
 * (FI_DELIVERY_COMPLETE), and the FIN is sent after that. Message order is not
 * relied on, as it says nothing of the data in all providers. Packets do without:
 * "shm" takes no second one before the peer has seen the first.
 */
#include <netdb.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/ofi.h"

#define NAME_MAX_LEN 256u

/* What the ends tell each other. The second time @len is 0: receives are
 * posted, so that no provider has to keep what comes. */
struct rdm_name {
	char provider[64];
	uint32_t len;
	uint32_t pid;
	uint8_t name[NAME_MAX_LEN];
};

static int failed(int rc, const char *what)
{
	return kedge_reason(kedge__ofi_errno(rc), "%s: %s", what,
			    fi_strerror(-rc));
}

/* ---- the provider ---- */

static struct fi_info *hints_rdm(const char *provider)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		return NULL;
	h->fabric_attr->prov_name = strdup(provider);
	if (!h->fabric_attr->prov_name) {
		fi_freeinfo(h);
		return NULL;
	}
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_MSG | FI_RMA | FI_DIRECTED_RECV;
	h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY |
				  FI_MR_ENDPOINT;
	h->tx_attr->msg_order = FI_ORDER_SAS;
	h->rx_attr->msg_order = FI_ORDER_SAS;
	h->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	return h;
}

static bool is_ip(const struct fi_info *info)
{
	return info->addr_format == FI_SOCKADDR ||
	       info->addr_format == FI_SOCKADDR_IN ||
	       info->addr_format == FI_SOCKADDR_IN6;
}

int kedge__ofi_getinfo_rdm(const char *provider, const char *node,
			   struct fi_info **info)
{
	struct fi_info *h = hints_rdm(provider);
	int rc;

	if (!h)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	rc = fi_getinfo(OFI_API, NULL, NULL, 0, h, info);
	/* By the interface on which the peer was met; other providers have
	 * addresses of their own. */
	if (!rc && node && is_ip(*info)) {
		fi_freeinfo(*info);
		rc = fi_getinfo(OFI_API, node, NULL, FI_SOURCE, h, info);
	}
	fi_freeinfo(h);
	if (!rc)
		(*info)->tx_attr->op_flags = 0; /* each write asks for it */
	if (rc == -FI_ENOMEM)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	if (rc)
		return kedge_reason(-EOPNOTSUPP,
				    "libfabric's provider \"%s\" has neither "
				    "connected endpoints with ordered RMA "
				    "writes (FI_EP_MSG) nor reliable datagrams "
				    "with RMA (FI_EP_RDM)%s%s: take \"tcp\", "
				    "or \"verbs\" on an RDMA adapter",
				    provider, node ? " at " : "",
				    node ? node : "");
	return 0;
}

/* ---- over the connection ---- */

static int say(struct ofi *ctl, const struct rdm_name *n)
{
	void *packet = kedge__ofi_ops.reserve(ctl, sizeof(*n));

	if (!packet)
		return kedge_reason(-ECONNRESET, "the peer left in the "
						 "handshake");
	memcpy(packet, n, sizeof(*n));
	kedge__ofi_ops.commit(ctl, packet, sizeof(*n));
	kedge__ofi_ops.flush(ctl);
	return 0;
}

static int hear(struct ofi *ctl, struct rdm_name *n, uint64_t deadline)
{
	const void *packet;
	size_t len;
	int rc;

	while (!(packet = kedge__ofi_ops.next(ctl, &len))) {
		rc = kedge__ofi_ops.check(ctl);
		if (!rc)
			rc = kedge__ofi_wait(ctl->fd, deadline);
		if (rc)
			return kedge_reason(rc, "the peer left in the "
					    "handshake");
	}
	if (len == sizeof(*n))
		memcpy(n, packet, sizeof(*n));
	kedge__ofi_ops.release(ctl, packet);
	if (len != sizeof(*n) || n->len > NAME_MAX_LEN)
		return kedge_reason(-EPROTO, "the peer's name is none");
	return 0;
}

static int tell_name(struct ofi *o, const char *provider)
{
	struct rdm_name n = { .len = 0 };
	size_t len = sizeof(n.name);
	int rc;

	strncpy(n.provider, provider, sizeof(n.provider) - 1);
	rc = fi_getname(&o->ep->fid, n.name, &len);
	if (rc)
		return failed(rc, "fi_getname");
	n.len = (uint32_t)len;
	n.pid = (uint32_t)getpid();
	return say(o->ctl, &n);
}

static int meet(struct ofi *o, const char *provider, uint64_t deadline)
{
	struct rdm_name n;
	int rc;

	rc = hear(o->ctl, &n, deadline);
	if (rc)
		return rc;
	if (!n.len)
		return kedge_reason(-EPROTO, "the peer's name is none");
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
		return kedge_reason(-EIO, "the peer's address is none to \"%s\"",
				    provider);
	rc = kedge__ofi_post_all(o);
	if (rc)
		return rc;
	memset(&n, 0, sizeof(n));
	rc = say(o->ctl, &n);
	if (!rc)
		rc = hear(o->ctl, &n, deadline);
	return rc;
}

/* ---- the endpoint ---- */

/* This host's address on the way to the peer, in digits. */
static int local_node(struct ofi *ctl, char *node, size_t len)
{
	struct sockaddr_storage addr;
	size_t addr_len = sizeof(addr);
	int rc;

	memset(&addr, 0, sizeof(addr));
	rc = fi_getname(&ctl->ep->fid, &addr, &addr_len);
	if (rc)
		return failed(rc, "fi_getname");
	if (getnameinfo((struct sockaddr *)&addr, (socklen_t)addr_len, node,
			(socklen_t)len, NULL, 0, NI_NUMERICHOST))
		return kedge_reason(-EIO, "the connection has no address");
	return 0;
}

static int open_data(struct ofi *ctl, const char *provider, struct ofi **out)
{
	struct ofi_fabric *fabric;
	struct fi_info *info;
	char node[NI_MAXHOST];
	int rc;

	rc = local_node(ctl, node, sizeof(node));
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

int kedge__ofi_rdm(struct ofi **conn, const char *provider, uint64_t deadline)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct ofi *ctl = *conn, *o;
	int rc;

	rc = open_data(ctl, provider, &o);
	if (rc)
		return rc;
	o->ctl = ctl;
	o->credit = o->credit_max = ctl->credit_max;
	o->heap_max = ctl->heap_max;
	if (epoll_ctl(o->fd, EPOLL_CTL_ADD, ctl->fd, &ev))
		rc = kedge_reason(-errno, "no descriptor to wait on");
	if (!rc)
		rc = tell_name(o, provider);
	if (!rc)
		rc = meet(o, provider, deadline);
	if (!rc) {
		*conn = o;
		return 0;
	}
	/* The connection stays the caller's. */
	o->ctl = NULL;
	kedge__ofi_free(o);
	return rc;
}

/* ---- the sign of life ---- */

int kedge__ofi_ctl_check(struct ofi *o)
{
	size_t len;

	if (!o->ctl)
		return 0;
	/* Nothing more is said there. */
	if (kedge__ofi_ops.next(o->ctl, &len))
		return -EPROTO;
	return kedge__ofi_ops.check(o->ctl);
}
