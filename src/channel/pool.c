// SPDX-License-Identifier: BSD-2-Clause
#include "channel/pool.h"

void pool_close(struct pool_landing *p)
{
	(void)p;
}
