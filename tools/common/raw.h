/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls by an instruction of our own, which no interposed libc can see,
 * and a child that shares this address space, as vfork() makes one.
 */
#ifndef TOOLS_COMMON_RAW_H
#define TOOLS_COMMON_RAW_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The vfork child runs on its parent's thread: no sanitizer may follow it. */
#define RAW_CODE __attribute__((no_sanitize("address", "thread", "undefined")))

#if defined(__x86_64__)

#define RAW_SYSCALL 1

/* Returns as the kernel does: a result or a negative errno. */
RAW_CODE static inline long raw_syscall6(long nr, long a, long b, long c,
					 long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
			   "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

/* clone(); the child runs @fn(@arg) on @stack and never comes back. */
RAW_CODE static inline long raw_clone(long flags, void *stack,
				      void (*fn)(void *), void *arg)
{
	register void (*r12)(void *) __asm__("r12") = fn;
	register void *r13 __asm__("r13") = arg;
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long ret;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(ret)
			 : "a"(SYS_clone), "D"(flags), "S"(stack), "d"(0),
			   "r"(r10), "r"(r8), "r"(r12), "r"(r13)
			 : "rcx", "r11", "memory");
	return ret;
}

#elif defined(__aarch64__)

#define RAW_SYSCALL 1

RAW_CODE static inline long raw_syscall6(long nr, long a, long b, long c,
					 long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

RAW_CODE static inline long raw_clone(long flags, void *stack,
				      void (*fn)(void *), void *arg)
{
	register long x8 __asm__("x8") = SYS_clone;
	register long x0 __asm__("x0") = flags;
	register void *x1 __asm__("x1") = stack;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;
	register void (*x20)(void *) __asm__("x20") = fn;
	register void *x21 __asm__("x21") = arg;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x0, x21\n\t"
			 "blr x20\n\t"
			 "brk #1\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4),
			   "r"(x20), "r"(x21)
			 : "memory");
	return x0;
}

#else

#define RAW_SYSCALL 0

static inline long raw_syscall6(long nr, long a, long b, long c, long d, long e,
				long f)
{
	long ret = syscall(nr, a, b, c, d, e, f);

	return ret == -1 ? -errno : ret;
}

static inline long raw_clone(long flags, void *stack, void (*fn)(void *),
			     void *arg)
{
	return -ENOSYS;
}

#endif

#endif /* TOOLS_COMMON_RAW_H */
