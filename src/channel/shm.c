// SPDX-License-Identifier: BSD-2-Clause
/*
 * The transport between processes of one host: its table, and how two of them
 * find each other.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel/internal.h"
#include "channel/shm.h"

#define HELLO_MS 1000 /* what a listener gives a peer for the handshake */
#define BACKLOG	 64

static int shm_check(void *ctx)
{
	struct shm *s = ctx;
	struct pollfd p[] = { { .fd = s->sock, .events = POLLRDHUP },
			      { .fd = s->pidfd, .events = POLLIN } };

	if (s->broken)
		return kedge_reason(s->broken, "the peer broke the ring");
	if (poll(p, ARRAY_SIZE(p), 0) <= 0)
		return 0;
	return kedge_reason(-ECONNRESET, "the peer is gone");
}

static int shm_fd(void *ctx)
{
	return ((struct shm *)ctx)->epoll;
}

static uint32_t shm_ready(void *ctx, const void *buf, size_t len)
{
	struct shm *s = ctx;

	if (heap_has(&s->heap, buf, len))
		return READY_DIRECT | READY_HEAP;
	return s->can_cma ? READY_DIRECT | READY_REGISTER : 0;
}

static bool shm_can_push(void *ctx)
{
	return ((struct shm *)ctx)->peer_can_cma;
}

static void *shm_heap_alloc(void *ctx, size_t len)
{
	return heap_alloc(&((struct shm *)ctx)->heap, len);
}

static void shm_heap_free(void *ctx, void *p)
{
	heap_free(&((struct shm *)ctx)->heap, p);
}

static const char *shm_explain(void *ctx)
{
	return ((struct shm *)ctx)->why;
}

static void shm_close(void *ctx)
{
	struct shm *s = ctx;

	/* A forked child may keep the socket open: closing it does not show. */
	shutdown(s->sock, SHUT_RDWR);
	shm_fini(s);
	free(s);
}

/* The areas are not mapped in a child; whatever is there is somebody else's. */
static void shm_leave(void *ctx)
{
	struct shm *s = ctx;

	s->mine = NULL;
	s->peers = NULL;
	shm_fini(s);
	free(s);
}

const struct transport_ops shm_ops = {
	.name = "shm",
	.ways = 1u << KEDGE_WAY_DIRECT | 1u << KEDGE_WAY_SWAP |
		1u << KEDGE_WAY_COPY | 1u << KEDGE_WAY_REGISTER,
	.reserve = ring_reserve,
	.commit = ring_commit,
	.next = ring_next,
	.release = ring_release,
	.check = shm_check,
	.fd = shm_fd,
	.arm = ring_arm,
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
	.explain = shm_explain,
	.close = shm_close,
	.leave = shm_leave,
};

int shm_channel(int sock, const struct kedge_channel_opts *opts,
		uint64_t deadline, struct kedge_channel **channel)
{
	struct transport_peer peer;
	struct shm *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = shm_hello(s, sock, opts, deadline, &peer);
	if (rc)
		goto free_shm;
	rc = kedge__channel_open(&shm_ops, s, opts, &peer, channel);
	if (rc)
		goto fini_shm;
	return 0;

fini_shm:
	s->sock = -1;
	shm_fini(s);
free_shm:
	free(s);
	return rc;
}

KEDGE_API int kedge_channel_open_fd(int fd,
				    const struct kedge_channel_opts *user,
				    int timeout_ms,
				    struct kedge_channel **channel)
{
	struct kedge_channel_opts opts;
	int rc, domain = 0;
	socklen_t len = sizeof(domain);

	if (!channel)
		return -EINVAL;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	    domain != AF_UNIX)
		return kedge_reason(-EBADF, "%d is no Unix socket", fd);
	rc = kedge__channel_opts(&opts, user);
	return rc ? rc : shm_channel(fd, &opts, deadline_of(timeout_ms),
				     channel);
}

/* A path, or @ and a name; the length that goes with it. */
static int address(const char *path, struct sockaddr_un *a, socklen_t *len)
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
	while (connect(fd, (const struct sockaddr *)a, len)) {
		if (errno != EAGAIN && errno != EINTR)
			return errno == ENOENT ? -ECONNREFUSED : -errno;
		if (!deadline_left(deadline))
			return -ETIMEDOUT;
		usleep(1000);
	}
	return 0;
}

KEDGE_API int kedge_channel_open_shm(const char *path,
				     const struct kedge_channel_opts *user,
				     int timeout_ms,
				     struct kedge_channel **channel)
{
	uint64_t deadline = deadline_of(timeout_ms);
	struct kedge_channel_opts opts;
	struct sockaddr_un a;
	socklen_t len = 0;
	int fd, rc;

	if (!path || !channel)
		return -EINVAL;
	rc = kedge__channel_opts(&opts, user);
	if (!rc)
		rc = address(path, &a, &len);
	if (rc)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	rc = connect_until(fd, &a, len, deadline);
	if (rc == -ECONNREFUSED)
		kedge_reason(rc, "nobody listens on %s", path);
	else if (rc)
		kedge_reason(rc, "cannot connect to %s: %s", path,
			     strerror(-rc));
	if (!rc)
		rc = shm_channel(fd, &opts, deadline, channel);
	if (rc)
		close(fd);
	return rc;
}

/* ---- listening ---- */

struct shm_listener {
	struct kedge_channel_opts opts;
	struct sockaddr_un address;
	int fd;
};

static int listener_accept(void *ctx, int timeout_ms,
			   struct kedge_channel **channel)
{
	struct shm_listener *l = ctx;
	struct pollfd p = { .fd = l->fd, .events = POLLIN };
	uint64_t deadline = deadline_of(timeout_ms);
	int fd, rc;

	do {
		rc = poll(&p, 1, deadline_left(deadline));
		if (!rc)
			return -ETIMEDOUT;
		fd = rc < 0 ? -1 : accept4(l->fd, NULL, NULL,
					   SOCK_CLOEXEC | SOCK_NONBLOCK);
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN ||
			    errno == ECONNABORTED));
	if (fd < 0)
		return -errno;
	rc = shm_channel(fd, &l->opts, deadline_of(HELLO_MS), channel);
	if (rc)
		close(fd);
	return rc;
}

static int listener_fd(void *ctx)
{
	return ((struct shm_listener *)ctx)->fd;
}

static void listener_close(void *ctx)
{
	struct shm_listener *l = ctx;

	close(l->fd);
	if (l->address.sun_path[0])
		unlink(l->address.sun_path);
	free(l);
}

static const struct listener_ops listener_ops = {
	.accept = listener_accept,
	.fd = listener_fd,
	.close = listener_close,
};

/* What a listener that was killed left behind is nobody's. */
static int bind_to(int fd, const struct sockaddr_un *a, socklen_t len)
{
	struct stat st;
	int probe, rc;

	if (!bind(fd, (const struct sockaddr *)a, len))
		return 0;
	if (errno != EADDRINUSE || !a->sun_path[0] ||
	    lstat(a->sun_path, &st) || !S_ISSOCK(st.st_mode))
		return -errno;
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return -errno;
	rc = connect(probe, (const struct sockaddr *)a, len) ? errno : 0;
	close(probe);
	if (rc != ECONNREFUSED)
		return -EADDRINUSE;
	unlink(a->sun_path);
	return bind(fd, (const struct sockaddr *)a, len) ? -errno : 0;
}

static int cannot_listen(int rc, const char *path)
{
	return kedge_reason(rc, "cannot listen on %s: %s", path, strerror(-rc));
}

KEDGE_API int kedge_listener_open_shm(const char *path,
				      const struct kedge_channel_opts *user,
				      struct kedge_listener **listener)
{
	struct shm_listener *l;
	socklen_t len = 0;
	int rc;

	if (!path || !listener)
		return -EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	rc = kedge__channel_opts(&l->opts, user);
	if (!rc)
		rc = address(path, &l->address, &len);
	if (rc)
		goto free_listener;
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0) {
		rc = -errno;
		goto free_listener;
	}
	rc = bind_to(l->fd, &l->address, len);
	if (rc) {
		cannot_listen(rc, path);
		goto close_fd;
	}
	rc = listen(l->fd, BACKLOG) ? cannot_listen(-errno, path) : 0;
	if (!rc)
		rc = kedge__listener_open(&listener_ops, l, listener);
	if (rc)
		goto unlink_path;
	return 0;

unlink_path:
	if (l->address.sun_path[0])
		unlink(l->address.sun_path);
close_fd:
	close(l->fd);
free_listener:
	free(l);
	return rc;
}
