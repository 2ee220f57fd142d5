// SPDX-License-Identifier: BSD-2-Clause
/* See meet.h. */
#include "channel/meet/connect.h"
#include "channel/meet/listen.h"
#include "channel/meet/meet.h"

int kedge__meet_listen(const char *node, const char *service,
		       const struct kedge_channel_opts *opts,
		       struct tcp_listener **l)
{
	return tcp_listen(node, service, opts, HELLO_MEET, l);
}

int kedge__meet_accept(struct tcp_listener *l, int timeout_ms, int *fd,
		       struct transport_peer *peer)
{
	struct clofork sock;
	int rc = tcp_listener_accept(l, timeout_ms, &sock, peer);

	if (!rc)
		*fd = clofork_release(&sock);
	return rc;
}

int kedge__meet_fd(const struct tcp_listener *l)
{
	return l->epoll.fd;
}

unsigned int kedge__meet_port(const struct tcp_listener *l)
{
	return tcp_listener_port(l);
}

int kedge__meet_address(const struct tcp_listener *l, char *text)
{
	return tcp_listener_address(l, text);
}

void kedge__meet_close(struct tcp_listener *l)
{
	tcp_listener_close(l);
}

int kedge__meet_connect(const char *node, const char *service,
			const struct kedge_channel_opts *opts, int timeout_ms,
			int *fd, struct transport_peer *peer)
{
	struct clofork sock;
	int rc = tcp_connect(node, service, opts, HELLO_MEET, timeout_ms, &sock,
			     peer);

	if (!rc)
		*fd = clofork_release(&sock);
	return rc;
}
