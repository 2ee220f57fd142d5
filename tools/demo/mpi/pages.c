// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program for MPI that knows nothing of kedge: rank 0 sends messages of 256 KiB, and changes the
 * pages of its buffer between them, as programs and allocators do. Rank 1 says how many arrived
 * with other bytes than were sent.
 *
 *	mpi_pages kept|munmap|raw-munmap|raw-dontneed...	of two ranks
 *	mpi_pages version					of one process: which MPI it is
 *
 * kedge demo --mpi has it in itself, with the headers of kedge that it includes.
 */
#include <stdio.h>

#include <mpi.h>

#include "tools/demo/mpi/change.h"

static void die(const char *what)
{
	fprintf(stderr, "mpi_pages: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void send_all(const char *how, uint64_t *buf)
{
	int n;

	for (n = 0; n < MESSAGES; n++) {
		if (n && change(how, buf))
			die("the memory cannot be changed, or that is no way to change it");
		fill(buf, n);
		MPI_Ssend(buf, (int)LEN, MPI_BYTE, 1, n, MPI_COMM_WORLD);
	}
}

static int receive_all(uint64_t *buf)
{
	int n, wrong = 0;

	for (n = 0; n < MESSAGES; n++) {
		memset(buf, 0xa5, LEN);
		MPI_Recv(buf, (int)LEN, MPI_BYTE, 0, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		wrong += differs(buf, n);
	}
	return wrong;
}

static int print_version(void)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int len;

	MPI_Get_library_version(text, &len);
	return puts(text) < 0;
}

static void play(int rank, const char *how)
{
	uint64_t *buf = new_buffer();

	if (!buf)
		die("no memory");
	if (!rank)
		send_all(how, buf);
	else
		printf("%s: %d of %d wrong\n", how, receive_all(buf), MESSAGES);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int rank, ranks, i;

	if (argc == 2 && !strcmp(argv[1], "version"))
		return print_version();
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2)
		die("not two ranks: was it started by another MPI's mpirun?");
	for (i = 1; i < argc; i++)
		play(rank, argv[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
