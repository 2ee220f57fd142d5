// SPDX-License-Identifier: BSD-2-Clause
/*
 * Two ranks of MPI with several threads, each of which sends messages from a buffer of its own to
 * its pair in rank 1, and changes the buffer's pages between them. Rank 1 says how many arrived
 * with other bytes than were sent.
 *
 *	mpi_threads kept|munmap|raw-munmap|raw-dontneed
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "tools/demo/mpi/change.h"

#define THREADS 4

/* A pair of threads, one in each rank. */
struct pair {
	const char *how;
	uint64_t *buf;
	int number, wrong;
};

static void die(const char *what)
{
	fprintf(stderr, "mpi_threads: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static int tag(const struct pair *p, int message)
{
	return p->number * MESSAGES + message;
}

static void *send_all(void *arg)
{
	const struct pair *p = arg;
	int n;

	for (n = 0; n < MESSAGES; n++) {
		if (n && change(p->how, p->buf))
			die("the memory cannot be changed");
		fill(p->buf, tag(p, n));
		MPI_Ssend(p->buf, (int)LEN, MPI_BYTE, 1, tag(p, n), MPI_COMM_WORLD);
	}
	return NULL;
}

static void *receive_all(void *arg)
{
	struct pair *p = arg;
	int n;

	for (n = 0; n < MESSAGES; n++) {
		memset(p->buf, 0xa5, LEN);
		MPI_Recv(p->buf, (int)LEN, MPI_BYTE, 0, tag(p, n), MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		p->wrong += differs(p->buf, tag(p, n));
	}
	return NULL;
}

static int run(const char *how, int rank)
{
	void *(*work)(void *) = rank ? receive_all : send_all;
	static struct pair pairs[THREADS];
	pthread_t ids[THREADS];
	int k, wrong = 0;

	for (k = 0; k < THREADS; k++) {
		pairs[k] = (struct pair){ how, new_buffer(), k, 0 };
		if (!pairs[k].buf || pthread_create(&ids[k], NULL, work, &pairs[k]))
			die("no memory, or no thread");
	}
	for (k = 0; k < THREADS; k++) {
		pthread_join(ids[k], NULL);
		wrong += pairs[k].wrong;
	}
	return wrong;
}

int main(int argc, char **argv)
{
	int rank, level, wrong;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc != 2 || level != MPI_THREAD_MULTIPLE)
		die("no word for how pages change, or this MPI takes calls of one thread only");
	wrong = run(argv[1], rank);
	if (rank)
		printf("%s: %d of %d wrong\n", argv[1], wrong, MESSAGES * THREADS);
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
