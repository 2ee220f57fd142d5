/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of the system, and of libc, that fail once: of those that are counted the one that the
 * test names, with its error. The linker puts them in the place of the real ones (--wrap).
 */
#ifndef TESTS_REGION_REFUSE_H
#define TESTS_REGION_REFUSE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

/* 0: none. Threads of kedge's count as well. */
static _Atomic unsigned int fail_at, calls;
static int fail_with = ENOMEM;
/* To be called before that call is made, which does not fail then. */
static void (*_Atomic instead)(void);

static bool fails(void)
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

#define WRAP(type, name, ...)                  \
	extern type __real_##name(__VA_ARGS__); \
	extern type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

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

/* Of the call that is made. */
static __thread int advice_now;

WRAP(int, madvise, void *at, size_t len, int advice)
{
	advice_now = advice;
	return fails() ? -1 : __real_madvise(at, len, advice);
}

WRAP(int, mprotect, void *at, size_t len, int prot)
{
	return fails() ? -1 : __real_mprotect(at, len, prot);
}

#endif /* TESTS_REGION_REFUSE_H */
