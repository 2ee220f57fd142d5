/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that was written for XPMEM: a window of memory that two processes share, as an MPI
 * library makes one. It knows <xpmem.h> and -lxpmem.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xpmem.h>

#define LEN 65536

static int reader(xpmem_segid_t segid)
{
	xpmem_apid_t apid = xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL);
	struct xpmem_addr addr = { apid, 4096 };
	char *p;

	if (apid <= 0)
		return 2;
	p = (char *)xpmem_attach(addr, 100, NULL);
	if (p == (void *)-1)
		return 3;
	if (strcmp(p, "from the owner"))
		return 4;
	strcpy(p, "from the peer");
	return xpmem_detach(p) || xpmem_release(apid);
}

int main(void)
{
	char *window = aligned_alloc(4096, LEN);
	xpmem_segid_t segid;
	int to[2], status;
	pid_t pid;

	if (xpmem_version() < 0 || !window || pipe(to))
		return 1;
	memset(window, 0, LEN);
	/* Another program in all but its text. */
	pid = fork();
	if (!pid)
		_exit(read(to[0], &segid, sizeof(segid)) == sizeof(segid) ? reader(segid) : 1);
	strcpy(window + 4096, "from the owner");
	segid = xpmem_make(window, LEN, XPMEM_PERMIT_MODE, (void *)0600);
	if (segid <= 0) {
		perror("xpmem_make");
		return 77;
	}
	if (write(to[1], &segid, sizeof(segid)) != sizeof(segid) ||
	    waitpid(pid, &status, 0) != pid || status)
		return 5;
	return strcmp(window + 4096, "from the peer") || xpmem_remove(segid);
}
