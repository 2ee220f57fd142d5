// SPDX-License-Identifier: BSD-2-Clause
/* An address of this host that a handle names, so that peers on others reach its owner. */
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "base/base.h"
#include "channel/meet/addr.h"
#include "region/share/share.h"
#include "region/stream.h"

/* As in a handle; false: it is no address to connect to from elsewhere. */
static bool place_of(const struct sockaddr *a, struct listener *l)
{
	const struct sockaddr_in6 *v6 = (const void *)a;
	const struct sockaddr_in *v4 = (const void *)a;

	if (a->sa_family == AF_INET6) {
		memcpy(l->place, &v6->sin6_addr, sizeof(l->place));
		l->port = ntohs(v6->sin6_port);
		return !v6->sin6_scope_id && !IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) &&
		       !IN6_IS_ADDR_MULTICAST(&v6->sin6_addr);
	}
	memset(l->place, 0, 10);
	memset(l->place + 10, 0xff, 2);
	memcpy(l->place + 12, &v4->sin_addr, 4);
	l->port = ntohs(v4->sin_port);
	return a->sa_family == AF_INET && v4->sin_addr.s_addr != htonl(INADDR_ANY) &&
	       v4->sin_addr.s_addr != htonl(INADDR_BROADCAST) &&
	       !IN_MULTICAST(ntohl(v4->sin_addr.s_addr));
}

static int refused(int rc, const char *node, const char *service)
{
	switch (rc) {
	case -EADDRINUSE:
		return kedge_reason(rc, "port %s at %s has another listener", service, node);
	case -EADDRNOTAVAIL:
		return kedge_reason(rc, "%s is no address of this host", node);
	case -EACCES:
		return kedge_reason(rc, "port %s takes CAP_NET_BIND_SERVICE", service);
	case -ENOSPC:
		return kedge_reason(rc, "handles of this process name %u addresses, which are all "
				    "that they may", PLACES);
	case -EMFILE:
	case -ENFILE:
		return error_no_fd(-rc);
	}
	return kedge_reason(rc, "no socket can listen at %s: error %d", node, -rc);
}

int place_use(const char *node, const char *service, struct handle_words *w)
{
	struct listener l = { .fd = -1 };
	const char *const port = service ? service : "0";
	struct addrinfo *list;
	bool can;
	int rc = addr_find(node, port, true, &list);

	if (rc)
		return rc;
	can = place_of(list->ai_addr, &l);
	freeaddrinfo(list);
	if (!can)
		return kedge_reason(-EINVAL, "\"%s\" is no address that another host can connect "
				    "to: a handle names one address", node);
	rc = serve_call(listen_by_tcp, &l);
	if (rc)
		return refused(rc, node, port);
	w->port = l.port;
	memcpy(w->place, l.place, sizeof(w->place));
	return 0;
}
