// SPDX-License-Identifier: BSD-2-Clause
/* See connect.h. */
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/meet/addr.h"
#include "channel/meet/connect.h"
#include "channel/meet/handshake.h"

/* A listener that is full of strangers lets one go, and that may be us. */
#define TRIES	 20
#define PAUSE_MS 10

static int connect_one(const struct addrinfo *a, uint64_t deadline,
		       struct clofork *sock)
{
	socklen_t len = sizeof(int);
	int rc = clofork_begin(), fd;

	if (!rc)
		rc = clofork_end(sock, socket(a->ai_family,
					      SOCK_STREAM | SOCK_CLOEXEC |
					      SOCK_NONBLOCK, IPPROTO_TCP));
	if (rc)
		return channel_no_fd(rc);
	fd = sock->fd;
	if (connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS)
		rc = -errno;
	if (!rc)
		rc = kedge__wait_for(fd, POLLOUT, deadline, -1);
	if (!rc && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &len))
		rc = -rc;
	if (rc)
		clofork_close(sock);
	return rc;
}

static int connect_any(const struct addrinfo *list, uint64_t deadline,
		       struct clofork *sock)
{
	const struct addrinfo *a;
	int rc = -EADDRNOTAVAIL;

	for (a = list; a; a = a->ai_next) {
		rc = connect_one(a, deadline, sock);
		if (!rc || rc == -EMFILE || rc == -ENFILE)
			break;
	}
	return rc;
}

static int handshake(int fd, const struct tcp_secret *secret,
		     const struct kedge_channel_opts *opts, uint32_t flags,
		     uint64_t deadline, struct transport_peer *peer)
{
	struct hand h;
	int rc = hand_begin(&h, fd, ROLE_CONNECT, secret, opts, flags);

	while (!rc) {
		rc = hand_step(&h);
		if (!rc)
			rc = kedge__wait_for(fd, POLLIN, deadline, -1);
	}
	if (rc == 1)
		hand_peer(&h, peer);
	hand_forget(&h);
	return rc < 0 ? rc : 0;
}

static int try_once(const struct addrinfo *list,
		    const struct tcp_secret *secret,
		    const struct kedge_channel_opts *opts, uint32_t flags,
		    uint64_t deadline, struct clofork *sock,
		    struct transport_peer *peer)
{
	int rc = connect_any(list, deadline, sock);

	if (rc)
		return rc;
	addr_prepare(sock->fd, opts->host_timeout_ms);
	rc = handshake(sock->fd, secret, opts, flags, deadline, peer);
	if (rc)
		clofork_close(sock);
	return rc;
}

int tcp_connect(const char *node, const char *service,
		const struct kedge_channel_opts *opts, uint32_t flags,
		int timeout_ms, struct clofork *sock,
		struct transport_peer *peer)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	struct tcp_secret secret;
	struct addrinfo *list;
	int rc, tries = TRIES;

	clofork_init(sock);
	rc = tcp_secret_get(&secret, opts);
	if (rc)
		return rc;
	rc = addr_find(node, service, false, &list);
	if (rc)
		goto forget_secret;
	rc = try_once(list, &secret, opts, flags, deadline, sock, peer);
	while (rc == -ECONNRESET && --tries) {
		if (kedge__wait_for(-1, 0, deadline, PAUSE_MS))
			break;
		rc = try_once(list, &secret, opts, flags, deadline, sock, peer);
	}
	freeaddrinfo(list);
	if (rc == -ECONNREFUSED)
		kedge_reason(rc, "nobody listens on %s:%s", node ? node : "",
			     service + (*service == ':'));
forget_secret:
	tcp_secret_forget(&secret);
	return rc;
}
