// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handshake by which two processes share their areas. Over a Unix socket each sends
 * what it is (struct hello) with its area's memfd, then whether it will reach
 * into the other's memory (struct verdict), or that it turns the other away.
 * No step waits: the socket says when the next one can be done.
 *
 * The kernel identifies the peer, by the socket (SO_PEERCRED: the maker of the other
 * end) and by the hello (SCM_CREDENTIALS: its sender). Both must be of the
 * effective user of this process, unless it lets others in: a set-user-ID
 * program is its owner's, and the user that started it is another. The socket is
 * asked before anything is read.
 *
 * Data crosses by the kernel's leave to reach into the peer (cross.c) only
 * among equals: processes with the same real, effective and saved ids, the same
 * capabilities, in one user namespace. Each side decides that by itself, of the
 * process that a pidfd holds, and that has the nonce that its hello says.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/barrier.h"
#include "channel/connect/wait.h"
#include "channel/shm/handshake.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* ---- what goes wrong ---- */

static int no_kedge(void)
{
	return kedge_reason(-EPROTO, "what answers is no kedge channel, or one "
			    "of another version or byte order");
}

static int hung_up(void)
{
	return kedge_reason(-ECONNRESET, "the peer closed the connection: it "
			    "has the reason");
}

/* The reason that the peer gave when it turned us away. */
static int refused(int status)
{
	switch (status) {
	case -EACCES:
		return kedge_reason(-EACCES, "the peer lets in its own user "
				    "only: KEDGE_CHANNEL_ANY_USER there");
	case -EMFILE:
	case -ENFILE:
		return kedge_reason(-ECONNRESET, "the peer has no descriptor "
				    "left: raise ulimit -n there");
	case -EPROTO:
		return no_kedge();
	}
	return kedge_reason(-ECONNRESET, "the peer turned the connection away: "
			    "%s", strerror(-status));
}

/* It may have said why before it closed the connection. */
static int turned_away(int sock)
{
	struct hello_head h = { 0 };

	recv(sock, &h, sizeof(h), MSG_DONTWAIT);
	return h.magic == HELLO_MAGIC && h.version == HELLO_VERSION &&
	       h.status < 0 && h.status >= -4095 ? refused(h.status) : hung_up();
}

/* Descriptors under way count as open ones of this user. */
static int not_sent(int sock)
{
	if (errno == EPIPE || errno == ECONNRESET)
		return turned_away(sock);
	return kedge_reason(-errno, "nothing can be sent to the peer: %s%s",
			    strerror(errno), errno == ETOOMANYREFS
			    ? ": raise ulimit -n" : "");
}

struct hello_head hello_head(int status)
{
	return (struct hello_head){ HELLO_MAGIC, HELLO_VERSION, status };
}

void hello_refuse(int sock, int why)
{
	struct verdict v = { hello_head(why), 0, 0 };

	send(sock, &v, sizeof(v), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the peer's identity ---- */

static int other_user(uint32_t uid)
{
	return kedge_reason(-EACCES, "the peer is of user %u: "
			    "KEDGE_CHANNEL_ANY_USER lets it in", uid);
}

static bool is_welcome(uint32_t uid, const struct kedge_channel_opts *o)
{
	return uid == geteuid() || o->flags & KEDGE_CHANNEL_ANY_USER;
}

static int maker_of(int sock, struct ucred *c)
{
	socklen_t len = sizeof(*c);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, c, &len))
		return kedge_reason(-errno, "the kernel does not say whose the "
				    "socket's other end is: %s",
				    strerror(errno));
	return 0;
}

int hello_admits(int sock, const struct kedge_channel_opts *o)
{
	struct ucred made;
	int rc = maker_of(sock, &made);

	return rc || is_welcome(made.uid, o) ? rc : other_user(made.uid);
}

/* ---- sending ---- */

int hello_send(const struct shm *s, struct greeting *g)
{
	union {
		char buf[CMSG_SPACE(sizeof(int)) +
			 CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} u = { 0 };
	struct ucred me = { getpid(), geteuid(), getegid() };
	struct iovec iov = { &g->me, sizeof(g->me) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &g->area_fd, sizeof(int));
	c = CMSG_NXTHDR(&m, c);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_CREDENTIALS;
	c->cmsg_len = CMSG_LEN(sizeof(me));
	memcpy(CMSG_DATA(c), &me, sizeof(me));
	if (sendmsg(s->ring.sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(g->me))
		return not_sent(s->ring.sock);
	close(g->area_fd);
	g->area_fd = -1;
	g->sent = true;
	return 0;
}

static int introduce(struct shm *s, struct greeting *g)
{
	const struct kedge_channel_opts *o = &g->o;
	int rc = area_make(&s->mine, o->heap_bytes, &g->area_fd);

	if (rc)
		return channel_no_fd(rc);
	g->me.head = hello_head(0);
	g->me.eager_max = eager_or(o, SHM_EAGER, eager_of_ring(s->mine.cells));
	g->me.unexpected_cnt = o->unexpected_cnt;
	g->me.unexpected_bytes = o->unexpected_bytes;
	g->me.heap_len = s->mine.len - HEAP_AT;
	g->me.barrier = barrier_register();
	g->me.ring_cells = s->mine.cells;
	return hello_send(s, g);
}

/* ---- receiving ---- */

/* A memfd is closed at once; the close of anything else may wait. */
static void drop_fd(int fd)
{
	if (fcntl(fd, F_GET_SEALS) >= 0)
		close(fd);
	else
		close_aside(fd);
}

/* More than one may have come: the room for control data is rounded up. */
static void take_fds(struct greeting *g, const struct cmsghdr *c)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), i;
	int fd;

	for (i = 0; i < n; i++) {
		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		if (g->fd < 0)
			g->fd = fd;
		else
			drop_fd(fd);
	}
}

static void take_control(struct greeting *g, struct msghdr *m, bool *known)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS)
			take_fds(g, c);
		if (c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&g->cred, CMSG_DATA(c), sizeof(g->cred));
			*known = true;
		}
	}
}

static int came(ssize_t n)
{
	if (!n || (n < 0 && errno == ECONNRESET))
		return hung_up();
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
	return 0;
}

static int check_head(const struct hello_head *h, ssize_t n, size_t want)
{
	if (n < (ssize_t)sizeof(*h) || h->magic != HELLO_MAGIC ||
	    h->version != HELLO_VERSION || h->status > 0 || h->status < -4095)
		return no_kedge();
	if (h->status)
		return refused(h->status);
	return n == (ssize_t)want ? 0 : no_kedge();
}

/*
 * There is room for the descriptor: if the kernel keeps it back, this process can
 * have no more.
 */
static int recv_hello(struct shm *s, struct greeting *g)
{
	union {
		char buf[CMSG_SPACE(sizeof(int)) +
			 CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} u;
	struct iovec iov = { &g->peer, sizeof(g->peer) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	bool known = false;
	ssize_t n = recvmsg(s->ring.sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int rc = came(n);

	if (rc)
		return rc;
	take_control(g, &m, &known);
	rc = check_head(&g->peer.head, n, sizeof(g->peer));
	if (rc)
		return rc;
	if (g->fd < 0 && m.msg_flags & MSG_CTRUNC)
		return channel_no_fd(-EMFILE);
	return g->fd < 0 || !known ? no_kedge() : 0;
}

static int check_hello(const struct hello *h)
{
	if (!h->unexpected_cnt || h->unexpected_cnt > UNEXPECTED_CNT_MAX ||
	    h->unexpected_bytes < 2ull * h->eager_max ||
	    h->unexpected_bytes > 1u << 30 || !h->eager_max ||
	    (h->ring_cells != RING_CELLS && h->ring_cells != RING_SHORT) ||
	    h->eager_max > eager_of_ring(h->ring_cells))
		return no_kedge();
	return 0;
}

/* ---- whether to cross ---- */

/*
 * The kernel waits for the peer's memory to be paged in, and only the end of
 * this process ends that: where the peer's pages are served by a process
 * (userfaultfd, FUSE) that does not, poll() would not return. A read by another
 * thread could be given up, but not the buffer that it may still write to. So
 * where an operation's time is to hold, data comes through slots.
 */
static const char *why_not_cross(struct shm *s, const struct greeting *g)
{
	if (g->o.flags & KEDGE_CHANNEL_NO_CMA || !g->peer.nonce_at)
		return "it is switched off";
	if (g->o.timeout_ms)
		return "it can't be given up, and operations have a timeout";
	if (g->cred.pid <= 0)
		return "the peer is not of this PID namespace";
	if (peer_fd(s->peer) < 0)
		return "the kernel gives no pidfd";
	return NULL;
}

/* In this order: what /proc said, the nonce showed, and the pidfd says after
 * both, is of one process. */
static void decide(struct shm *s, const struct greeting *g)
{
	const char *why = why_not_cross(s, g), *differs;

	if (why) {
		snprintf(s->why, sizeof(s->why), "no process_vm_readv() of the "
			 "peer: %s", why);
		return;
	}
	differs = peer_differs(s->pid);
	if (differs) {
		snprintf(s->why, sizeof(s->why), "no process_vm_readv() of the "
			 "peer: it has other rights (%s)", differs);
		return;
	}
	errno = 0;
	s->can_cross = cross_same(s);
	if (!s->can_cross)
		snprintf(s->why, sizeof(s->why), "process_vm_readv() of the "
			 "peer does not work (%s): kernel.yama.ptrace_scope is "
			 "to be 0, and filters to allow it",
			 errno ? strerror(errno) : "another's memory");
}

/* ---- the steps ---- */

static int send_verdict(const struct shm *s)
{
	struct verdict v = { hello_head(0), s->can_cross,
			     eager_of_ring(s->peers.cells) };

	/* If the peer has hung up, its reason may be there to be read. */
	if (send(s->ring.sock, &v, sizeof(v), MSG_NOSIGNAL | MSG_DONTWAIT) !=
		    sizeof(v) && errno != EPIPE)
		return not_sent(s->ring.sock);
	return 0;
}

static int hello_received(struct shm *s, struct greeting *g)
{
	int rc = check_hello(&g->peer);

	if (!rc && !is_welcome(g->cred.uid, &g->o))
		rc = other_user(g->cred.uid);
	if (rc)
		return rc;
	s->pid = g->cred.pid;
	rc = peer_get(s->pid, s->ring.sock, g->cred.pid == g->made.pid, &s->peer);
	if (!rc)
		rc = peer_watch(s);
	if (!rc)
		rc = area_take(&s->peers, g->peer.heap_len,
			       g->peer.ring_cells, g->fd);
	if (rc)
		return rc;
	close(g->fd);
	g->fd = -1;
	s->peers_heap_len = g->peer.heap_len;
	s->nonce_at = g->peer.nonce_at;
	memcpy(s->nonce, g->peer.nonce, sizeof(s->nonce));
	if (!g->sent)
		rc = introduce(s, g);
	if (rc)
		return rc;
	decide(s, g);
	g->state = AWAIT_VERDICT;
	return send_verdict(s);
}

/* In either direction: what both take, and both rings have room for. */
static uint32_t eager_agreed(const struct shm *s, const struct verdict *v)
{
	const struct greeting *g = s->greeting;

	return least(least(g->me.eager_max, g->peer.eager_max),
		     least(v->eager_max, eager_of_ring(s->peers.cells)));
}

static int recv_verdict(struct shm *s)
{
	struct verdict v;
	ssize_t n = recv(s->ring.sock, &v, sizeof(v), MSG_DONTWAIT);
	int rc = came(n);

	if (!rc)
		rc = check_head(&v.head, n, sizeof(v));
	if (rc)
		return rc;
	if (v.can_cross > 1 || !v.eager_max || v.eager_max > EAGER_LIMIT)
		return no_kedge();
	s->peer_can_cross = v.can_cross;
	s->apart = s->can_cross && v.can_cross && s->pid != getpid();
	s->greeting->agreed_eager = eager_agreed(s, &v);
	return 0;
}

static void lay_out(struct shm *s, const struct greeting *g)
{
	s->ring.fence = !g->me.barrier || !g->peer.barrier;
	ring_init(&s->ring, s->mine.base, s->mine.cells, s->peers.base,
		  s->peers.cells);
	s->my_records = (struct record *)(void *)(s->mine.base + RECORDS_AT);
	s->peers_records = (struct record *)(void *)(s->peers.base +
						     RECORDS_AT);
	memset(s->free_records, 0xff, sizeof(s->free_records));
	s->heap.max = s->mine.len - HEAP_AT;
}

static void greeting_free(struct shm *s)
{
	struct greeting *g = s->greeting;

	if (!g)
		return;
	if (g->area_fd >= 0)
		close(g->area_fd);
	if (g->fd >= 0)
		drop_fd(g->fd);
	free(g);
	s->greeting = NULL;
}

static void agreed(struct shm *s, struct transport_peer *peer)
{
	const struct greeting *g = s->greeting;
	int zero = 0;

	lay_out(s, g);
	*peer = (struct transport_peer){
		.pid = (uint32_t)s->pid,
		.eager_max = g->agreed_eager,
		.unexpected_cnt = g->peer.unexpected_cnt,
		.unexpected_bytes = g->peer.unexpected_bytes,
	};
	/* From here on the socket carries bytes that wake, and no descriptors:
	 * where the kernel can't refuse them, it drops them unseen. */
	setsockopt(s->ring.sock, SOL_SOCKET, SO_PASSCRED, &zero, sizeof(zero));
	setsockopt(s->ring.sock, SOL_SOCKET, SO_PASSRIGHTS, &zero, sizeof(zero));
	greeting_free(s);
}

bool hello_silent(const struct shm *s)
{
	return s->greeting && s->greeting->state == AWAIT_HELLO;
}

static int step(struct shm *s)
{
	struct greeting *g = s->greeting;
	int rc = 0;

	if (g->state == AWAIT_HELLO) {
		rc = recv_hello(s, g);
		if (!rc)
			rc = hello_received(s, g);
	}
	if (!rc)
		rc = recv_verdict(s);
	return rc;
}

int hello_step(struct shm *s, struct transport_peer *peer)
{
	int rc = step(s);

	if (rc == -EAGAIN)
		return 0;
	if (rc) {
		if (rc != -ECONNRESET)
			hello_refuse(s->ring.sock, rc);
		return rc;
	}
	agreed(s, peer);
	return 1;
}

static int begin(struct shm *s, struct greeting *g, bool waits)
{
	int one = 1, rc = maker_of(s->ring.sock, &g->made);

	if (!rc && !is_welcome(g->made.uid, &g->o))
		rc = other_user(g->made.uid);
	if (!rc && setsockopt(s->ring.sock, SOL_SOCKET, SO_PASSCRED, &one,
			      sizeof(one)))
		rc = errno == EOPNOTSUPP ? -EBADF : -errno;
	return rc || waits ? rc : introduce(s, g);
}

int hello_begin(struct shm *s, int sock, const struct kedge_channel_opts *o,
		bool waits)
{
	struct greeting *g = calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return -ENOMEM;
	g->fd = g->area_fd = -1;
	g->o = *o;
	s->ring.sock = sock;
	clofork_init(&s->sock);
	list_init(&s->watch);
	rc = peer_table_get(g->me.nonce, &g->me.nonce_at);
	if (rc) {
		free(g);
		return rc;
	}
	if (o->flags & KEDGE_CHANNEL_NO_CMA)
		g->me.nonce_at = 0;
	s->greeting = g;
	rc = begin(s, g, waits);
	if (rc) {
		hello_refuse(sock, rc);
		shm_fini(s);
	}
	return rc;
}

void shm_fini(struct shm *s)
{
	greeting_free(s);
	if (s->peer) {
		peer_unwatch(s);
		peer_put(s->peer);
	}
	clofork_close(&s->sock);
	ring_fini(&s->ring);
	heap_fini(&s->heap);
	slots_fini(s);
	area_fini(&s->mine);
	area_fini(&s->peers);
	peer_table_put();
}

int shm_hello(struct shm *s, int sock, const struct kedge_channel_opts *o,
	      uint64_t deadline, struct transport_peer *peer)
{
	int rc = hello_begin(s, sock, o, false);

	if (rc)
		return rc;
	while (!(rc = hello_step(s, peer))) {
		rc = kedge__wait_for(sock, POLLIN, deadline, -1);
		if (rc)
			break;
	}
	if (rc > 0)
		return 0;
	shm_fini(s);
	return rc;
}
