// SPDX-License-Identifier: BSD-2-Clause
/*
 * Calls of a channel to the system beside those that faults.c replaces: memory to
 * share, sockets, and ways to wait and to reach another process.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fakes/faults.h"
#include "fakes/wrapped.h"

WRAPPED(realloc);
WRAPPED(memfd_create);
WRAPPED(ftruncate64);
WRAPPED(fcntl64);
WRAPPED(fstat64);
WRAPPED(mincore);
WRAPPED(epoll_create1);
WRAPPED(epoll_ctl);
WRAPPED(timerfd_create);
WRAPPED(timerfd_settime);
WRAPPED(socket);
WRAPPED(bind);
WRAPPED(listen);
WRAPPED(connect);
WRAPPED(accept4);
WRAPPED(getsockopt);
WRAPPED(setsockopt);
WRAPPED(sendmsg);
WRAPPED(recvmsg);
WRAPPED(send);
WRAPPED(recv);
WRAPPED(poll);
WRAPPED(getrandom);
WRAPPED(process_vm_readv);
WRAPPED(process_vm_writev);

WRAPPED(mremap);
WRAPPED(fstatfs64);
WRAPPED(pthread_atfork);

void *__wrap_realloc(void *p, size_t size)
{
	void *q;

	if (fault_with("realloc", ENOMEM))
		return NULL;
	q = __real_realloc(p, size);
	if (q && !p)
		fault_holds();
	return q;
}

int __wrap_memfd_create(const char *name, unsigned int flags)
{
	return fault_with("memfd_create", EMFILE) ? -1
					     : __real_memfd_create(name, flags);
}

int __wrap_ftruncate64(int fd, off64_t len)
{
	return fault_with("ftruncate", ENOMEM) ? -1 : __real_ftruncate64(fd, len);
}

int __wrap_fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	return fault_with("fcntl", EPERM) ? -1 : __real_fcntl64(fd, cmd, arg);
}

int __wrap_fstat64(int fd, struct stat64 *st)
{
	return fault_with("fstat", ENOMEM) ? -1 : __real_fstat64(fd, st);
}

int __wrap_mincore(void *at, size_t len, unsigned char *vec)
{
	return fault_with("mincore", ENOMEM) ? -1 : __real_mincore(at, len, vec);
}

int __wrap_epoll_create1(int flags)
{
	return fault_with("epoll_create1", EMFILE) ? -1 : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return fault_with("epoll_ctl", ENOMEM) ? -1
					  : __real_epoll_ctl(epfd, op, fd, ev);
}

int __wrap_timerfd_create(clockid_t clock, int flags)
{
	return fault_with("timerfd_create", EMFILE)
		       ? -1 : __real_timerfd_create(clock, flags);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *value,
			   struct itimerspec *old)
{
	return fault_with("timerfd_settime", ECANCELED)
		       ? -1 : __real_timerfd_settime(fd, flags, value, old);
}

int __wrap_socket(int domain, int type, int protocol)
{
	return fault_with("socket", EMFILE) ? -1
				       : __real_socket(domain, type, protocol);
}

int __wrap_bind(int fd, const struct sockaddr *a, socklen_t len)
{
	return fault_with("bind", EACCES) ? -1 : __real_bind(fd, a, len);
}

int __wrap_listen(int fd, int backlog)
{
	return fault_with("listen", EADDRINUSE) ? -1 : __real_listen(fd, backlog);
}

int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len)
{
	return fault_with("connect", EACCES) ? -1 : __real_connect(fd, a, len);
}

int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	return fault_with("accept4", EMFILE) ? -1
					: __real_accept4(fd, a, len, flags);
}

int __wrap_getsockopt(int fd, int level, int name, void *v, socklen_t *len)
{
	return fault_with("getsockopt", ENOBUFS)
		       ? -1 : __real_getsockopt(fd, level, name, v, len);
}

int __wrap_setsockopt(int fd, int level, int name, const void *v,
		      socklen_t len)
{
	return fault_with("setsockopt", ENOMEM)
		       ? -1 : __real_setsockopt(fd, level, name, v, len);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return fault_with("sendmsg", ETOOMANYREFS) ? -1
					      : __real_sendmsg(fd, m, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
	return fault_with("recvmsg", ENOMEM) ? -1 : __real_recvmsg(fd, m, flags);
}

ssize_t __wrap_send(int fd, const void *p, size_t len, int flags)
{
	return fault_with("send", ENOBUFS) ? -1 : __real_send(fd, p, len, flags);
}

ssize_t __wrap_recv(int fd, void *p, size_t len, int flags)
{
	return fault_with("recv", ENOMEM) ? -1 : __real_recv(fd, p, len, flags);
}

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	return fault_with("poll", ENOMEM) ? -1 : __real_poll(p, n, timeout);
}

ssize_t __wrap_getrandom(void *p, size_t len, unsigned int flags)
{
	return fault_with("getrandom", ENOSYS) ? -1
					  : __real_getrandom(p, len, flags);
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here,
				unsigned long here_cnt,
				const struct iovec *there,
				unsigned long there_cnt, unsigned long flags)
{
	return fault_with("process_vm_readv", EFAULT)
		       ? -1
		       : __real_process_vm_readv(pid, here, here_cnt, there,
						 there_cnt, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *here,
				 unsigned long here_cnt,
				 const struct iovec *there,
				 unsigned long there_cnt, unsigned long flags)
{
	return fault_with("process_vm_writev", EFAULT)
		       ? -1
		       : __real_process_vm_writev(pid, here, here_cnt, there,
						  there_cnt, flags);
}

/* Of no bytes it makes one more mapping, or takes the place of one, which is cut
 * in two and unmapped in two calls. */
void *__wrap_mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
	void *to = NULL, *p;
	va_list ap;

	if (fault_with("mremap", ENOMEM))
		return MAP_FAILED;
	if (flags & MREMAP_FIXED) {
		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
	}
	p = __real_mremap(old, old_len, len, flags, to);
	if (!old_len && p != MAP_FAILED) {
		fault_holds();
		if (!(flags & MREMAP_FIXED))
			fault_holds();
	}
	return p;
}

int __wrap_fstatfs64(int fd, struct statfs64 *fs)
{
	return fault_with("fstatfs", ENOMEM) ? -1 : __real_fstatfs64(fd, fs);
}

int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void),
			  void (*child)(void))
{
	return fault_with("pthread_atfork", ENOMEM)
		       ? ENOMEM
		       : __real_pthread_atfork(prepare, parent, child);
}
