// SPDX-License-Identifier: BSD-2-Clause
/* Calls for sockets, for programs that have them wrapped as well: see refuse.h. */
#include <sys/socket.h>

#include "refuse.h"

WRAP(int, socket, int domain, int type, int protocol)
{
	return fails() ? -1 : __real_socket(domain, type, protocol);
}

WRAP(int, connect, int fd, const struct sockaddr *a, socklen_t len)
{
	return fails() ? -1 : __real_connect(fd, a, len);
}

WRAP(int, getsockopt, int fd, int level, int name, void *v, socklen_t *len)
{
	return fails() ? -1 : __real_getsockopt(fd, level, name, v, len);
}

WRAP(ssize_t, send, int fd, const void *p, size_t len, int flags)
{
	return fails() ? -1 : __real_send(fd, p, len, flags);
}
