/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages whose buffer changes its pages between them, for programs that know nothing of kedge:
 * the ranks of MPI (pages.c) and the caches of libraries (caches/). Complete in itself, as the
 * ranks' program is compiled where kedge is installed.
 */
#ifndef TOOLS_DEMO_MPI_CHANGE_H
#define TOOLS_DEMO_MPI_CHANGE_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/common/raw.h"

#define MESSAGES 20
#define LEN	 ((size_t)256 << 10)
#define PROT	 (PROT_READ | PROT_WRITE)
#define MAP	 (MAP_PRIVATE | MAP_ANONYMOUS)

/* A system call by an instruction of its own, where that is known how. */
static inline long call(long nr, void *at, long a, long b, long c, long d, long e)
{
	return raw_syscall6(nr, (long)(uintptr_t)at, a, b, c, d, e);
}

/* Give [@at, @at + LEN) other pages, which are zeros; or it is "kept". 0, or -1: it cannot be
 * changed, or @how is no such word. */
static inline int change(const char *how, void *at)
{
	const long same = (long)(uintptr_t)at;
	int ok = 0;

	if (!strcmp(how, "kept"))
		ok = 1;
	else if (!strcmp(how, "munmap"))
		ok = !munmap(at, LEN) && mmap(at, LEN, PROT, MAP | MAP_FIXED, -1, 0) == at;
	else if (!strcmp(how, "raw-munmap"))
		ok = !call(SYS_munmap, at, LEN, 0, 0, 0, 0) &&
		     call(SYS_mmap, at, LEN, PROT, MAP | MAP_FIXED, -1, 0) == same;
	else if (!strcmp(how, "raw-dontneed"))
		ok = !call(SYS_madvise, at, LEN, MADV_DONTNEED, 0, 0, 0);
	return ok ? 0 : -1;
}

/* A buffer of its own for each way of changing, so that what one leaves is not met by another. */
static inline uint64_t *new_buffer(void)
{
	void *p = mmap(NULL, LEN, PROT, MAP, -1, 0);

	return p == MAP_FAILED ? NULL : (uint64_t *)p;
}

static inline uint64_t word(int message, size_t i)
{
	return ((uint64_t)message + 1) << 32 | i;
}

static inline void fill(uint64_t *buf, int message)
{
	size_t i;

	for (i = 0; i < LEN / sizeof(*buf); i++)
		buf[i] = word(message, i);
}

/* 1: it is not what fill() made. */
static inline int differs(const uint64_t *buf, int message)
{
	size_t i = 0;

	while (i < LEN / sizeof(*buf) && buf[i] == word(message, i))
		i++;
	return i < LEN / sizeof(*buf);
}

#endif /* TOOLS_DEMO_MPI_CHANGE_H */
