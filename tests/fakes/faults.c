// SPDX-License-Identifier: BSD-2-Clause
/* See faults.h. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "fakes/faults.h"
#include "fakes/wrapped.h"

static int target, calls;
static const char *failed = "nothing";
static __thread bool mine;
static _Atomic long live;

void fault_at(int step)
{
	target = step;
	calls = 0;
	mine = step != 0;
}

int fault_hit(void)
{
	return calls >= target;
}

const char *fault_name(void)
{
	return failed;
}

long fault_live(void)
{
	return atomic_load(&live);
}

static bool fails(const char *name)
{
	if (!mine || ++calls != target)
		return false;
	failed = name;
	return true;
}

int fault_now(const char *name)
{
	return fails(name);
}

int fault_with(const char *name, int err)
{
	if (!fails(name))
		return 0;
	errno = err;
	return 1;
}

void fault_holds(void)
{
	atomic_fetch_add(&live, 1);
}

static void *counted(void *p)
{
	if (p)
		atomic_fetch_add(&live, 1);
	return p;
}

WRAPPED(malloc);
WRAPPED(calloc);
WRAPPED(aligned_alloc);
WRAPPED(free);
WRAPPED(mmap);
WRAPPED(munmap);
WRAPPED(madvise);
WRAPPED(open);
WRAPPED(fopen);
WRAPPED(mmap64);
WRAPPED(open64);
FILE *__wrap_fopen64(const char *path, const char *mode);
WRAPPED(pipe2);
WRAPPED(eventfd);
WRAPPED(ioctl);
WRAPPED(syscall);
WRAPPED(pthread_create);
WRAPPED(pthread_mutex_init);

void *__wrap_malloc(size_t size)
{
	return fails("malloc") ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t cnt, size_t size)
{
	return fails("calloc") ? NULL : counted(__real_calloc(cnt, size));
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return fails("aligned_alloc")
		? NULL
		: counted(__real_aligned_alloc(align, size));
}

void __wrap_free(void *p)
{
	if (p)
		atomic_fetch_sub(&live, 1);
	__real_free(p);
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p;

	if (fault_with("mmap", ENOMEM))
		return MAP_FAILED;
	p = __real_mmap(at, len, prot, flags, fd, off);
	/* A mapping that replaces another is none more. */
	if (p != MAP_FAILED && !(flags & MAP_FIXED))
		atomic_fetch_add(&live, 1);
	return p;
}

/* The names they have where files' offsets are asked to be of 64 bits. */
void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd,
		    off_t off)
{
	return __wrap_mmap(at, len, prot, flags, fd, off);
}

int __wrap_open64(const char *path, int flags, ...)
{
	return __wrap_open(path, flags);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}

int __wrap_munmap(void *at, size_t len)
{
	atomic_fetch_sub(&live, 1);
	return __real_munmap(at, len);
}

int __wrap_madvise(void *at, size_t len, int advice)
{
	return fault_with("madvise", ENOMEM) ? -1 : __real_madvise(at, len, advice);
}

int __wrap_open(const char *path, int flags, ...)
{
	return fault_with("open", EMFILE) ? -1 : __real_open(path, flags, 0600);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	return fault_with("fopen", EMFILE) ? NULL : __real_fopen(path, mode);
}

int __wrap_pipe2(int fd[2], int flags)
{
	return fault_with("pipe2", EMFILE) ? -1 : __real_pipe2(fd, flags);
}

int __wrap_eventfd(unsigned int n, int flags)
{
	return fault_with("eventfd", EMFILE) ? -1 : __real_eventfd(n, flags);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	return fault_with("ioctl", ENOMEM) ? -1 : __real_ioctl(fd, request, arg);
}

/* It takes six, as syscall() does; the caller may have passed fewer. */
__attribute__((no_sanitize("address")))
long __wrap_syscall(long nr, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (fault_with("syscall", EMFILE))
		return -1;
	return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg)
{
	return fails("pthread_create") ? EAGAIN
				       : __real_pthread_create(t, attr, fn, arg);
}

int __wrap_pthread_mutex_init(pthread_mutex_t *m,
			      const pthread_mutexattr_t *attr)
{
	return fails("pthread_mutex_init") ? ENOMEM
					   : __real_pthread_mutex_init(m, attr);
}

/* Descriptors of which the link contains one of these words. */
static unsigned int links(const char *const *words, size_t cnt)
{
	char path[64], to[64];
	unsigned int found = 0;
	ssize_t n;
	size_t i;
	int fd;

	for (fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to));
		for (i = 0; n > 0 && i < cnt; i++)
			found += !!memmem(to, (size_t)n, words[i],
					  strlen(words[i]));
	}
	return found;
}

unsigned int fault_contexts(void)
{
	static const char *const words[] = { "userfaultfd" };

	return links(words, 1);
}

unsigned int fault_context_fds(void)
{
	static const char *const words[] = { "userfaultfd", "/pagemap",
					     "/maps" };

	return links(words, 3);
}
