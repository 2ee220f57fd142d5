// SPDX-License-Identifier: BSD-2-Clause
/*
 * Finding a provider, and the events of connections. What a peer says of itself
 * in the connection's private data (struct ofi_hello) is checked here.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/ofi/internal.h"
#include "channel/tcp/meet.h"

#define ROUND_MS 20

int kedge__ofi_errno(ssize_t rc)
{
	if (rc >= 0)
		return 0;
	if (rc == -FI_ENOPROTOOPT)
		return -EPROTO;
	return rc > -FI_ERRNO_OFFSET ? (int)rc : -EIO;
}

/* ---- providers ---- */

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

/* Why there is nothing to be had; -EOPNOTSUPP without a reason: no connected
 * endpoints with ordered RMA writes. */
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

int kedge__ofi_getinfo(const char *provider, const char *node,
		       const char *service, uint64_t flags,
		       struct fi_info **info)
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
	rc = kedge__ofi_getinfo(provider, node, service, flags, info);
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

/* ---- events ---- */

/* In rounds: what a provider does in between needs no event. */
int kedge__ofi_wait(int fd, uint64_t deadline)
{
	return kedge__wait_for(fd, POLLIN, deadline, ROUND_MS);
}

int kedge__ofi_eq_open(struct fid_fabric *fabric, struct fid_eq **eq, int *fd)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_FD };
	int rc;

	rc = fi_eq_open(fabric, &attr, eq, NULL);
	if (rc)
		return kedge_reason(kedge__ofi_errno(rc), "fi_eq_open: %s",
				    fi_strerror(-rc));
	rc = fi_control(&(*eq)->fid, FI_GETWAIT, fd);
	if (rc) {
		fi_close(&(*eq)->fid);
		return kedge_reason(kedge__ofi_errno(rc),
				    "no descriptor for events: %s",
				    fi_strerror(-rc));
	}
	return 0;
}

/* Copy what came with an event; all zero if it is not of our length. */
static void take_hello(struct ofi_hello *hello, const void *data, size_t len)
{
	memset(hello, 0, sizeof(*hello));
	if (len >= sizeof(*hello))
		memcpy(hello, data, sizeof(*hello));
}

static int eq_error(struct fid_eq *eq, struct ofi_hello *hello)
{
	char data[256];
	struct fi_eq_err_entry e = { .err_data = data,
				     .err_data_size = sizeof(data) };
	ssize_t n = fi_eq_readerr(eq, &e, 0);

	if (n < 0)
		return n == -FI_EAGAIN ? -EAGAIN : kedge__ofi_errno(n);
	take_hello(hello, e.err_data, e.err_data ? e.err_data_size : 0);
	return e.err ? kedge__ofi_errno(-abs(e.err)) : -ECONNRESET;
}

int kedge__ofi_eq_read(struct fid_eq *eq, uint32_t *event,
		       struct fi_info **info, struct ofi_hello *hello)
{
	union {
		struct fi_eq_cm_entry cm;
		char room[sizeof(struct fi_eq_cm_entry) + 256];
	} e;
	ssize_t n;

	*info = NULL;
	n = fi_eq_read(eq, event, &e, sizeof(e), 0);
	if (n == -FI_EAGAIN || n == -FI_EINTR)
		return -EAGAIN;
	if (n == -FI_EAVAIL)
		return eq_error(eq, hello);
	if (n < 0)
		return kedge__ofi_errno(n);
	if ((size_t)n < sizeof(e.cm))
		n = sizeof(e.cm);
	take_hello(hello, e.cm.data, (size_t)n - sizeof(e.cm));
	if (*event == FI_CONNREQ)
		*info = e.cm.info;
	return 0;
}

/* ---- what the sides say of themselves ---- */

#define EAGER_DEFAULT (8u * 1024)

void kedge__ofi_hello(struct ofi_hello *hello,
		      const struct kedge_channel_opts *opts)
{
	*hello = (struct ofi_hello){
		.magic = HELLO_MAGIC,
		.version = HELLO_VERSION,
		.rx_cnt = RX_CNT,
		.pid = (uint32_t)getpid(),
		.eager_max = eager_or(opts, EAGER_DEFAULT, OFI_EAGER_MAX),
		.unexpected_cnt = opts->unexpected_cnt,
		.unexpected_bytes = opts->unexpected_bytes,
	};
}

int kedge__ofi_hello_check(const struct ofi_hello *h, size_t len)
{
	if (len < sizeof(*h) || h->magic != HELLO_MAGIC)
		return kedge_reason(-EPROTO, "what answers is no kedge, or of "
					     "another byte order");
	if (h->version != HELLO_VERSION)
		return kedge_reason(-EPROTO, "the peer's kedge speaks version "
				    "%u of the protocol, this one %u",
				    h->version, HELLO_VERSION);
	if (h->status)
		return kedge_reason(h->status < -4095 || h->status > 0
					    ? -EPROTO : h->status,
				    "the peer turned this side away");
	if (h->rx_cnt < 8 || h->rx_cnt > 4096 || h->zero || !h->eager_max ||
	    h->eager_max > OFI_EAGER_MAX || !h->unexpected_cnt ||
	    h->unexpected_cnt > UNEXPECTED_CNT_MAX ||
	    h->unexpected_bytes < h->eager_max ||
	    h->unexpected_bytes > 1u << 30)
		return kedge_reason(-EPROTO, "the peer's limits are none");
	return 0;
}

int kedge__ofi_agree(struct ofi *o, const struct kedge_channel_opts *opts,
		     const struct ofi_hello *hello, struct transport_peer *peer)
{
	uint32_t eager = least(eager_or(opts, EAGER_DEFAULT, OFI_EAGER_MAX),
			       hello->eager_max);
	int rc = kedge__ofi_hello_check(hello, sizeof(*hello));

	if (rc)
		return rc;
	*peer = (struct transport_peer){
		.eager_max = eager,
		.unexpected_cnt = hello->unexpected_cnt,
		.unexpected_bytes = hello->unexpected_bytes,
	};
	o->credit = o->credit_max = hello->rx_cnt;
	o->heap_max = opts->heap_bytes;
	return 0;
}

int kedge__ofi_connected(struct ofi *o, uint64_t deadline,
			 struct ofi_hello *hello)
{
	struct fi_info *info;
	uint32_t event;
	int rc;

	for (;;) {
		rc = kedge__ofi_eq_read(o->eq, &event, &info, hello);
		if (!rc && event == FI_CONNECTED)
			return 0;
		if (!rc)
			return -ECONNRESET;
		if (rc != -EAGAIN)
			return rc;
		rc = kedge__ofi_wait(o->fd, deadline);
		if (rc)
			return rc;
	}
}

/* ---- connecting ---- */

static int connect_failed(int rc, const struct ofi_hello *hello,
			  const char *node, const char *service)
{
	int said;

	/* A refusal in words of ours. */
	if (hello->magic) {
		said = kedge__ofi_hello_check(hello, sizeof(*hello));
		if (said)
			return said;
	}
	switch (rc) {
	case -ECONNREFUSED:
		return kedge_reason(rc, "nobody listens at %s, service %s",
				    node, service);
	case -ETIMEDOUT:
		return kedge_reason(rc, "%s, service %s, did not answer in "
				    "time", node, service);
	case -EPROTO:
	case -EIO:
		return kedge_reason(-EPROTO, "what answers at %s, service %s, "
				    "is not this provider", node, service);
	}
	return kedge_reason(rc, "connecting to %s, service %s: error %d", node,
			    service, -rc);
}

static int connect_to(struct ofi *o, const struct fi_info *info,
		      const char *node, const char *service,
		      const struct kedge_channel_opts *opts, uint64_t deadline,
		      struct transport_peer *peer)
{
	struct ofi_hello hello;
	int rc;

	kedge__ofi_hello(&hello, opts);
	rc = fi_connect(o->ep, info->dest_addr, &hello, sizeof(hello));
	memset(&hello, 0, sizeof(hello));
	if (!rc)
		rc = kedge__ofi_connected(o, deadline, &hello);
	else
		rc = kedge__ofi_errno(rc);
	if (rc)
		return connect_failed(rc, &hello, node, service);
	return kedge__ofi_agree(o, opts, &hello, peer);
}

static int connect_rdm(const char *provider, const char *node,
		       const char *service,
		       const struct kedge_channel_opts *opts, int timeout_ms,
		       struct ofi **out, struct transport_peer *peer)
{
	uint64_t deadline = kedge__deadline_of(timeout_ms);
	int fd, rc = kedge__meet_connect(node, service, opts, timeout_ms, &fd,
					 peer);

	return rc ? rc : kedge__ofi_rdm(fd, provider, opts, deadline, out);
}

int kedge__ofi_connect(const char *provider, const char *node,
		       const char *service,
		       const struct kedge_channel_opts *opts, int timeout_ms,
		       struct ofi **out, struct transport_peer *peer)
{
	uint64_t deadline = kedge__deadline_of(timeout_ms);
	struct ofi_fabric *fabric;
	struct fi_info *info;
	struct ofi *o;
	bool rdm;
	int rc;

	rc = kedge__ofi_getinfo_any(provider, node, service, 0, &info, &rdm);
	if (rc)
		return rc;
	if (rdm)
		return connect_rdm(provider, node, service, opts, timeout_ms,
				   out, peer);
	rc = kedge__ofi_fabric_open(info, &fabric);
	if (rc)
		goto free_info;
	rc = kedge__ofi_open(fabric, info, &o);
	if (rc)
		goto put_fabric;
	rc = connect_to(o, info, node, service, opts, deadline, peer);
	if (rc)
		kedge__ofi_free(o);
	else
		*out = o;

put_fabric:
	kedge__ofi_fabric_put(fabric);
free_info:
	fi_freeinfo(info);
	return rc;
}
