// SPDX-License-Identifier: BSD-2-Clause
/* Adapters of this machine, for tests of regions that run in a guest (tests/vm/rdma.sh). */
#include <stdio.h>
#include <stdlib.h>

#include <kedge/verbs.h>

__attribute__((constructor)) static void use(void)
{
	int rc = kedge_region_use_verbs();

	if (!rc)
		return;
	fprintf(stderr, "%s\n", kedge_strerror(rc));
	exit(1);
}
