// SPDX-License-Identifier: BSD-2-Clause
/* See refuse.h. */
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "refuse.h"

_Atomic unsigned int fail_at, calls;
int fail_with = ENOMEM;
void (*_Atomic instead)(void);
unsigned int unknown_calls;
__thread int advice_now;

bool fails(void)
{
	const unsigned int at = atomic_load(&fail_at);
	void (*fn)(void);

	if (!at || atomic_fetch_add(&calls, 1) + 1 != at)
		return false;
	fn = atomic_exchange(&instead, NULL);
	if (fn) {
		fn();
		return false;
	}
	errno = fail_with;
	return true;
}

void fail_from(unsigned int step)
{
	atomic_store(&calls, 0);
	atomic_store(&fail_at, step);
}

bool is_step(unsigned int step)
{
	return step == 1 || atomic_load(&calls) >= step - 1;
}

unsigned int each_step(int (*try)(void))
{
	unsigned int step, failed = 0;

	for (step = 1; is_step(step); step++) {
		fail_from(step);
		failed += try() < 0;
		atomic_store(&fail_at, 0);
	}
	return failed;
}

WRAP(int, memfd_create, const char *name, unsigned int flags)
{
	return fails() ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, ftruncate64, int fd, off_t len)
{
	return fails() ? -1 : __real_ftruncate64(fd, len);
}

WRAP(void *, calloc, size_t cnt, size_t size)
{
	return fails() ? NULL : __real_calloc(cnt, size);
}

WRAP(int, pthread_create, pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails() ? fail_with : __real_pthread_create(t, a, fn, arg);
}

WRAP(void *, mmap64, void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return fails() ? MAP_FAILED : __real_mmap64(at, len, prot, flags, fd, off);
}

WRAP(int, madvise, void *at, size_t len, int advice)
{
	advice_now = advice;
	return fails() ? -1 : __real_madvise(at, len, advice);
}

WRAP(int, mprotect, void *at, size_t len, int prot)
{
	return fails() ? -1 : __real_mprotect(at, len, prot);
}

static bool is_counted(long nr)
{
	const long *n;

	for (n = counted_calls; *n; n++)
		if (*n == nr)
			return true;
	return false;
}

WRAP(long, syscall, long nr, long a, long b, long c, long d, long e, long f)
{
	long n;

	if (nr == SYS_close_range && unknown_calls) {
		unknown_calls--;
		errno = ENOSYS;
		return -1;
	}
	/* To take a descriptor out of a set cannot fail. */
	if (!is_counted(nr) || (nr == SYS_epoll_ctl && b == EPOLL_CTL_DEL))
		return __real_syscall(nr, a, b, c, d, e, f);
	advice_now = 0;
	/* A thread also looks whether there is more, at any time later: that is no step. */
	if (nr == SYS_recvfrom) {
		n = __real_syscall(nr, a, b, c, d, e, f);
		return n > 0 && fails() ? -1 : n;
	}
	return fails() ? -1 : __real_syscall(nr, a, b, c, d, e, f);
}
