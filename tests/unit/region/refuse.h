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

/* @fail_at: 0 is none. Threads of kedge's count as well. */
extern _Atomic unsigned int fail_at, calls;
extern int fail_with;
/* To be called before that call is made, which does not fail then. */
extern void (*_Atomic instead)(void);
/* Numbers of system calls that count, up to a 0: the program has them. */
extern const long counted_calls[];
/* An old kernel answers that many calls of close_range(). */
extern unsigned int unknown_calls;
/* That of the madvise() that is made. */
extern __thread int advice_now;

/* The call counts; true: it fails, with errno set. */
bool fails(void);
/* From here on the call fails that is the @step-th. */
void fail_from(unsigned int step);
/* True if the last run made at least @step calls. */
bool is_step(unsigned int step);
/* Of @try one call after the other fails; returns how often it did then. */
unsigned int each_step(int (*try)(void));

/* A case whose argument is @error. */
#define error_case(f, error) { #f " with " #error, f, NULL, NULL, &(int){ error } }

#define WRAP(type, name, ...)                  \
	extern type __real_##name(__VA_ARGS__); \
	extern type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)
#define REAL(type, name, ...) extern type __real_##name(__VA_ARGS__)

REAL(int, madvise, void *at, size_t len, int advice);
REAL(void *, mmap64, void *at, size_t len, int prot, int flags, int fd, off_t off);
REAL(long, syscall, long nr, long a, long b, long c, long d, long e, long f);

#endif /* TESTS_REGION_REFUSE_H */
