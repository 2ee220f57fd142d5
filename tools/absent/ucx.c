// SPDX-License-Identifier: BSD-2-Clause
/* In the place of perf/side_ucx.c in a build without UCX's headers. */
#include "tools/perf/perf.h"

const struct perf_side *perf_ucx(void)
{
	return NULL;
}
