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
#include "channel/meet/meet.h"
#include "channel/ofi/internal.h"


/* ---- providers ---- */

/* ---- events ---- */

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
		return kedge_reason(-EPROTO, "the peer names limits that no "
				    "channel has: it is no kedge of this "
				    "version, or broken");
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
