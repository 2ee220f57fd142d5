// SPDX-License-Identifier: BSD-2-Clause
/*
 * The calls of libkedge-rdma. They are like those of libkedge-ofi, which has another
 * signature for each: what both could share is shorter than what would call it.
 */
#include "base/process/cancel.h"
#include "channel/connect/connector.h"
#include "channel/rc/internal.h"

KEDGE_API int kedge_channel_open_rdma(const char *node, const char *service,
				      const struct kedge_channel_opts *user,
				      int timeout_ms,
				      struct kedge_channel **channel)
{
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct rc *c;
	int rc;

	NO_CANCEL();
	if (!node || !service || !channel)
		return kedge_reason(-EINVAL, "the node, the service or the "
				    "result is NULL");
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = kedge__rc_connect(node, service, &opts, timeout_ms, &c,
				       &peer);
	if (rc)
		return rc;
	/* It is the caller's, and not kept. */
	opts.secret = NULL;
	rc = kedge__channel_open(&kedge__rdma_ops, &c->r, &opts, &peer,
				 channel);
	if (rc)
		kedge__rdma_free(&c->r);
	return rc;
}

static int connect_rdma(const struct connect_to *to,
			struct kedge_channel **channel)
{
	return kedge_channel_open_rdma(to->node, to->service, &to->opts,
				       to->timeout_ms, channel);
}

KEDGE_API int kedge_connector_open_rdma(const char *node, const char *service,
					const struct kedge_channel_opts *opts,
					int timeout_ms,
					struct kedge_connector **connector)
{
	if (!node || !service || !connector)
		return kedge_reason(-EINVAL, "the node, the service or the "
				    "result is NULL");
	return kedge__connector_open(connect_rdma, NULL, node, service, opts,
				     timeout_ms, connector);
}

/* ---- listeners ---- */

static int listener_accept(void *ctx, int timeout_ms,
			   struct kedge_channel **channel)
{
	struct transport_peer peer;
	struct rc *c;
	int rc;

	rc = kedge__rc_accept(ctx, timeout_ms, &c, &peer);
	if (rc)
		return rc;
	rc = kedge__channel_open(&kedge__rdma_ops, &c->r,
				 kedge__rc_listener_opts(ctx), &peer, channel);
	if (rc)
		kedge__rdma_free(&c->r);
	return rc;
}

static int listener_fd(void *ctx)
{
	return kedge__rc_listener_fd(ctx);
}

static int listener_address(void *ctx, char *text)
{
	return kedge__rc_listener_address(ctx, text);
}

static void listener_close(void *ctx)
{
	kedge__rc_listener_close(ctx);
}

static const struct listener_ops listener_ops = {
	.accept = listener_accept,
	.fd = listener_fd,
	.address = listener_address,
	.close = listener_close,
};

KEDGE_API int kedge_listener_open_rdma(const char *node, const char *service,
				       const struct kedge_channel_opts *user,
				       struct kedge_listener **listener)
{
	struct kedge_channel_opts opts;
	struct rc_listener *l;
	int rc;

	NO_CANCEL();
	if (!service || !listener)
		return kedge_reason(-EINVAL, "the service or the result is "
				    "NULL");
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = kedge__rc_listen(node, service, &opts, &l);
	if (rc)
		return rc;
	rc = kedge__listener_open(&listener_ops, l, listener);
	if (rc)
		kedge__rc_listener_close(l);
	return rc;
}
