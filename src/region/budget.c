// SPDX-License-Identifier: BSD-2-Clause
/* The budget: bytes that all regions of this process have, and may have, together. */
#include <inttypes.h>
#include <stdatomic.h>

#include "base/base.h"
#include "region/internal.h"

#define MiB 20

static _Atomic uint64_t used;
static _Atomic uint64_t limit = UINT64_MAX;

void budget_forget(void)
{
	atomic_store(&used, 0);
}

/* One number alone: any memory order will do. */
bool budget_take(uint64_t len)
{
	/* Once: with two limits the difference below could wrap. */
	const uint64_t max = atomic_load(&limit);
	uint64_t was = atomic_load(&used);

	do {
		if (len > max || was > max - len)
			return false;
	} while (!atomic_compare_exchange_weak(&used, &was, was + len));
	return true;
}

void budget_give(uint64_t len)
{
	atomic_fetch_sub(&used, len);
}

int budget_refuses(uint64_t len)
{
	const uint64_t max = atomic_load(&limit), now = atomic_load(&used);

	return kedge_reason(-EDQUOT, "the budget of regions is %" PRIu64 " MiB, %" PRIu64
			    " MiB of it are used, and %" PRIu64 " MiB (%" PRIu64
			    " bytes) were asked for: raise it with "
			    "kedge_region_budget_set()", max >> MiB, now >> MiB,
			    len >> MiB, len);
}

uint64_t budget_used(void)
{
	return atomic_load(&used);
}

uint64_t budget_limit(void)
{
	return atomic_load(&limit);
}

KEDGE_API void kedge_region_budget_set(uint64_t bytes)
{
	atomic_store(&limit, bytes);
}
