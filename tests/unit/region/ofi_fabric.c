// SPDX-License-Identifier: BSD-2-Clause
/* Tests of regions by libfabric, over what every machine has. */
#include <stdio.h>
#include <stdlib.h>

#include <kedge/ofi.h>

__attribute__((constructor)) static void use(void)
{
	int rc = kedge_region_use_ofi("tcp", NULL);

	if (!rc)
		return;
	fprintf(stderr, "%s\n", kedge_strerror(rc));
	exit(1);
}
