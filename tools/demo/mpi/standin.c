// SPDX-License-Identifier: BSD-2-Clause
/*
 * The libraries themselves, as they are installed, over a stand-in for an adapter, for machines
 * that have none: their own caches of registrations, and pages that are pinned as an adapter pins
 * them (tools/demo/caches/, tools/standin/).
 */
#include <stdio.h>

#include "tools/common/beside.h"
#include "tools/common/sys.h"
#include "tools/common/util.h"
#include "tools/demo/mpi/mpi.h"

/* A buffer for each column, twice while one is registered anew, and what is let go of late. */
#define PINNED (4ull << 20)

bool mpi_standin_open(const struct mpi_kedge *k, struct mpi_report *r, char why[MPI_WHY])
{
	char is[UTIL_HUMAN], least[UTIL_HUMAN];
	struct sys_memlock lock;

	if (!*k->standin || !*k->caches) {
		snprintf(why, MPI_WHY, "there is no %s: was kedge built with libibverbs and "
			 "librdmacm, and installed as a whole?",
			 *k->standin ? "kedge-demo-caches" : "libkedge-standin-rdma.so");
		return false;
	}
	if (!beside_can_preload(k->standin)) {
		snprintf(why, MPI_WHY, "LD_PRELOAD cannot name a folder with a blank or colon in "
			 "it: %.200s", k->standin);
		return false;
	}
	sys_memlock(&lock);
	if (lock.bound && lock.soft < PINNED) {
		snprintf(why, MPI_WHY, "RLIMIT_MEMLOCK is %s, and the stand-in pins up to %s: "
			 "raise it with ulimit -l or LimitMEMLOCK=",
			 util_human_bytes(is, lock.soft), util_human_bytes(least, PINNED));
		return false;
	}
	r->stage = "standin";
	snprintf(r->what, sizeof(r->what),
		 "the libraries' own caches over a stand-in device, in one process");
	snprintf(r->device, sizeof(r->device), "stand-in: io_uring's fixed buffers");
	return true;
}

void mpi_standin_command(const struct mpi_kedge *k, enum mpi_library library,
			 struct mpi_command *c)
{
	/* Faults of the process itself; the default would print a stack and wait. */
	mpi_set_soft(c, "UCX_HANDLE_ERRORS", "none");
	mpi_word(c, k->caches);
	mpi_word(c, library == MPI_UCX ? "ucx" : "libfabric");
}
