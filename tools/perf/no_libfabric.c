// SPDX-License-Identifier: BSD-2-Clause
/* In the place of side_libfabric.c in a build without libfabric's headers. */
#include "tools/perf/perf.h"

const struct perf_side *perf_libfabric(void)
{
	return NULL;
}
