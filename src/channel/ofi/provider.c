// SPDX-License-Identifier: BSD-2-Clause
/* A provider of libfabric's: finding one, its errors, its fabric, its events. */
#include <stdlib.h>
#include "channel/meet/meet.h"
#include "channel/ofi/internal.h"

int kedge__ofi_errno(ssize_t rc)
{
	if (rc >= 0)
		return 0;
	if (rc == -FI_ENOPROTOOPT)
		return -EPROTO;
	return rc > -FI_ERRNO_OFFSET ? (int)rc : -EIO;
}

static struct fi_info *hints_new(const char *provider)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		return NULL;
	h->fabric_attr->prov_name = strdup(provider);
	if (!h->fabric_attr->prov_name) {
		fi_freeinfo(h);
		return NULL;
	}
	return h;
}

static void hints_channel(struct fi_info *h)
{
	h->ep_attr->type = FI_EP_MSG;
	h->caps = FI_MSG | FI_RMA;
	h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	h->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
	h->rx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
}

/* The reason why fi_getinfo() found no match; -EOPNOTSUPP without a reason: no
 * connected endpoints with ordered RMA writes. */
static int explain(const char *provider, const char *node)
{
	struct fi_info *h = hints_new(provider), *info = NULL;
	int known, fits;

	if (!h)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	known = !fi_getinfo(OFI_API, NULL, NULL, 0, h, &info);
	fi_freeinfo(info);
	info = NULL;
	hints_channel(h);
	fits = known && !fi_getinfo(OFI_API, NULL, NULL, 0, h, &info);
	fi_freeinfo(info);
	fi_freeinfo(h);
	if (!known)
		return kedge_reason(-ENODEV,
				    "libfabric has no provider \"%s\" here: "
				    "kedge info and fi_info -l list those it "
				    "has", provider);
	if (!fits)
		return -EOPNOTSUPP;
	return kedge_reason(-EADDRNOTAVAIL,
			    "libfabric's provider \"%s\" cannot reach or "
			    "listen at \"%s\": no such address, name or "
			    "service", provider, node ? node : "*");
}

static int getinfo(const char *provider, const char *node, const char *service,
		   uint64_t flags, struct fi_info **info)
{
	struct fi_info *h = hints_new(provider);
	int rc;

	if (!h)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	hints_channel(h);
	rc = fi_getinfo(OFI_API, node, service, flags, h, info);
	if (rc == -FI_ENODATA) {
		/* Without that order writes must say when they have landed. */
		h->tx_attr->msg_order = FI_ORDER_SAS;
		h->rx_attr->msg_order = FI_ORDER_SAS;
		h->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
		rc = fi_getinfo(OFI_API, node, service, flags, h, info);
	}
	fi_freeinfo(h);
	if (rc == -FI_ENOMEM)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	return rc ? explain(provider, node) : 0;
}

int kedge__ofi_getinfo_any(const char *provider, const char *node,
			   const char *service, uint64_t flags,
			   struct fi_info **info, bool *rdm)
{
	struct fi_info *there;
	int rc;

	*rdm = false;
	rc = service ? kedge__port_check(service, flags & FI_SOURCE) : 0;
	if (rc)
		return rc;
	rc = getinfo(provider, node, service, flags, info);
	if (rc != -EOPNOTSUPP)
		return rc;
	rc = kedge__ofi_getinfo_rdm(provider, NULL, &there);
	if (rc)
		return rc;
	fi_freeinfo(there);
	*rdm = true;
	*info = NULL;
	return 0;
}

int kedge__ofi_fabric_open(const struct fi_info *info, struct ofi_fabric **out)
{
	struct ofi_fabric *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	rc = fi_fabric(info->fabric_attr, &f->fid, NULL);
	if (rc) {
		free(f);
		return kedge_reason(kedge__ofi_errno(rc), "fi_fabric: %s",
				    fi_strerror(-rc));
	}
	f->refs = 1;
	*out = f;
	return 0;
}

void kedge__ofi_fabric_put(struct ofi_fabric *f)
{
	/* The last one sees what the others did to it. */
	if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL))
		return;
	fi_close(&f->fid->fid);
	free(f);
}

static struct fi_info *hints_rdm(const char *provider)
{
	struct fi_info *h = hints_new(provider);

	if (!h)
		return NULL;
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

/* "udp;ofi_rxd" before libfabric 2.4: the queue of datagrams that arrived overwrites
 * itself when it is full, which it comes to be while both ends send, and a buffer is
 * read again for what it holds no more. Data are wrong then, mostly without an
 * error, and no window of ours is short enough to keep it from that. */
static bool loses_datagrams(const struct fi_info *info)
{
	const char *name = info->fabric_attr->prov_name;

	return name && !strncmp(name, "udp;", 4) && strstr(name, "ofi_rxd") &&
	       info->fabric_attr->prov_version < FI_VERSION(204, 0);
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
	if (!loses_datagrams(*info))
		return 0;
	fi_freeinfo(*info);
	return kedge_reason(-EOPNOTSUPP, "libfabric's provider \"%s\" mixes up "
			    "datagrams under load before libfabric 2.4, and "
			    "data with them: take \"tcp\" or "
			    "\"tcp;ofi_rxm\"", provider);
}
