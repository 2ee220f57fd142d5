// SPDX-License-Identifier: BSD-2-Clause
/*
 * Waiting for processes of this host. Handshakes run beside each other: those
 * that are not complete stand in a table, each with its time, and their sockets
 * and the listening one are in one epoll set, which is what the caller waits on.
 * A process that connects and stays silent costs a descriptor for a second; where
 * the table is full the oldest of those goes. Others than this listener is for are
 * turned away before anything is read.
 *
 * A peer's faults are not accept()'s: it goes on to the next one.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel/internal.h"
#include "channel/shm/internal.h"
#include "channel/connect/wait.h"
#include "channel/shm/name.h"

#define HELLO_MS 1000 /* what a listener gives a peer for the handshake */
#define BACKLOG	 4096 /* as many as the system allows */
#define HALVES	 64u
#define EVENTS	 16
#define LATE	 64
#define LISTENS	 HALVES /* as an event: the listening socket */

struct half {
	struct shm *s; /* NULL: free */
	uint64_t deadline;
};

struct listener {
	struct kedge_channel_opts opts;
	struct shm_name name;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1]; /* as given */
	pid_t pid;
	struct clofork sock;
	struct clofork epoll;
	struct clofork spare; /* given up to tell a peer that there is no other */
	uint32_t cnt;
	struct half half[HALVES];
};

/* ---- half-open connections ---- */

static void half_free(struct listener *l, struct half *h)
{
	h->s = NULL;
	l->cnt--;
}

static void half_unwatch(struct listener *l, const struct shm *s)
{
	/* A child made by clone() may have the socket: closing it would not do. */
	if (s->sock.fd >= 0)
		epoll_ctl(l->epoll.fd, EPOLL_CTL_DEL, s->sock.fd, NULL);
}

static void half_drop(struct listener *l, struct half *h)
{
	struct shm *s = h->s;

	half_free(l, h);
	half_unwatch(l, s);
	shm_fini(s);
	free(s);
}

static struct half *oldest(struct listener *l, bool silent)
{
	struct half *h, *old = NULL;

	for (h = l->half; h < l->half + HALVES; h++)
		if (h->s && (!silent || hello_silent(h->s)) &&
		    (!old || h->deadline < old->deadline))
			old = h;
	return old;
}

static void expire(struct listener *l)
{
	uint64_t now = clock_ns();
	struct half *h;

	while (l->cnt) {
		h = oldest(l, false);
		if (h->deadline > now)
			return;
		half_drop(l, h);
	}
}

static struct half *half_get(struct listener *l)
{
	struct half *h;

	if (l->cnt == HALVES) {
		h = oldest(l, true);
		half_drop(l, h ? h : oldest(l, false));
	}
	for (h = l->half; h->s; h++)
		;
	return h;
}

static int half_add(struct listener *l, struct clofork *sock)
{
	struct half *h = half_get(l);
	struct epoll_event ev = { .events = EPOLLIN };
	struct shm *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = hello_begin(s, sock->fd, &l->opts, true);
	if (rc)
		goto free_shm;
	ev.data.u32 = (uint32_t)(h - l->half);
	if (epoll_ctl(l->epoll.fd, EPOLL_CTL_ADD, sock->fd, &ev)) {
		rc = -errno;
		goto fini_shm;
	}
	clofork_move(&s->sock, sock);
	h->s = s;
	h->deadline = clock_after_ms(HELLO_MS);
	l->cnt++;
	return 0;

fini_shm:
	shm_fini(s);
free_shm:
	free(s);
	return rc;
}

/* 1: a channel; 0: not yet, or the peer has been turned away; -errno. */
static int half_step(struct listener *l, struct half *h,
		     struct kedge_channel **channel)
{
	struct transport_peer peer;
	struct shm *s = h->s;
	int rc = hello_step(s, &peer);

	if (!rc)
		return 0;
	if (rc > 0) {
		half_unwatch(l, s);
		rc = kedge__channel_open(&shm_ops, s, &l->opts, &peer, channel);
		if (!rc) {
			half_free(l, h);
			return 1;
		}
	}
	half_drop(l, h);
	return rc == -EPROTO || rc == -ECONNRESET || rc == -EACCES ? 0 : rc;
}

/* ---- new ones ---- */

static int keep_spare(struct listener *l)
{
	int rc = clofork_begin();

	return rc ? rc : clofork_end(&l->spare, fcntl(l->sock.fd,
						      F_DUPFD_CLOEXEC, 0));
}

/* It is told why, which takes a descriptor. */
static int none_left(struct listener *l, int rc)
{
	int fd;

	if (l->spare.fd >= 0) {
		clofork_close(&l->spare);
		fd = accept4(l->sock.fd, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			hello_refuse(fd, rc);
			close_aside(fd);
		}
		keep_spare(l);
	}
	return channel_no_fd(rc);
}

static int admit(struct listener *l)
{
	struct clofork sock;
	int rc = clofork_begin();

	clofork_init(&sock);
	if (!rc)
		rc = clofork_end(&sock, accept4(l->sock.fd, NULL, NULL,
						SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (rc) {
		if (rc == -EMFILE || rc == -ENFILE)
			return none_left(l, rc);
		return rc == -EAGAIN || rc == -EINTR || rc == -ECONNABORTED
			       ? 0 : rc;
	}
	rc = hello_admits(sock.fd, &l->opts);
	if (rc == -EACCES) {
		hello_refuse(sock.fd, rc);
		close_aside(clofork_release(&sock));
		return 0;
	}
	if (!rc)
		rc = half_add(l, &sock);
	clofork_close(&sock);
	return rc;
}

/* ---- the listener ---- */

static int wait_ms(struct listener *l, uint64_t deadline)
{
	const struct half *h = l->cnt ? oldest(l, false) : NULL;

	return clock_wait_ms(h && h->deadline < deadline ? h->deadline : deadline);
}

static int drive(struct listener *l, int ms, struct kedge_channel **channel)
{
	struct epoll_event ev[EVENTS];
	int n = epoll_wait(l->epoll.fd, ev, EVENTS, ms), rc = 0, i;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (i = 0; i < n && !rc; i++) {
		if (ev[i].data.u32 == LISTENS)
			rc = admit(l);
		else if (l->half[ev[i].data.u32].s)
			rc = half_step(l, &l->half[ev[i].data.u32], channel);
	}
	expire(l);
	return rc ? rc : n ? 0 : -EAGAIN;
}

static int listener_accept(void *ctx, int timeout_ms,
			   struct kedge_channel **channel)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	struct listener *l = ctx;
	int rc, late = 0;

	do {
		rc = drive(l, wait_ms(l, deadline), channel);
		if (rc && rc != -EAGAIN)
			return rc < 0 ? rc : 0;
		/* Peers that are there already are looked at, but not for ever. */
	} while (clock_left_ns(deadline) || (!rc && late++ < LATE));
	return kedge_reason(-ETIMEDOUT, "no peer came that could be let in");
}

static int listener_fd(void *ctx)
{
	return ((struct listener *)ctx)->epoll.fd;
}

static int listener_address(void *ctx, char *text)
{
	const char *path = ((struct listener *)ctx)->path;

	memcpy(text, path, strlen(path) + 1);
	return 0;
}

static void listener_close(void *ctx)
{
	struct listener *l = ctx;
	bool ours = l->pid == getpid();
	struct half *h;

	for (h = l->half; h < l->half + HALVES; h++)
		if (h->s && ours)
			half_drop(l, h);
		else if (h->s)
			shm_leave(h->s);
	shm_name_remove(&l->name, clofork_ours(&l->sock));
	clofork_close(&l->epoll);
	clofork_close(&l->spare);
	clofork_close(&l->sock);
	free(l);
}

static const struct listener_ops listener_ops = {
	.accept = listener_accept,
	.fd = listener_fd,
	.address = listener_address,
	.close = listener_close,
};

/* ---- opening ---- */

static int cannot_listen(int rc, const char *path)
{
	return kedge_reason(rc, "cannot listen on %s: %s", path, strerror(-rc));
}

static int open_set(struct listener *l)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = LISTENS };
	int rc = keep_spare(l);

	if (!rc)
		rc = clofork_keep(&l->epoll, epoll_create1(EPOLL_CLOEXEC));
	if (!rc && epoll_ctl(l->epoll.fd, EPOLL_CTL_ADD, l->sock.fd, &ev))
		rc = -errno;
	return channel_no_fd(rc);
}

static int start(struct listener *l, const char *path,
		 const struct sockaddr_un *a, uint32_t len)
{
	int rc = shm_socket(&l->sock);

	if (rc)
		return rc;
	rc = shm_name_bind(&l->name, l->sock.fd, a, len, path);
	if (rc)
		return rc == -EADDRINUSE ? rc : cannot_listen(rc, path);
	if (listen(l->sock.fd, BACKLOG))
		return cannot_listen(-errno, path);
	return open_set(l);
}

KEDGE_API int kedge_listener_open_shm(const char *path,
				      const struct kedge_channel_opts *user,
				      struct kedge_listener **listener)
{
	struct sockaddr_un a;
	struct listener *l;
	uint32_t len = 0;
	int rc;

	NO_CANCEL();
	if (!path || !listener)
		return channel_invalid("the path or the result is NULL");
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->pid = getpid();
	clofork_init(&l->sock);
	clofork_init(&l->epoll);
	clofork_init(&l->spare);
	rc = kedge__channel_opts(&l->opts, user);
	if (!rc)
		rc = shm_address(path, &a, &len);
	if (!rc)
		memcpy(l->path, path, strlen(path) + 1);
	if (!rc)
		rc = start(l, path, &a, len);
	if (!rc)
		rc = kedge__listener_open(&listener_ops, l, listener);
	if (rc)
		listener_close(l);
	return rc;
}
