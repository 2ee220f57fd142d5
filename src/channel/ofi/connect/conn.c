// SPDX-License-Identifier: BSD-2-Clause
/* Connecting to a listener. */
#include <stdlib.h>

#include "channel/connect/wait.h"
#include "channel/meet/meet.h"
#include "channel/ofi/internal.h"

int kedge__ofi_connected(struct ofi *o, uint64_t deadline,
			 struct rdma_hello *hello)
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
		rc = kedge__rdma_wait(o->r.fd, deadline);
		if (rc)
			return rc;
	}
}

/* ---- connecting ---- */

static int connect_failed(int rc, const struct rdma_hello *hello,
			  const char *node, const char *service)
{
	int said;

	/* A refusal in words of ours. */
	if (hello->magic) {
		said = kedge__rdma_hello_check(hello, sizeof(*hello));
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
	struct rdma_hello hello;
	int rc;

	kedge__rdma_hello(&hello, opts);
	rc = fi_connect(o->ep, info->dest_addr, &hello, sizeof(hello));
	memset(&hello, 0, sizeof(hello));
	if (!rc)
		rc = kedge__ofi_connected(o, deadline, &hello);
	else
		rc = kedge__ofi_errno(rc);
	if (rc)
		return connect_failed(rc, &hello, node, service);
	return kedge__rdma_agree(&o->r, opts, &hello, peer);
}

static int connect_rdm(const char *provider, const char *node,
		       const char *service,
		       const struct kedge_channel_opts *opts, int timeout_ms,
		       struct ofi **out, struct transport_peer *peer)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	int fd, rc = kedge__meet_connect(node, service, opts, timeout_ms, &fd,
					 peer);

	return rc ? rc : kedge__ofi_rdm(fd, provider, opts, deadline, out);
}

int kedge__ofi_connect(const char *provider, const char *node,
		       const char *service,
		       const struct kedge_channel_opts *opts, int timeout_ms,
		       struct ofi **out, struct transport_peer *peer)
{
	uint64_t deadline = clock_deadline(timeout_ms);
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
		kedge__rdma_free(&o->r);
	else
		*out = o;

put_fabric:
	kedge__ofi_fabric_put(fabric);
free_info:
	fi_freeinfo(info);
	return rc;
}
