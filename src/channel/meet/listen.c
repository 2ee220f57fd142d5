// SPDX-License-Identifier: BSD-2-Clause
/* See listen.h. */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/meet/addr.h"
#include "channel/meet/listen.h"
#include "channel/connect/wait.h"
#include "channel/meet/meet.h"

#define BACKLOG	  512
#define TAKE_MAX  256 /* connections in one turn */
#define EVENTS	  64
#define RESUME_NS 20000000ull

/* ---- connections in their handshake ---- */

static bool is_silent(const struct half *h)
{
	return h->hand.state == HAND_HELLO && !h->hand.got;
}

/* It goes; its descriptor is closed unless it was taken (-1). */
static void half_end(struct tcp_listener *l, struct half *h)
{
	if (h->hand.fd >= 0) {
		/* A child of clone() may have it open: closing is not enough. */
		epoll_ctl(l->epoll.fd, EPOLL_CTL_DEL, h->hand.fd, NULL);
		clofork_close(&h->sock);
	}
	hand_forget(&h->hand);
	h->hand.fd = -1;
	list_remove(&h->node);
	list_add_tail(&l->unused, &h->node);
	l->half_cnt--;
}

static uint32_t from_same(const struct tcp_listener *l, const struct half *h)
{
	const struct list *n;
	uint32_t cnt = 0;

	for (n = l->halves.next; n != &l->halves; n = n->next)
		cnt += !memcmp(list_entry(n, struct half, node)->net, h->net,
			       sizeof(h->net));
	return cnt;
}

/* The network that fills the table makes room for the others. False: the table has
 * no entry. */
static bool make_room(struct tcp_listener *l)
{
	struct half *h, *out = NULL;
	uint32_t cnt, most = 0;
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &l->halves) {
		h = list_entry(n, struct half, node);
		/* Twice, and one for silence: silence decides among equals. */
		cnt = 2 * from_same(l, h) + is_silent(h);
		if (cnt <= most)
			continue;
		most = cnt;
		out = h;
		/* No network has more, and no earlier one is as silent. */
		if (cnt & 1 && cnt > l->half_cnt)
			break;
	}
	if (out)
		half_end(l, out);
	return out;
}

static void note_net(struct half *h, const struct sockaddr_storage *a)
{
	memset(h->net, 0, sizeof(h->net));
	if (a->ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)a;

		if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
			memcpy(h->net, &v6->sin6_addr, 16);
		else
			memcpy(h->net, &v6->sin6_addr, 8);
	} else {
		memcpy(h->net, &((const struct sockaddr_in *)(const void *)a)
					->sin_addr, 4);
	}
}

static void half_turn(struct tcp_listener *l, struct half *h)
{
	int rc;

	/* It was told of, and ended since. */
	if (h->hand.fd < 0 || h->hand.state == HAND_DONE)
		return;
	rc = hand_step(&h->hand);
	if (!rc)
		return;
	if (rc < 0) {
		kedge__log(KEDGE_LOG_INFO, "a peer was turned away: %s",
			   kedge_strerror(rc));
		half_end(l, h);
		return;
	}
	list_remove(&h->node);
	list_add_tail(&l->ready, &h->node);
}

static void half_new(struct tcp_listener *l, struct clofork *sock,
		     const struct sockaddr_storage *a)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	struct half *h;

	if (l->half_cnt >= l->half_max && !make_room(l)) {
		clofork_close(sock);
		return;
	}
	h = list_entry(l->unused.next, struct half, node);
	ev.data.ptr = h;
	if (hand_begin(&h->hand, sock->fd, ROLE_LISTEN, &l->secret, &l->opts,
		       l->flags) ||
	    epoll_ctl(l->epoll.fd, EPOLL_CTL_ADD, sock->fd, &ev)) {
		h->hand.fd = -1;
		clofork_close(sock);
		return;
	}
	clofork_move(&h->sock, sock);
	h->deadline = clock_after_ns(HALF_NS);
	note_net(h, a);
	list_remove(&h->node);
	list_add_tail(&l->halves, &h->node);
	l->half_cnt++;
	addr_prepare(h->sock.fd, l->opts.host_timeout_ms);
	/* One that speaks at once is not taken for a silent one. */
	half_turn(l, h);
}

/* ---- descriptors that run out ---- */

static void listen_for(struct tcp_listener *l, bool on)
{
	struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.ptr = l };

	if (!epoll_ctl(l->epoll.fd, EPOLL_CTL_MOD, l->sock.fd, &ev))
		l->paused = !on;
	l->resume = clock_after_ns(RESUME_NS);
}

static int spare_open(struct tcp_listener *l)
{
	return clofork_keep(&l->spare, open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/* All descriptors are the application's own. The peer that waits is turned away,
 * else the listener would be readable for ever, and no call could change that. */
static int turn_away(struct tcp_listener *l, int why)
{
	int fd;

	if (l->spare.fd >= 0) {
		clofork_close(&l->spare);
		fd = accept4(l->sock.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			close(fd);
	}
	/* Another thread has taken it. */
	if (spare_open(l))
		listen_for(l, false);
	return kedge_reason(why, "no descriptor is left, and a peer is turned "
			    "away: raise ulimit -n");
}

/* 1: one was taken, 0: no connection waits, or a negative errno. */
static int take_one(struct tcp_listener *l)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof(a);
	struct clofork sock;
	int rc = clofork_begin();

	clofork_init(&sock);
	if (!rc)
		rc = clofork_end(&sock, accept4(l->sock.fd,
						(struct sockaddr *)&a, &len,
						SOCK_CLOEXEC | SOCK_NONBLOCK));
	switch (rc) {
	case 0:
		half_new(l, &sock, &a);
		return 1;
	case -EMFILE:
	case -ENFILE:
		return make_room(l) ? 1 : turn_away(l, rc);
	case -ENOMEM:
	case -ENOBUFS:
		return make_room(l) ? 1 : rc;
	case -EAGAIN:
		return 0;
	}
	/* Of one connection, that was broken off: the next may be there. */
	return rc == -EBADF || rc == -EINVAL ? rc : 1;
}

static int take_some(struct tcp_listener *l)
{
	int i, rc = 1;

	for (i = 0; i < TAKE_MAX && rc == 1 && list_empty(&l->ready); i++)
		rc = take_one(l);
	return rc < 0 ? rc : 0;
}

/* ---- progress ---- */

static void drop_late(struct tcp_listener *l)
{
	struct half *h;

	while (!list_empty(&l->halves)) {
		h = list_entry(l->halves.next, struct half, node);
		if (h->deadline > clock_ns())
			return;
		half_end(l, h);
	}
}

static int turn(struct tcp_listener *l, int timeout_ms)
{
	struct epoll_event ev[EVENTS];
	bool peers = false;
	int n, i;

	if (l->paused && clock_ns() >= l->resume)
		listen_for(l, true);
	n = epoll_wait(l->epoll.fd, ev, EVENTS, timeout_ms);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (i = 0; i < n; i++)
		if (ev[i].data.ptr == l)
			peers = true;
		else
			half_turn(l, ev[i].data.ptr);
	drop_late(l);
	/* Those that are through come first: no more are taken than are asked
	 * for. */
	return peers && list_empty(&l->ready) ? take_some(l) : 0;
}

static int wait_ms(const struct tcp_listener *l, uint64_t deadline)
{
	uint64_t until = deadline;
	const struct half *h;

	if (!list_empty(&l->halves)) {
		h = list_entry(l->halves.next, struct half, node);
		until = h->deadline < until ? h->deadline : until;
	}
	if (l->paused && l->resume < until)
		until = l->resume;
	return clock_wait_ms(until);
}

int tcp_listener_accept(struct tcp_listener *l, int timeout_ms,
			struct clofork *sock, struct transport_peer *peer)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	bool last = false;
	struct half *h;
	int rc;

	for (;;) {
		/* At least two without waiting: one takes a connection, the
		 * next sees what it has sent already. */
		rc = turn(l, 0);
		if (!rc && list_empty(&l->ready))
			rc = turn(l, last ? 0 : wait_ms(l, deadline));
		if (!list_empty(&l->ready))
			break;
		if (rc)
			return rc;
		if (last)
			return kedge_reason(-ETIMEDOUT, "no peer connected in time");
		last = clock_ns() >= deadline;
	}
	h = list_entry(l->ready.next, struct half, node);
	hand_peer(&h->hand, peer);
	epoll_ctl(l->epoll.fd, EPOLL_CTL_DEL, h->hand.fd, NULL);
	clofork_init(sock);
	clofork_move(sock, &h->sock);
	h->hand.fd = -1;
	half_end(l, h);
	return 0;
}

/* ---- opening and closing ---- */

static int cannot_listen(int rc, const char *node, const char *service)
{
	return kedge_reason(rc, "cannot listen on %s:%s: %s",
			    node ? node : "", service + (*service == ':'),
			    strerror(-rc));
}

static int bind_one(const struct addrinfo *a, struct clofork *sock)
{
	int rc = clofork_begin(), on = 1, off = 0, fd;

	if (!rc)
		rc = clofork_end(sock, socket(a->ai_family,
					      SOCK_STREAM | SOCK_CLOEXEC |
					      SOCK_NONBLOCK, IPPROTO_TCP));
	if (rc)
		return rc;
	fd = sock->fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* Any address is one of either family. */
	if (a->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, BACKLOG))
		return 0;
	rc = -errno;
	clofork_close(sock);
	return rc;
}

/* IPv6 first: where no address is named that socket takes both. */
static int bind_any(const struct addrinfo *list, struct clofork *sock)
{
	const struct addrinfo *a;
	int rc = -EADDRNOTAVAIL;

	for (a = list; a; a = a->ai_next)
		if (a->ai_family == AF_INET6) {
			rc = bind_one(a, sock);
			if (!rc || rc == -EADDRINUSE)
				return rc;
		}
	for (a = list; a; a = a->ai_next)
		if (a->ai_family == AF_INET) {
			rc = bind_one(a, sock);
			if (!rc || rc == -EADDRINUSE)
				return rc;
		}
	return rc;
}

static void table_init(struct tcp_listener *l)
{
	struct rlimit r = { 1024, 1024 };
	uint32_t i;

	getrlimit(RLIMIT_NOFILE, &r);
	l->half_max = HALF_MAX;
	/* Strangers get a quarter of the descriptors at most. */
	if (r.rlim_cur / 4 < HALF_MAX)
		l->half_max = (uint32_t)(r.rlim_cur / 4);
	if (l->half_max < HALF_MIN)
		l->half_max = HALF_MIN;
	list_init(&l->halves);
	list_init(&l->unused);
	list_init(&l->ready);
	for (i = 0; i < l->half_max; i++) {
		l->half[i].hand.fd = -1;
		clofork_init(&l->half[i].sock);
		list_add_tail(&l->unused, &l->half[i].node);
	}
}

static int open_fds(struct tcp_listener *l)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = l };
	int rc = clofork_keep(&l->epoll, epoll_create1(EPOLL_CLOEXEC));

	if (!rc)
		rc = spare_open(l);
	if (!rc && epoll_ctl(l->epoll.fd, EPOLL_CTL_ADD, l->sock.fd, &ev))
		rc = -errno;
	return rc;
}

int tcp_listen(const char *node, const char *service,
	       const struct kedge_channel_opts *opts, uint32_t flags,
	       struct tcp_listener **out)
{
	struct tcp_listener *l = calloc(1, sizeof(*l));
	struct addrinfo *list;
	int rc;

	if (!l)
		return -ENOMEM;
	l->opts = *opts;
	l->flags = flags;
	l->pid = getpid();
	clofork_init(&l->sock);
	clofork_init(&l->epoll);
	clofork_init(&l->spare);
	table_init(l);
	rc = tcp_secret_get(&l->secret, opts);
	if (rc)
		goto free_listener;
	/* It is the caller's, and not kept. */
	l->opts.secret = NULL;
	rc = addr_find(node, service, true, &list);
	if (rc)
		goto forget_secret;
	rc = bind_any(list, &l->sock);
	freeaddrinfo(list);
	if (rc)
		rc = cannot_listen(rc, node, service);
	else
		rc = open_fds(l);
	if (rc)
		goto close_fds;
	*out = l;
	return 0;

close_fds:
	clofork_close(&l->sock);
	clofork_close(&l->epoll);
	clofork_close(&l->spare);
forget_secret:
	tcp_secret_forget(&l->secret);
free_listener:
	free(l);
	return rc;
}

void tcp_listener_close(struct tcp_listener *l)
{
	struct list *lists[] = { &l->halves, &l->ready };
	bool ours = l->pid == getpid();
	struct list *n, *tmp;
	struct half *h;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lists); i++)
		list_for_each_safe(n, tmp, lists[i]) {
			h = list_entry(n, struct half, node);
			if (ours && clofork_ours(&h->sock))
				shutdown(h->sock.fd, SHUT_RDWR);
			clofork_close(&h->sock);
		}
	/* In a child the parent goes on listening. */
	if (ours && clofork_ours(&l->sock))
		shutdown(l->sock.fd, SHUT_RDWR);
	clofork_close(&l->sock);
	clofork_close(&l->epoll);
	clofork_close(&l->spare);
	tcp_secret_forget(&l->secret);
	free(l);
}

unsigned int tcp_listener_port(const struct tcp_listener *l)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof(a);

	if (getsockname(l->sock.fd, (struct sockaddr *)&a, &len))
		return 0;
	/* At the same place in both. */
	return ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
}

int tcp_listener_address(const struct tcp_listener *l, char *text)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof(a);

	if (getsockname(l->sock.fd, (struct sockaddr *)&a, &len))
		return -errno;
	return kedge__address_text((struct sockaddr *)&a, len, text);
}
