/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls on a local socket that wait until a deadline of the clock: what connect(), send() and
 * recvmsg() return, with their errno. EAGAIN says that the deadline is over. A signal ends
 * none of them. The socket may block or not, but for clock_connect(): it has SOCK_NONBLOCK.
 */
#ifndef BASE_CLOCK_SOCK_H
#define BASE_CLOCK_SOCK_H

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock/clock.h"

#define CLOCK_SOCK_NAP_NS 1000000

/* True where a call that returned -1 is to be made again. */
static inline bool clock_sock_again(int sock, short what, uint64_t until)
{
	struct pollfd p = { sock, what, 0 };

	if (errno == EINTR)
		return true;
	if (errno != EAGAIN)
		return false;
	/* A signal, too, is followed by another look. */
	if (clock_poll(&p, 1, until))
		return true;
	errno = EAGAIN;
	return false;
}

static inline ssize_t clock_recvmsg(int sock, struct msghdr *m, uint64_t until)
{
	ssize_t n;

	do
		n = recvmsg(sock, m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && clock_sock_again(sock, POLLIN, until));
	return n;
}

static inline ssize_t clock_send(int sock, const void *packet, size_t len, uint64_t until)
{
	ssize_t n;

	do
		n = send(sock, packet, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && clock_sock_again(sock, POLLOUT, until));
	return n;
}

/* A listener says EAGAIN as long as too many ask, and no poll() tells when it has room. */
static inline int clock_connect(int sock, const struct sockaddr_un *a, socklen_t len,
				uint64_t until)
{
	const struct timespec nap = { 0, CLOCK_SOCK_NAP_NS };

	while (connect(sock, (const struct sockaddr *)a, len)) {
		if (errno == EAGAIN && clock_ns() < until)
			syscall(SYS_nanosleep, &nap, NULL);
		else if (errno != EINTR)
			return -1;
	}
	return 0;
}

#endif /* BASE_CLOCK_SOCK_H */
