// SPDX-License-Identifier: BSD-2-Clause
/* See addr.h. */
#include <ctype.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "channel/meet/addr.h"
#include "channel/meet/meet.h"

#define PROBES 4

static int not_found(int rc, const char *node, const char *service)
{
	const char *text = rc == EAI_SYSTEM ? strerror(errno)
					    : gai_strerror(rc);

	if (rc == EAI_MEMORY)
		return -ENOMEM;
	return kedge_reason(-EADDRNOTAVAIL, "no such address, name or service: "
			    "%s:%s: %s", node ? node : "", service, text);
}

/* getaddrinfo() takes what strtoul() does, and the lowest 16 bits of that. */
int kedge__port_check(const char *service, bool to_listen)
{
	char *end;
	unsigned long port = strtoul(service, &end, 10);

	if (*end || end == service)
		return 0;
	if (!isdigit((unsigned char)*service) || port > UINT16_MAX)
		return kedge_reason(-EADDRNOTAVAIL, "port %s: ports are %d to "
				    "65535", service, !to_listen);
	if (!port && !to_listen)
		return kedge_reason(-EADDRNOTAVAIL, "port 0 has no "
				    "listener; kedge_listener_address() says where "
				    "a listener with this port does");
	return 0;
}

/* An IPv6 address also as kedge__address_text() writes it, in brackets. */
static const char *bare(const char *node, char *buf, size_t size)
{
	size_t len = node ? strlen(node) : 0;

	if (len < 2 || *node != '[' || node[len - 1] != ']' || len - 2 >= size)
		return len ? node : NULL;
	memcpy(buf, node + 1, len - 2);
	buf[len - 2] = '\0';
	return buf;
}

int addr_find(const char *node, const char *service, bool to_listen,
	      struct addrinfo **list)
{
	char buf[NI_MAXHOST];
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_protocol = IPPROTO_TCP,
		.ai_flags = to_listen ? AI_PASSIVE : 0,
	};
	int rc;

	if (*service == ':')
		service++;
	if (!*service)
		return kedge_reason(-EADDRNOTAVAIL, "the port is missing");
	rc = kedge__port_check(service, to_listen);
	if (rc)
		return rc;
	rc = getaddrinfo(bare(node, buf, sizeof(buf)), service, &hints, list);
	return rc ? not_found(rc, node, service) : 0;
}

int kedge__address_text(const struct sockaddr *a, socklen_t len, char *text)
{
	char host[64], port[8];
	bool v6 = a->sa_family == AF_INET6;

	if (getnameinfo(a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return kedge_reason(-EOPNOTSUPP, "the address is "
				    "neither IPv4 nor IPv6");
	snprintf(text, KEDGE_ADDRESS_MAX, v6 ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}

/* An idle connection is asked for after a half of that time, PROBES times. */
void addr_prepare(int fd, uint32_t host_timeout_ms)
{
	int one = 1, cnt = PROBES;
	int idle = (int)(host_timeout_ms / 2000);
	int every = (int)(host_timeout_ms / 2000 / PROBES);

	idle = idle ? idle : 1;
	every = every ? every : 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &cnt, sizeof(cnt));
}
