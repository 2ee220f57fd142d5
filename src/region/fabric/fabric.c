// SPDX-License-Identifier: BSD-2-Clause
/* The adapter's functions that this process uses. */
#include "region/fabric/fabric.h"

static const struct fabric *_Atomic used;

const struct fabric *fabric(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

KEDGE_PRIVATE void kedge__region_fabric(const struct fabric *f)
{
	atomic_store_explicit(&used, f, memory_order_release);
}
