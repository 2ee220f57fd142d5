// SPDX-License-Identifier: BSD-2-Clause
/* In the place of cache_ucx.c in a build without UCX's headers. */
#include "tools/bench/cache.h"

const struct side *side_ucx(void)
{
	return NULL;
}
