// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sockets that peers come to: two in the abstract namespace, one that gives the memory and one
 * for streams, and those of TCP that handles name. All are in the keeper's table of descriptors,
 * and there as long as the thread "kedge-handles" is.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "region/share/share.h"
#include "region/stream.h"

#define BACKLOG 128
#define TRIES	8
#define LOCAL	2
#define MOST	(LOCAL + PLACES)

/* Changed by the keeper alone. The thread reads one that its epoll has told of. */
static struct listener listeners[MOST];
static unsigned int cnt;
static int watched_by;

static int watch(struct listener *l)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = l };

	return syscall(SYS_epoll_ctl, watched_by, EPOLL_CTL_ADD, l->fd, &ev) ? -errno : 0;
}

/* ---- on this host ---- */

static int bind_local(struct listener *l, uint64_t name)
{
	const int type = l->stream ? SOCK_STREAM : SOCK_SEQPACKET;
	struct sockaddr_un a;
	socklen_t len = handle_address(name, l->stream, &a);

	l->fd = (int)syscall(SYS_socket, AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || syscall(SYS_bind, l->fd, &a, len) ||
	    syscall(SYS_listen, l->fd, BACKLOG))
		return -errno;
	return 0;
}

static int open_local(uint64_t *name)
{
	int rc = 0;

	randombytes_buf(name, sizeof(*name));
	for (cnt = 0; !rc && cnt < LOCAL; cnt++) {
		listeners[cnt] = (struct listener){ .stream = cnt };
		rc = bind_local(&listeners[cnt], *name);
	}
	return rc;
}

int listen_begin(int epoll, uint64_t *name)
{
	unsigned int i;
	int try, rc = -EADDRINUSE;

	watched_by = epoll;
	for (try = 0; rc == -EADDRINUSE && try < TRIES; try++) {
		listen_end();
		rc = open_local(name);
	}
	for (i = 0; !rc && i < cnt; i++)
		rc = watch(&listeners[i]);
	return rc;
}

void listen_end(void)
{
	while (cnt)
		if (listeners[--cnt].fd >= 0)
			syscall(SYS_close, listeners[cnt].fd);
}

/* In a child: they are in the table of its parent's. */
void listen_forget(void)
{
	cnt = 0;
}

const struct listener *listener_of(const void *ptr)
{
	const uintptr_t at = (uintptr_t)ptr, first = (uintptr_t)listeners;

	return at >= first && at < first + sizeof(listeners) ? ptr : NULL;
}

/* ---- by TCP ---- */

static struct listener *find(const struct listener *as)
{
	unsigned int i;

	for (i = LOCAL; i < cnt; i++)
		if (!memcmp(listeners[i].place, as->place, sizeof(as->place)) &&
		    (!as->port || listeners[i].port == as->port))
			return &listeners[i];
	return NULL;
}

static int bind_tcp(struct listener *l)
{
	const int one = 1;
	union place a;
	socklen_t len = place_address(l->place, l->port, &a);
	int fd = (int)syscall(SYS_socket, a.any.sa_family,
			      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	l->fd = fd;
	if (fd < 0)
		return -errno;
	syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (syscall(SYS_bind, fd, &a, len) || syscall(SYS_listen, fd, BACKLOG) ||
	    syscall(SYS_getsockname, fd, &a, &len))
		return -errno;
	/* At the same place in both kinds. */
	l->port = ntohs(a.v6.sin6_port);
	return 0;
}

int listen_by_tcp(void *arg)
{
	struct listener *l = arg;
	const struct listener *there = find(l);
	int rc;

	if (there) {
		l->port = there->port;
		return 0;
	}
	if (cnt == MOST)
		return -ENOSPC;
	rc = bind_tcp(l);
	if (!rc) {
		listeners[cnt].stream = true;
		listeners[cnt].port = l->port;
		memcpy(listeners[cnt].place, l->place, sizeof(l->place));
		atomic_store_explicit(&listeners[cnt].fd, l->fd, memory_order_release);
		rc = watch(&listeners[cnt]);
	}
	if (!rc)
		cnt++;
	else if (l->fd >= 0)
		syscall(SYS_close, l->fd);
	return rc;
}
