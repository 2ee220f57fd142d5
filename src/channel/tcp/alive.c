// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer that is gone with its host. An idle connection is probed by the kernel
 * (SO_KEEPALIVE, addr.c); where something is under way the kernel sends it again
 * instead, for a quarter of an hour. TCP_USER_TIMEOUT would make that shorter, and
 * would also cut off a peer that lives and does not read, because it computes. So
 * the state of the connection is looked at: what is sent again, or a full window's
 * probes, without an answer for host_timeout_ms, is a host that is gone. A full
 * window that is acknowledged is not.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "channel/tcp/internal.h"

#define LOOK_NS 250000000ull

static bool is_gone(const struct tcp *t, const struct tcp_info *i)
{
	return i->tcpi_last_ack_recv >= t->host_timeout_ms &&
	       ((i->tcpi_unacked && i->tcpi_retransmits) ||
		i->tcpi_probes > 1);
}

void tcp_alive_look(struct tcp *t)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);
	uint64_t now = clock_ns();

	if (t->err || now - t->looked_ns < LOOK_NS)
		return;
	t->looked_ns = now;
	if (!getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &len) &&
	    is_gone(t, &info))
		tcp_die(t, -ECONNRESET, "its host does not answer");
}

/* A descriptor more, as long as it waits with something under way. */
static void timer_open(struct tcp *t)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (!clofork_keep(&t->timer, timerfd_create(CLOCK_MONOTONIC,
						    TFD_CLOEXEC |
						    TFD_NONBLOCK)) &&
	    epoll_ctl(t->epoll.fd, EPOLL_CTL_ADD, t->timer.fd, &ev))
		clofork_close(&t->timer);
}

void tcp_alive_arm(struct tcp *t)
{
	uint64_t ms = t->host_timeout_ms / 4;
	const struct itimerspec when = {
		.it_value = { .tv_sec = (time_t)(ms / 1000),
			      .tv_nsec = (long)(ms % 1000) * 1000000 },
	};
	int unsent = 0;

	if (t->err || ioctl(t->fd, SIOCOUTQ, &unsent) || !unsent) {
		clofork_close(&t->timer);
		return;
	}
	if (t->timer.fd < 0)
		timer_open(t);
	if (t->timer.fd >= 0)
		timerfd_settime(t->timer.fd, 0, &when, NULL);
}
