/* SPDX-License-Identifier: BSD-2-Clause */
/* Small things every part uses. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kedge/base.h>

#include "base/clock/clock.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define container_of(ptr, type, member)                                        \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Registered ranges are pages; the page size is asked for once. */
size_t kedge__page_size(void);

/* -@err with the remedy, if no descriptor is left; 0 if it is another error. */
int error_no_fd(int err);
/* -ENOMEM with its reason: mmap() found no room for @len bytes, @what says for which purpose. */
int error_no_addresses(uint64_t len, const char *what);
/* The reason that this thread has goes: a caller's function may fail and give none. */
void error_forget(void);
/* This thread has what an error's reason needs: to give one allocates nothing. */
void error_ready(void);

static inline uint64_t round_down(uint64_t v, uint64_t to)
{
	return v & ~(to - 1);
}

static inline uint64_t round_up(uint64_t v, uint64_t to)
{
	return round_down(v + to - 1, to);
}

/* A full fence. ThreadSanitizer knows no fences, but it knows this. */
static inline void full_fence(void)
{
#if defined(__SANITIZE_THREAD__)
	static uint32_t dummy;

	__atomic_fetch_add(&dummy, 0, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* The compiler moves no access across it. */
static inline void compiler_fence(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* For kedge's own device libraries: in the KEDGE_PRIVATE version, no ABI. */
#define KEDGE_PRIVATE __attribute__((visibility("default")))

/*
 * The least size of a caller's struct is where the last field of its first
 * version ends: a number that never changes, which sizeof does with each field
 * that is added.
 */
#define STRUCT_END(type, last) \
	(offsetof(type, last) + sizeof(((type *)0)->last))

/*
 * Copy a caller's options into @dst of @size bytes. 0; -EINVAL if @user is
 * smaller than its first version (@min bytes); -E2BIG if its unknown tail is
 * not all zero. NULL gives zeros.
 */
KEDGE_PRIVATE int kedge__opts_copy(void *dst, size_t size, size_t min,
				   const void *user);

/*
 * Copy a result out to a caller. Its struct may be older or newer than ours:
 * the first member is its uint32_t size, which stays what the caller set.
 * 0 or -EINVAL.
 */
int kedge__info_copy(void *user, size_t min, const void *src, size_t size);

KEDGE_PRIVATE void kedge__log(int severity, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The value of a KEDGE_* variable that env.c knows, or NULL. */
KEDGE_PRIVATE const char *kedge__env(const char *name);
/* It is set, and not heeded: this is a set-user-ID program, or one of its kind. */
bool kedge__env_ignored(const char *name);

/* The table of env.c has it; @len bytes of @name are the variable's. */
bool kedge__env_known(const char *name, size_t len);

/* Warn once about KEDGE_* variables that env.c doesn't know. */
void kedge__env_check(void);

#endif /* BASE_BASE_H */
