// SPDX-License-Identifier: BSD-2-Clause
/*
 * The other process: takes a file descriptor and a system call, makes it,
 * answers with the result. Messages are one SOCK_SEQPACKET record each.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/torture/peer.h"

struct request {
	long nr;
	long arg[6];
};

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(int))];
};

static ssize_t send_request(int sock, const struct request *req, int fd)
{
	union control ctl = { 0 };
	struct iovec iov = { (void *)(uintptr_t)req, sizeof(*req) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = ctl.buf,
			      .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	ssize_t n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n;
}

/* The descriptor that came along, or -1 at the end of the conversation. */
static int recv_request(int sock, struct request *req)
{
	union control ctl;
	struct iovec iov = { req, sizeof(*req) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = ctl.buf,
			      .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *c;
	ssize_t n;
	int fd = -1;

	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = n == sizeof(*req) ? CMSG_FIRSTHDR(&msg) : NULL;
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	return fd;
}

static void peer_main(int sock)
{
	struct request req;
	struct iovec iov;
	long ret;
	int fd;

	while ((fd = recv_request(sock, &req)) >= 0) {
		if (req.nr == SYS_process_madvise) {
			iov.iov_base = (void *)(uintptr_t)req.arg[1];
			iov.iov_len = (size_t)req.arg[2];
			req.arg[1] = (long)(uintptr_t)&iov;
			req.arg[2] = 1;
		}
		do
			ret = syscall(req.nr, fd, req.arg[1], req.arg[2],
				      req.arg[3], req.arg[4], req.arg[5]);
		while (ret < 0 && errno == EINTR);
		if (ret < 0)
			ret = -errno;
		close(fd);
		if (send(sock, &ret, sizeof(ret), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

int peer_start(struct peer *p)
{
	int sock[2];
	int err;

	err = -pthread_mutex_init(&p->lock, NULL);
	if (err)
		return err;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock)) {
		err = -errno;
		goto destroy_lock;
	}
	p->pid = fork();
	if (p->pid < 0) {
		err = -errno;
		goto close_sock;
	}
	if (!p->pid) {
		/* Not to outlive a parent that is killed. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sock[0]);
		peer_main(sock[1]);
	}
	close(sock[1]);
	p->fd = sock[0];
	return 0;

close_sock:
	close(sock[0]);
	close(sock[1]);
destroy_lock:
	pthread_mutex_destroy(&p->lock);
	return err;
}

void peer_stop(struct peer *p)
{
	close(p->fd);
	/* A forked child of a round may hold the socket's other reference. */
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	pthread_mutex_destroy(&p->lock);
}

long peer_call(struct peer *p, int fd, long nr, const long arg[6])
{
	struct request req = { .nr = nr };
	long ret = -EPIPE;
	ssize_t n;

	memcpy(req.arg, arg, sizeof(req.arg));
	pthread_mutex_lock(&p->lock);
	if (send_request(p->fd, &req, fd) == sizeof(req)) {
		do
			n = recv(p->fd, &ret, sizeof(ret), 0);
		while (n < 0 && errno == EINTR);
		if (n != sizeof(ret))
			ret = -EPIPE;
	}
	pthread_mutex_unlock(&p->lock);
	return ret;
}
