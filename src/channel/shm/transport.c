// SPDX-License-Identifier: BSD-2-Clause
/*
 * The transport between processes of one host: its table, and how two of them
 * find each other.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel/connect/wait.h"
#include "channel/internal.h"
#include "channel/shm/internal.h"

#define PAUSE_MAX_MS 64 /* of hundreds of threads at a time */

int shm_socket(struct clofork *sock)
{
	int rc = clofork_begin();

	clofork_init(sock);
	if (!rc)
		rc = clofork_end(sock, socket(AF_UNIX, SOCK_STREAM |
					      SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	return channel_no_fd(rc);
}

static int shm_check(void *ctx)
{
	struct shm *s = ctx;
	struct pollfd p[] = { { .fd = s->ring.sock, .events = POLLRDHUP },
			      { .fd = peer_fd(s->peer), .events = POLLIN } };

	if (s->ring.broken)
		return kedge_reason(s->ring.broken, "%s", s->ring.broken_why);
	if (!clofork_ours(&s->sock))
		return kedge_reason(-ECONNRESET, "this process has closed the "
				    "channel's descriptor");
	if (poll(p, ARRAY_SIZE(p), 0) <= 0)
		return 0;
	return kedge_reason(-ECONNRESET, "the peer is gone");
}

static int shm_fd(void *ctx)
{
	return ((struct shm *)ctx)->ring.sock;
}

static struct ring *shm_ring(void *ctx)
{
	return &((struct shm *)ctx)->ring;
}

static int shm_arm(void *ctx)
{
	struct shm *s = ctx;
	size_t len;

	ring_sleep(&s->ring);
	if (s->ring.broken)
		return s->ring.broken == -EPROTO ? s->ring.broken : 1;
	return ring_next(&s->ring, &len) ? 1 : 0;
}

static uint32_t shm_ready(void *ctx, const void *buf, size_t len, const void *rts,
			  size_t rts_len)
{
	struct shm *s = ctx;

	if (heap_off(&s->heap, buf, len) != NO_PAGES)
		return READY_DIRECT | READY_HEAP;
	if (!s->can_cross)
		return 0;
	return READY_DIRECT | READY_REGISTER | bulk_attached(s, buf, len, rts, rts_len);
}

static bool shm_can_push(void *ctx)
{
	return ((struct shm *)ctx)->peer_can_cross;
}

static void *shm_heap_alloc(void *ctx, size_t len)
{
	struct shm *s = ctx;

	return heap_alloc(&s->heap, &s->mine, len);
}

static void shm_heap_free(void *ctx, void *p)
{
	heap_free(&((struct shm *)ctx)->heap, p);
}

static uint64_t shm_attached(void *ctx)
{
	return ((struct shm *)ctx)->attached;
}

static const char *shm_explain(void *ctx)
{
	return ((struct shm *)ctx)->why;
}

static void shm_close(void *ctx)
{
	struct shm *s = ctx;

	/* A forked child may keep the socket open: closing it does not show. */
	if (clofork_ours(&s->sock))
		shutdown(s->sock.fd, SHUT_RDWR);
	theirs_close(s);
	segment_memos_fini(&s->memos);
	shm_fini(s);
	free(s);
}

/* The areas are not mapped in a child; whatever is there is somebody else's. */
void shm_leave(void *ctx)
{
	struct shm *s = ctx;
	uint32_t i;

	peer_forget_all();
	theirs_leave(s);
	segment_memos_fini(&s->memos);
	clofork_close(&s->sock);
	ring_fini(&s->ring);
	for (i = 0; i < s->heap.cnt; i++)
		s->heap.segment[i].at = NULL;
	heap_fini(&s->heap);
	slots_fini(s);
	free(s->greeting);
	free(s);
}

const struct transport_ops shm_ops = {
	.name = "shm",
	.ways = 1u << KEDGE_WAY_DIRECT | 1u << KEDGE_WAY_SWAP |
		1u << KEDGE_WAY_COPY | 1u << KEDGE_WAY_REGISTER,
	.ring = shm_ring,
	.reserve = ring_reserve,
	.commit = ring_commit,
	.begin = ring_begin,
	.more = ring_more,
	.next = ring_next,
	.arrived = ring_arrived,
	.release = ring_release,
	.check = shm_check,
	.fd = shm_fd,
	.arm = shm_arm,
	.ready = shm_ready,
	.can_push = shm_can_push,
	.offer = bulk_offer,
	.accept = bulk_accept,
	.start = bulk_start,
	.step = bulk_step,
	.stop = bulk_stop,
	.end = bulk_end,
	.heap_alloc = shm_heap_alloc,
	.heap_free = shm_heap_free,
	.attached = shm_attached,
	.explain = shm_explain,
	.close = shm_close,
	.leave = shm_leave,
};

/* A channel over a connected socket, which stays the caller's on failure. */
static int open_over(struct clofork *sock, const struct kedge_channel_opts *opts,
		     uint64_t deadline, struct kedge_channel **channel)
{
	struct transport_peer peer;
	struct shm *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = shm_hello(s, sock->fd, opts, deadline, &peer);
	if (rc)
		goto free_shm;
	peer_socket(s, sock);
	rc = kedge__channel_open(&shm_ops, s, opts, &peer, channel);
	if (rc)
		goto fini_shm;
	return 0;

fini_shm:
	peer_unwatch(s);
	clofork_move(sock, &s->sock);
	shm_fini(s);
free_shm:
	free(s);
	return rc;
}

/* 0 or -EBADF. */
static int check_socket(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);
	struct sockaddr_un a;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	    domain != AF_UNIX)
		return kedge_reason(-EBADF, "%d is no Unix socket", fd);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
	    type != SOCK_STREAM)
		return kedge_reason(-EBADF, "%d is no stream socket "
				    "(SOCK_STREAM)", fd);
	len = sizeof(a);
	if (getpeername(fd, (struct sockaddr *)&a, &len))
		return kedge_reason(-EBADF, "the socket %d is not connected",
				    fd);
	return 0;
}

KEDGE_API int kedge_channel_open_fd(int fd,
				    const struct kedge_channel_opts *user,
				    int timeout_ms,
				    struct kedge_channel **channel)
{
	struct kedge_channel_opts opts;
	struct clofork sock;
	int rc;

	NO_CANCEL();
	if (!channel)
		return channel_invalid("the result is NULL");
	rc = check_socket(fd);
	if (!rc)
		rc = kedge__channel_opts(&opts, user);
	if (rc)
		return rc;
	clofork_init(&sock);
	rc = clofork_begin();
	if (!rc)
		rc = clofork_end(&sock, fd);
	if (!rc)
		rc = open_over(&sock, &opts, clock_deadline(timeout_ms), channel);
	clofork_release(&sock);
	return rc;
}

/* A path, or @ and a name; the length that goes with it. */
int shm_address(const char *path, struct sockaddr_un *a, uint32_t *len)
{
	size_t n = strlen(path);

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (!n)
		return kedge_reason(-EINVAL, "the path is empty");
	if (n >= sizeof(a->sun_path))
		return kedge_reason(-ENAMETOOLONG, "the path of a socket has "
				    "at most 107 bytes: %s", path);
	memcpy(a->sun_path, path, n);
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
	if (path[0] == '@') {
		a->sun_path[0] = 0;
		(*len)--;
	}
	return 0;
}

/* A listener that is full makes a socket that does not wait fail at once. */
static int connect_until(int fd, const struct sockaddr_un *a, socklen_t len,
			 uint64_t deadline)
{
	int rc, pause = 1;

	while (connect(fd, (const struct sockaddr *)a, len)) {
		if (errno != EAGAIN && errno != EINTR)
			return errno == ENOENT ? -ECONNREFUSED : -errno;
		rc = kedge__wait_for(-1, 0, deadline, pause);
		if (rc)
			return rc;
		if (pause < PAUSE_MAX_MS)
			pause *= 2;
	}
	return 0;
}

KEDGE_API int kedge_channel_open_shm(const char *path,
				     const struct kedge_channel_opts *user,
				     int timeout_ms,
				     struct kedge_channel **channel)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	struct kedge_channel_opts opts;
	struct sockaddr_un a;
	struct clofork sock;
	uint32_t len = 0;
	int rc;

	NO_CANCEL();
	if (!path || !channel)
		return channel_invalid("the path or the result is NULL");
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = shm_address(path, &a, &len);
	if (rc)
		return rc;
	rc = shm_socket(&sock);
	if (rc)
		return rc;
	rc = connect_until(sock.fd, &a, len, deadline);
	if (rc == -ECONNREFUSED)
		kedge_reason(rc, "nobody listens on %s", path);
	else if (rc)
		kedge_reason(rc, "cannot connect to %s: %s", path,
			     strerror(-rc));
	if (!rc)
		rc = open_over(&sock, &opts, deadline, channel);
	clofork_close(&sock);
	return rc;
}
