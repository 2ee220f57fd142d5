// SPDX-License-Identifier: BSD-2-Clause
/* The adapter's functions that this process uses. */
#include "region/fabric/fabric.h"

static const struct fabric *_Atomic used;

const struct fabric *fabric(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

KEDGE_PRIVATE int kedge__region_fabric(const struct fabric *f)
{
	const struct fabric *was = NULL;

	if (!f)
		atomic_store(&used, f);
	else if (!atomic_compare_exchange_strong(&used, &was, f) && was != f)
		return kedge_reason(-EBUSY, "this process reaches regions by another library "
				    "already: kedge_region_use_verbs() or kedge_region_use_ofi()");
	return 0;
}
