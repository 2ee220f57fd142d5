// SPDX-License-Identifier: BSD-2-Clause
/*
 * System calls made by an instruction of our own: what a static binary, or
 * another language's runtime, does. syscall() might be interposed too.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/bench/watch.h"

static long raw3(long nr, long a, long b, long c)
{
#if defined(__x86_64__)
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2)
			 : "memory");
	return x0;
#else
	long ret = syscall(nr, a, b, c);

	return ret < 0 ? -errno : ret;
#endif
}

long raw_munmap(void *addr, size_t len)
{
	return raw3(SYS_munmap, (long)addr, (long)len, 0);
}

long raw_madvise(void *addr, size_t len, int advice)
{
	return raw3(SYS_madvise, (long)addr, (long)len, advice);
}

long raw_getppid(void)
{
	return raw3(SYS_getppid, 0, 0, 0);
}
