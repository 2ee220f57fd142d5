// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures beside a pause: as many bytes as the last round had, copied in memory, and sent over a
 * plain socket between the same two processes, with an answer of one byte at the end. Each is done
 * twice, and the second time is taken: the first use of memory and of a connection costs extra.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/migrate/migrate.h"

#define TIMES	  2
#define PIECE	  ((size_t)1 << 20)
#define ACCEPT_MS 10000

union place {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_un un;
};

/* An abstract name that the kernel has chosen is five hexadecimal digits. */
#define UN_LEN ((socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6))

static socklen_t place_of(union place *p, const char *node, uint32_t port)
{
	memset(p, 0, sizeof(*p));
	if (node) {
		p->in.sin_family = AF_INET;
		p->in.sin_port = htons((uint16_t)port);
		inet_pton(AF_INET, node, &p->in.sin_addr);
		return sizeof(p->in);
	}
	p->un.sun_family = AF_UNIX;
	if (!port)
		return sizeof(sa_family_t);
	snprintf(p->un.sun_path + 1, sizeof(p->un.sun_path) - 1, "%05x", port);
	return UN_LEN;
}

static int make_socket(const char *node)
{
	const int one = 1;
	int fd = socket(node ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && node)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd < 0 ? -errno : fd;
}

static int listen_at(const char *node, int fd, uint32_t *port)
{
	union place p;
	socklen_t len = place_of(&p, node, 0);

	if (bind(fd, &p.any, len) || listen(fd, 1))
		return -errno;
	len = sizeof(p);
	if (getsockname(fd, &p.any, &len))
		return -errno;
	*port = node ? ntohs(p.in.sin_port) : (uint32_t)strtoul(p.un.sun_path + 1, NULL, 16);
	return 0;
}

static int take(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	int to;

	if (poll(&p, 1, ACCEPT_MS) <= 0)
		return -ETIMEDOUT;
	to = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	return to < 0 ? -errno : to;
}

/* Bytes go by pieces: @out to the socket, else from it. */
static int move_all(int fd, char *data, uint64_t len, bool out)
{
	uint64_t at = 0;
	ssize_t n;

	while (at < len) {
		const size_t part = len - at < PIECE ? len - at : PIECE;

		n = out ? send(fd, data + at, part, MSG_NOSIGNAL) : recv(fd, data + at, part, 0);
		if (n <= 0)
			return n ? -errno : -EPIPE;
		at += (uint64_t)n;
	}
	return 0;
}

/* ---- the new owner ---- */

static int receive(int fd, char *data, uint64_t len)
{
	char answer = 0;
	int i, rc = 0, from = take(fd);

	if (from < 0)
		return from;
	for (i = 0; i < TIMES && !rc; i++) {
		rc = move_all(from, data, len, false);
		if (!rc)
			rc = move_all(from, &answer, 1, true);
	}
	close(from);
	return rc;
}

int beside_listen(int fd, const char *node, uint64_t len)
{
	struct said s = { .kind = SAY_LISTENS };
	char *data = malloc(len);
	int at = data ? make_socket(node) : -ENOMEM, rc, said;

	rc = at < 0 ? at : listen_at(node, at, &s.port);
	said = migrate_say(fd, SAY_LISTENS, rc, &s);
	if (!rc && !said) {
		rc = receive(at, data, len);
		said = migrate_say(fd, SAY_DONE, rc, &s);
	}
	if (at >= 0)
		close(at);
	free(data);
	return said;
}

/* ---- the former owner ---- */

static double copy(char *to, const char *from, uint64_t len)
{
	const uint64_t begun = clock_ns();

	memcpy(to, from, len);
	compiler_fence();
	return (double)(clock_ns() - begun);
}

static int transfer(int fd, char *data, uint64_t len, double *ns)
{
	const uint64_t begun = clock_ns();
	char answer;
	int rc = move_all(fd, data, len, true);

	if (!rc)
		rc = move_all(fd, &answer, 1, false);
	*ns = (double)(clock_ns() - begun);
	return rc;
}

static int send_it(const char *node, uint32_t port, char *data, uint64_t len, double *ns)
{
	union place p;
	socklen_t p_len = place_of(&p, node, port);
	int i, rc, fd = make_socket(node);

	if (fd < 0)
		return fd;
	rc = connect(fd, &p.any, p_len) ? -errno : 0;
	for (i = 0; i < TIMES && !rc; i++)
		rc = transfer(fd, data, len, ns);
	close(fd);
	return rc;
}

int beside_send(const char *node, uint32_t port, uint64_t len, struct said *s)
{
	char *data = malloc(len), *to = malloc(len);
	int i, rc = data && to ? 0 : -ENOMEM;

	if (!rc) {
		memset(data, 1, len);
		for (i = 0; i < TIMES; i++)
			s->copy_ns = copy(to, data, len);
	}
	if (!rc)
		rc = send_it(node, port, data, len, &s->socket_ns);
	free(data);
	free(to);
	return rc;
}
