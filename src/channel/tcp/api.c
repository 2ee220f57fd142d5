// SPDX-License-Identifier: BSD-2-Clause
/* The calls of libkedge for channels and listeners over TCP. */
#include <unistd.h>

#include <kedge/tcp.h>

#include "base/process/cancel.h"
#include "channel/meet/connect.h"
#include "channel/meet/listen.h"
#include "channel/tcp/internal.h"

static int over(struct clofork *sock, const struct kedge_channel_opts *opts,
		const struct transport_peer *peer,
		struct kedge_channel **channel)
{
	struct kedge_channel_opts own = *opts;
	int rc;

	/* It is the caller's, and not kept. */
	own.secret = NULL;
	rc = tcp_channel(sock, &own, peer, channel);
	clofork_close(sock);
	return rc;
}

KEDGE_API int kedge_channel_open_tcp(const char *node, const char *service,
				     const struct kedge_channel_opts *user,
				     int timeout_ms,
				     struct kedge_channel **channel)
{
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct clofork sock;
	int rc;

	NO_CANCEL();
	if (!service || !channel)
		return kedge_reason(-EINVAL, "the service or the result is NULL");
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = tcp_connect(node, service, &opts, 0, timeout_ms, &sock,
				 &peer);
	return rc ? rc : over(&sock, &opts, &peer, channel);
}

static int listener_accept(void *ctx, int timeout_ms,
			   struct kedge_channel **channel)
{
	struct tcp_listener *l = ctx;
	struct transport_peer peer;
	struct clofork sock;
	int rc;

	rc = tcp_listener_accept(l, timeout_ms, &sock, &peer);
	return rc ? rc : over(&sock, &l->opts, &peer, channel);
}

static int listener_fd(void *ctx)
{
	return ((struct tcp_listener *)ctx)->epoll.fd;
}

static int listener_address(void *ctx, char *text)
{
	return tcp_listener_address(ctx, text);
}

static void listener_close(void *ctx)
{
	tcp_listener_close(ctx);
}

static const struct listener_ops listener_ops = {
	.accept = listener_accept,
	.fd = listener_fd,
	.address = listener_address,
	.close = listener_close,
};

KEDGE_API int kedge_listener_open_tcp(const char *node, const char *service,
				      const struct kedge_channel_opts *user,
				      struct kedge_listener **listener)
{
	struct kedge_channel_opts opts;
	struct tcp_listener *l;
	int rc;

	NO_CANCEL();
	if (!service || !listener)
		return kedge_reason(-EINVAL, "the service or the result is NULL");
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = tcp_listen(node, service, &opts, 0, &l);
	if (rc)
		return rc;
	rc = kedge__listener_open(&listener_ops, l, listener);
	if (rc)
		tcp_listener_close(l);
	return rc;
}
