// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program for MPI that knows nothing of kedge: rank 0 sends messages of 256 KiB, and changes the
 * pages of its buffer between them, as programs and allocators do. Rank 1 says how many arrived
 * with other bytes than were sent.
 *
 *	mpi_pages kept|munmap|raw-munmap|raw-dontneed
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <mpi.h>

#include "tools/common/raw.h"

#define MESSAGES 20
#define LEN	 ((size_t)256 << 10)
#define PROT	 (PROT_READ | PROT_WRITE)
#define MAP	 (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)

static void die(const char *what)
{
	fprintf(stderr, "mpi_pages: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A system call by an instruction of its own, where that is known how. */
static long call(long nr, void *at, long a, long b, long c, long d, long e)
{
#if defined(RAW_SYSCALL)
	return raw_syscall6(nr, (long)(uintptr_t)at, a, b, c, d, e);
#else
	return syscall(nr, at, a, b, c, d, e);
#endif
}

/* What is mapped at @at is other pages then, which are zeros. */
static void change(const char *how, void *at)
{
	bool ok = true;

	if (!strcmp(how, "munmap"))
		ok = !munmap(at, LEN) && mmap(at, LEN, PROT, MAP, -1, 0) == at;
	else if (!strcmp(how, "raw-munmap"))
		ok = !call(SYS_munmap, at, LEN, 0, 0, 0, 0) &&
		     call(SYS_mmap, at, LEN, PROT, MAP, -1, 0) == (long)(uintptr_t)at;
	else if (!strcmp(how, "raw-dontneed"))
		ok = !call(SYS_madvise, at, LEN, MADV_DONTNEED, 0, 0, 0);
	else if (strcmp(how, "kept") != 0)
		die("kept, munmap, raw-munmap or raw-dontneed?");
	if (!ok)
		die("the memory cannot be changed");
}

static uint64_t word(int message, size_t i)
{
	return ((uint64_t)message + 1) << 32 | i;
}

static void send_all(const char *how, uint64_t *buf)
{
	size_t i;
	int n;

	for (n = 0; n < MESSAGES; n++) {
		if (n)
			change(how, buf);
		for (i = 0; i < LEN / sizeof(*buf); i++)
			buf[i] = word(n, i);
		MPI_Ssend(buf, (int)LEN, MPI_BYTE, 1, n, MPI_COMM_WORLD);
	}
}

static int receive_all(uint64_t *buf)
{
	int n, wrong = 0;
	size_t i;

	for (n = 0; n < MESSAGES; n++) {
		memset(buf, 0xa5, LEN);
		MPI_Recv(buf, (int)LEN, MPI_BYTE, 0, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (i = 0; i < LEN / sizeof(*buf) && buf[i] == word(n, i); i++)
			;
		wrong += i < LEN / sizeof(*buf);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	uint64_t *buf;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	buf = mmap(NULL, LEN, PROT, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED || argc != 2)
		die("no memory, or no word for how its pages change");
	if (!rank)
		send_all(argv[1], buf);
	else
		printf("%s: %d of %d wrong\n", argv[1], receive_all(buf), MESSAGES);
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
