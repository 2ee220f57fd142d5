// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program for MPI that knows nothing of kedge: rank 0 sends messages of 256 KiB, and changes the
 * pages of its buffer between them, as programs and allocators do. Rank 1 says how many arrived
 * with other bytes than were sent.
 *
 *	mpi_pages kept|munmap|raw-munmap|raw-dontneed [THREADS]
 *
 * With THREADS each of so many in both ranks does so, with a buffer of its own.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <mpi.h>

#include "tools/torture/raw.h"

#define MESSAGES 20
#define LEN	 ((size_t)256 << 10)
#define THREADS	 16 /* at most */
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

/* A pair of threads, one in each rank. */
struct pair {
	const char *how;
	uint64_t *buf;
	int number, wrong;
};

static int tag(const struct pair *p, int message)
{
	return p->number * MESSAGES + message;
}

static uint64_t word(int tag, size_t i)
{
	return ((uint64_t)tag + 1) << 32 | i;
}

static void *send_all(void *arg)
{
	const struct pair *p = arg;
	size_t i;
	int n;

	for (n = 0; n < MESSAGES; n++) {
		if (n)
			change(p->how, p->buf);
		for (i = 0; i < LEN / sizeof(*p->buf); i++)
			p->buf[i] = word(tag(p, n), i);
		MPI_Ssend(p->buf, (int)LEN, MPI_BYTE, 1, tag(p, n), MPI_COMM_WORLD);
	}
	return NULL;
}

static void *receive_all(void *arg)
{
	struct pair *p = arg;
	size_t i;
	int n;

	for (n = 0; n < MESSAGES; n++) {
		memset(p->buf, 0xa5, LEN);
		MPI_Recv(p->buf, (int)LEN, MPI_BYTE, 0, tag(p, n), MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		for (i = 0; i < LEN / sizeof(*p->buf) && p->buf[i] == word(tag(p, n), i); i++)
			;
		p->wrong += i < LEN / sizeof(*p->buf);
	}
	return NULL;
}

static int run(const char *how, int rank, int threads)
{
	void *(*work)(void *) = rank ? receive_all : send_all;
	static struct pair pairs[THREADS];
	pthread_t ids[THREADS];
	int k, wrong = 0;

	for (k = 0; k < threads; k++) {
		pairs[k].how = how;
		pairs[k].number = k;
		pairs[k].buf = mmap(NULL, LEN, PROT, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		/* The first is this thread itself. */
		if (pairs[k].buf == MAP_FAILED ||
		    (k && pthread_create(&ids[k], NULL, work, &pairs[k])))
			die("no memory, or no thread");
	}
	work(&pairs[0]);
	for (k = 1; k < threads; k++)
		pthread_join(ids[k], NULL);
	for (k = 0; k < threads; k++)
		wrong += pairs[k].wrong;
	return wrong;
}

int main(int argc, char **argv)
{
	const int threads = argc > 2 ? atoi(argv[2]) : 1;
	int rank, level, wrong;

	MPI_Init_thread(&argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED,
			&level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc < 2 || threads < 1 || threads > THREADS)
		die("no word for how pages change, or too many threads");
	if (threads > 1 && level != MPI_THREAD_MULTIPLE)
		die("this MPI takes calls of one thread only");
	wrong = run(argv[1], rank, threads);
	if (rank)
		printf("%s: %d of %d wrong\n", argv[1], wrong, MESSAGES * threads);
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
