// SPDX-License-Identifier: BSD-2-Clause
/* Regions that are reached by RDMA. */
#include <kedge/verbs.h>

#include "tools/migrate/migrate.h"

int migrate_use_rdma(void)
{
	return kedge_region_use_verbs();
}
