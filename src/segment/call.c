// SPDX-License-Identifier: BSD-2-Clause
/*
 * Requests of this process's calls to the thread: messages on a pair of sockets, one after
 * the other, each answered. Descriptors are handed over with them, as the thread has a
 * table of its own.
 *
 * The callers' end is in the program's table, and a daemon closes what it does not know. Then
 * this connects to the thread's socket, as peers do, and says that it is this process.
 */
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "segment/internal.h"

#define TRIES 3

static struct clofork asks; /* the callers' end, in the program's table */
static int ctl;		    /* the thread's */
static sem_t answered;
static int answer;
/* The socket orders what either side has written before; this says so to tools, too. */
static _Atomic uint32_t said;

/* ---- both ---- */

/* A message with one descriptor, or none if it is negative. */
struct packet {
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov;
	struct msghdr m;
};

static struct msghdr *packet_of(struct packet *p, const void *data, size_t len, int fd)
{
	struct cmsghdr *c;

	*p = (struct packet){ .iov = { (void *)(uintptr_t)data, len },
			      .m = { .msg_iovlen = 1 } };
	p->m.msg_iov = &p->iov;
	if (fd < 0)
		return &p->m;
	p->m.msg_control = p->space;
	p->m.msg_controllen = sizeof(p->space);
	c = CMSG_FIRSTHDR(&p->m);
	*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return &p->m;
}

/* The bytes, and one descriptor or -1. */
static long receive(int sock, void *data, size_t len, int *fd)
{
	struct packet p;
	struct msghdr *m = packet_of(&p, data, len, -1);
	const struct cmsghdr *c;
	long n;

	m->msg_control = p.space;
	m->msg_controllen = sizeof(p.space);
	n = syscall(SYS_recvmsg, sock, m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	c = n > 0 ? CMSG_FIRSTHDR(m) : NULL;
	*fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return n;
}

/* ---- the thread ---- */

void call_from(int fd)
{
	ctl = fd;
}

int call_next(struct seg_call *call, int *fd)
{
	long n = receive(ctl, call, sizeof(*call), fd);

	atomic_load(&said);
	if (n == (long)sizeof(*call))
		return 1;
	return n ? 0 : -ESHUTDOWN;
}

void call_answer(int rc)
{
	answer = rc;
	sem_post(&answered);
}

int call_send_file(int fd)
{
	struct packet p;
	char c = 0;

	if (fd < 0)
		return -ESTALE;
	return syscall(SYS_sendmsg, ctl, packet_of(&p, &c, 1, fd),
		       MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* ---- the others, with the gate ---- */

int call_open(int *thread_end)
{
	int sv[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	clofork_init(&asks);
	rc = clofork_keep(&asks, fd_move_up(sv[0]));
	if (rc) {
		close(sv[1]);
		return rc;
	}
	sem_init(&answered, 0, 0);
	ctl = *thread_end = sv[1];
	return 0;
}

void call_close(void)
{
	clofork_close(&asks);
}

void call_hang_up(void)
{
	if (clofork_ours(&asks))
		shutdown(asks.fd, SHUT_RDWR);
}

int call_wait(void)
{
	while (sem_wait(&answered) && errno == EINTR)
		;
	return answer;
}

/* One that the thread did not take would not be answered. */
static int say_hello(int sock)
{
	struct seg_head hello = seg_head(SEG_SELF);
	ssize_t n;

	if (send(sock, &hello, sizeof(hello), MSG_NOSIGNAL) < 0)
		return -errno;
	do
		n = recv(sock, &hello, sizeof(hello), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(hello) && seg_is(&hello, SEG_SELF) ? 0 : -ECONNRESET;
}

/* Nobody else has that name: it would be given memory. */
static int connect_self(int sock)
{
	struct sockaddr_un a;
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);
	const unsigned int alen = id_address(seg->name, &a);

	while (connect(sock, (const struct sockaddr *)&a, alen))
		if (errno != EINTR)
			return -errno;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len))
		return -errno;
	if (who.pid != getpid())
		return -ECONNREFUSED;
	return say_hello(sock);
}

/* The program has closed the socket that there was. */
static int open_anew(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int rc = sock < 0 ? -errno : connect_self(sock);

	if (!rc) {
		clofork_close(&asks);
		return clofork_keep(&asks, fd_move_up(sock));
	}
	if (sock >= 0)
		close(sock);
	return rc;
}

static bool ask(const struct seg_call *call, int fd)
{
	struct packet p;

	return clofork_ours(&asks) &&
	       sendmsg(asks.fd, packet_of(&p, call, sizeof(*call), fd), MSG_NOSIGNAL) >= 0;
}

int call_thread(const struct seg_call *call, int fd)
{
	int rc = 0;

	atomic_fetch_add(&said, 1);
	if (!ask(call, fd)) {
		rc = open_anew();
		if (rc || !ask(call, fd))
			rc = kedge_reason(-EBADF, "the program has closed a descriptor that kedge "
					  "opened, and another one cannot be: %s",
					  rc ? strerrordesc_np(-rc) : "it was closed as well");
	}
	if (fd >= 0)
		close(fd);
	return rc ? rc : call_wait();
}

int call_for_fd(enum seg_op op, int index)
{
	const struct seg_call call = { .op = op, .index = index };
	char c;
	int fd, rc, i;

	/* Another thread may close the socket before the answer has been read. */
	for (i = 0; i < TRIES; i++) {
		rc = call_thread(&call, -1);
		if (rc)
			return rc;
		if (clofork_ours(&asks) && receive(asks.fd, &c, 1, &fd) == 1)
			return fd;
	}
	return -EBADF;
}
