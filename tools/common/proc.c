// SPDX-License-Identifier: BSD-2-Clause
/*
 * Child processes that serve batches. Messages are fixed structs over a
 * SOCK_SEQPACKET pair: parent and child are one program, so no encoding.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/proc.h"

#define REDRAW_MS 200

static void __attribute__((noreturn))
child(int fd, pid_t parent, void (*serve)(int fd, void *arg), void *arg)
{
	/* The parent may be gone before prctl() asks to be told. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	serve(fd, arg);
	/* No exit handlers: they, and stdio's buffers, are the parent's. */
	_exit(0);
}

int proc_start(struct proc *p, void (*serve)(int fd, void *arg),
		     void *arg)
{
	const pid_t parent = getpid();
	int sv[2], err;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	pid = fork();
	if (pid < 0) {
		err = -errno;
		goto close_pair;
	}
	if (!pid) {
		close(sv[0]);
		child(sv[1], parent, serve, arg);
	}
	close(sv[1]);
	p->pid = pid;
	p->fd = sv[0];
	return 0;

close_pair:
	close(sv[0]);
	close(sv[1]);
	return err;
}

void proc_stop(struct proc *p)
{
	if (p->pid <= 0)
		return;
	/* shutdown, not only close: a younger child holds a copy of ours. */
	shutdown(p->fd, SHUT_RDWR);
	close(p->fd);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	p->pid = 0;
}

int proc_send(int fd, const void *msg, size_t len)
{
	ssize_t n;

	do {
		n = send(fd, msg, len, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return (size_t)n == len ? 0 : -EPROTO;
}

int proc_recv(int fd, void *msg, size_t len)
{
	ssize_t n;

	do {
		n = recv(fd, msg, len, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (!n)
		return -EPIPE;
	return (size_t)n == len ? 0 : -EPROTO;
}

int proc_wait(int fd, void *msg, size_t len, struct util_progress *progress,
	       uint64_t done)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int n;

	for (;;) {
		n = poll(&pfd, 1, REDRAW_MS);
		if (n < 0 && errno != EINTR)
			return -errno;
		util_progress_at(progress, done);
		if (n > 0)
			return proc_recv(fd, msg, len);
	}
}

unsigned int proc_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (unsigned int)CPU_COUNT(&set);
}

int proc_pin(unsigned int nth)
{
	unsigned int cpu, left;
	cpu_set_t may, one;

	if (sched_getaffinity(0, sizeof(may), &may))
		return -errno;
	left = nth % (unsigned int)CPU_COUNT(&may);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may) && !left--)
			break;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) ? -errno : 0;
}
