// SPDX-License-Identifier: BSD-2-Clause
/*
 * How two processes get to share their areas. Over a Unix socket each sends
 * what it is (struct hello) with its area's memfd and the eventfd that wakes
 * it, then whether it can reach the other's memory (struct verdict): that is
 * tried, by reading a random number whose address the hello names. The kernel
 * vouches for the process and user of whoever sent it.
 *
 * The area that comes must be sealed against shrinking: a peer that truncated
 * it would end this process with SIGBUS.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/barrier.h"
#include "channel/shm.h"

#define MAGIC	0x6b656467655f6d31u /* in the byte order of its writer */
#define VERSION 1u
#define SEALS	(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define FDS	2

struct hello {
	uint64_t magic;
	uint32_t version;
	uint32_t eager_max;
	uint32_t unexpected_cnt;
	uint32_t barrier; /* it takes part in membarrier */
	uint64_t unexpected_bytes;
	uint64_t heap_len;
	uint64_t nonce_addr; /* 0: its memory is not to be reached */
	uint64_t nonce[2];
};

struct verdict {
	uint64_t magic;
	uint32_t can_cma;
	uint32_t zero;
};

/* What came with a hello. */
struct guest {
	struct hello hello;
	int fd[FDS];
	struct ucred cred;
};

uint64_t deadline_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX
			      : clock_ns() + (uint64_t)timeout_ms * 1000000u;
}

int deadline_left(uint64_t deadline)
{
	uint64_t now = clock_ns();

	if (deadline == UINT64_MAX)
		return -1;
	return now >= deadline ? 0 : (int)((deadline - now + 999999) / 1000000);
}

static int wait_for(int sock, short what, uint64_t deadline)
{
	struct pollfd p = { .fd = sock, .events = what };
	int rc;

	do {
		rc = poll(&p, 1, deadline_left(deadline));
	} while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return -errno;
	return rc ? 0 : kedge_reason(-ETIMEDOUT, "the peer does not answer");
}

static int hung_up(void)
{
	return kedge_reason(-ECONNRESET, "the peer closed the connection: it "
			    "has the reason");
}

/* Descriptors under way count as open ones of this user. */
static int not_sent(void)
{
	if (errno == EPIPE || errno == ECONNRESET)
		return hung_up();
	return kedge_reason(-errno, "nothing can be sent to the peer: %s%s",
			    strerror(errno), errno == ETOOMANYREFS
			    ? ": raise ulimit -n" : "");
}

static int send_hello(int sock, const struct hello *h, const int *fds)
{
	union {
		char buf[CMSG_SPACE(FDS * sizeof(int)) +
			 CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} u = { 0 };
	struct ucred me = { getpid(), getuid(), getgid() };
	struct iovec iov = { (void *)(uintptr_t)h, sizeof(*h) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(FDS * sizeof(int));
	memcpy(CMSG_DATA(c), fds, FDS * sizeof(int));
	c = CMSG_NXTHDR(&m, c);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_CREDENTIALS;
	c->cmsg_len = CMSG_LEN(sizeof(me));
	memcpy(CMSG_DATA(c), &me, sizeof(me));
	if (sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*h))
		return 0;
	return not_sent();
}

static void drop_fds(struct guest *g)
{
	int i;

	for (i = 0; i < FDS; i++)
		if (g->fd[i] >= 0)
			close(g->fd[i]);
}

/* Descriptors of a control message, all of which are ours to close now. */
static void take_fds(struct guest *g, const struct cmsghdr *c)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), i;
	int fd;

	for (i = 0; i < n; i++) {
		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		if (i < FDS && g->fd[i] < 0)
			g->fd[i] = fd;
		else
			close(fd);
	}
}

static int no_kedge(void)
{
	return kedge_reason(-EPROTO, "what answers is no kedge channel, or one "
			    "of another version or byte order");
}

static int recv_hello(int sock, struct guest *g, uint64_t deadline)
{
	union {
		char buf[CMSG_SPACE(16 * sizeof(int)) +
			 CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} u;
	struct iovec iov = { &g->hello, sizeof(g->hello) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct cmsghdr *c;
	bool known = false;
	ssize_t n;
	int rc = wait_for(sock, POLLIN, deadline);

	g->fd[0] = g->fd[1] = -1;
	if (rc)
		return rc;
	n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS)
			take_fds(g, c);
		if (c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&g->cred, CMSG_DATA(c), sizeof(g->cred));
			known = true;
		}
	}
	if (!n)
		rc = hung_up();
	else if (n != sizeof(g->hello) || g->fd[1] < 0 || !known ||
		 g->hello.magic != MAGIC || g->hello.version != VERSION)
		rc = no_kedge();
	if (rc)
		drop_fds(g);
	return rc;
}

static int exchange_verdict(struct shm *s, uint64_t deadline)
{
	struct verdict v = { MAGIC, s->can_cma, 0 };
	ssize_t n;
	int rc;

	if (send(s->sock, &v, sizeof(v), MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    sizeof(v))
		return not_sent();
	rc = wait_for(s->sock, POLLIN, deadline);
	if (rc)
		return rc;
	n = recv(s->sock, &v, sizeof(v), MSG_DONTWAIT);
	if (!n || (n < 0 && errno == ECONNRESET))
		return hung_up();
	if (n < 0)
		return -errno;
	if (n != sizeof(v) || v.magic != MAGIC || v.can_cma > 1)
		return no_kedge();
	s->peer_can_cma = v.can_cma;
	return 0;
}

/* ---- areas ---- */

static int area_make(struct shm *s, const struct kedge_channel_opts *o, int *fd)
{
	int rc;

	s->my_len = HEAP_AT + round_up(o->heap_bytes, kedge__page_size());
	*fd = memfd_create("kedge-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return -errno;
	if (ftruncate(*fd, (off_t)s->my_len) ||
	    fcntl(*fd, F_ADD_SEALS, SEALS))
		goto close_fd;
	s->mine = mmap(NULL, s->my_len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_NORESERVE, *fd, 0);
	if (s->mine == MAP_FAILED) {
		s->mine = NULL;
		goto close_fd;
	}
	/* A forked child has no part in this. */
	madvise(s->mine, s->my_len, MADV_DONTFORK);
	return 0;

close_fd:
	rc = -errno;
	close(*fd);
	return rc;
}

static int area_map(struct shm *s, const struct guest *g)
{
	uint64_t heap = g->hello.heap_len;
	struct stat st;
	int seals = fcntl(g->fd[0], F_GET_SEALS);

	if (heap % kedge__page_size() || heap > (uint64_t)1 << 40)
		return no_kedge();
	s->peers_len = HEAP_AT + heap;
	s->peers_heap_len = heap;
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(g->fd[0], &st) ||
	    (uint64_t)st.st_size != s->peers_len)
		return no_kedge();
	s->peers = mmap(NULL, s->peers_len, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_NORESERVE, g->fd[0], 0);
	if (s->peers == MAP_FAILED) {
		s->peers = NULL;
		return -errno;
	}
	madvise(s->peers, s->peers_len, MADV_DONTFORK);
	return 0;
}

static void lay_out(struct shm *s)
{
	s->in = (struct cell *)(void *)(s->mine + RING_AT);
	s->out = (struct cell *)(void *)(s->peers + RING_AT);
	s->my_head = (struct area_head *)(void *)s->mine;
	s->peer_head = (struct area_head *)(void *)s->peers;
	s->my_records = (struct record *)(void *)(s->mine + RECORDS_AT);
	s->peers_records = (struct record *)(void *)(s->peers + RECORDS_AT);
	memset(s->free_records, 0xff, sizeof(s->free_records));
}

/* ---- the peer ---- */

static bool reaches(const struct guest *g)
{
	uint64_t nonce[2];
	struct iovec here = { nonce, sizeof(nonce) };
	struct iovec far = { (void *)(uintptr_t)g->hello.nonce_addr,
			     sizeof(nonce) };

	return process_vm_readv(g->cred.pid, &here, 1, &far, 1, 0) ==
		       sizeof(nonce) &&
	       !memcmp(nonce, g->hello.nonce, sizeof(nonce));
}

static int check_peer(struct shm *s, const struct guest *g,
		      const struct kedge_channel_opts *o)
{
	if (g->cred.uid != getuid() && !(o->flags & KEDGE_CHANNEL_ANY_USER))
		return kedge_reason(-EACCES, "the peer is of user %u: "
				    "KEDGE_CHANNEL_ANY_USER lets it in",
				    g->cred.uid);
	if (!g->hello.unexpected_cnt || g->hello.unexpected_cnt > 65536 ||
	    g->hello.unexpected_bytes < 2ull * g->hello.eager_max ||
	    g->hello.unexpected_bytes > 1u << 30 || !g->hello.eager_max ||
	    g->hello.eager_max > 32u << 10)
		return no_kedge();
	s->pid = g->cred.pid;
	s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	if (!(o->flags & KEDGE_CHANNEL_NO_CMA) && g->hello.nonce_addr) {
		errno = 0;
		s->can_cma = reaches(g);
	}
	if (!s->can_cma)
		snprintf(s->why, sizeof(s->why), "process_vm_readv() of the "
			 "peer does not work (%s): both need one user, and "
			 "kernel.yama.ptrace_scope to be 0",
			 errno ? strerror(errno) : "switched off");
	return 0;
}

static int watch(struct shm *s)
{
	int fds[] = { s->wake_fd, s->sock, s->pidfd };
	struct epoll_event ev = { .events = EPOLLIN };
	size_t i;

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll < 0)
		return -errno;
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0 &&
		    epoll_ctl(s->epoll, EPOLL_CTL_ADD, fds[i], &ev))
			return -errno;
	return 0;
}

void shm_fini(struct shm *s)
{
	int fds[] = { s->epoll, s->wake_fd, s->peer_wake_fd, s->pidfd, s->sock };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	heap_fini(&s->heap);
	heap_fini(&s->slots);
	if (s->mine)
		munmap(s->mine, s->my_len);
	if (s->peers)
		munmap(s->peers, s->peers_len);
}

static int meet(struct shm *s, const struct kedge_channel_opts *o,
		int area_fd, uint64_t deadline, struct guest *g)
{
	uint64_t nonce[2];
	bool barrier = barrier_register();
	struct hello h = {
		.magic = MAGIC,
		.version = VERSION,
		.eager_max = o->eager_max,
		.unexpected_cnt = o->unexpected_cnt,
		.unexpected_bytes = o->unexpected_bytes,
		.heap_len = s->my_len - HEAP_AT,
		.barrier = barrier,
	};
	int fds[FDS] = { area_fd, s->wake_fd }, rc, one = 1;

	if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
		return kedge_reason(-EIO, "the kernel gives no random numbers");
	memcpy(h.nonce, nonce, sizeof(nonce));
	if (!(o->flags & KEDGE_CHANNEL_NO_CMA))
		h.nonce_addr = (uintptr_t)nonce;
	if (setsockopt(s->sock, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)))
		return errno == EOPNOTSUPP ? -EBADF : -errno;
	rc = send_hello(s->sock, &h, fds);
	if (rc)
		return rc;
	rc = recv_hello(s->sock, g, deadline);
	if (rc)
		return rc;
	s->fence = !barrier || !g->hello.barrier;
	rc = check_peer(s, g, o);
	if (!rc)
		rc = area_map(s, g);
	if (!rc)
		rc = exchange_verdict(s, deadline);
	s->peer_wake_fd = g->fd[1];
	close(g->fd[0]);
	return rc;
}

int shm_hello(struct shm *s, int sock, const struct kedge_channel_opts *o,
	      uint64_t deadline, struct transport_peer *peer)
{
	struct guest g;
	int fd, rc;

	s->epoll = s->pidfd = s->peer_wake_fd = -1;
	s->sock = sock;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0)
		return -errno;
	rc = area_make(s, o, &fd);
	if (rc)
		goto fini;
	rc = meet(s, o, fd, deadline, &g);
	close(fd);
	if (rc)
		goto fini;
	lay_out(s);
	rc = heap_init(&s->heap, s->mine + HEAP_AT, s->my_len - HEAP_AT);
	if (!rc)
		rc = heap_init(&s->slots, s->mine + SLOTS_AT, SLOTS_LEN);
	if (!rc)
		rc = watch(s);
	if (rc)
		goto fini;
	peer->pid = (uint32_t)s->pid;
	peer->eager_max = o->eager_max < g.hello.eager_max ? o->eager_max
							   : g.hello.eager_max;
	peer->unexpected_cnt = g.hello.unexpected_cnt;
	peer->unexpected_bytes = g.hello.unexpected_bytes;
	return 0;

fini:
	s->sock = -1;
	shm_fini(s);
	return rc;
}
