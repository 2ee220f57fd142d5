// SPDX-License-Identifier: BSD-2-Clause
/* The report of what regions can have: the tightest of the limits that hold. */
#include "base/base.h"
#include "base/process/cancel.h"
#include "region/internal.h"
#include "region/keeper.h"
#include "region/limits.h"

#define BUDGET_V1 STRUCT_END(struct kedge_region_budget, free)

static void tighter(struct kedge_region_budget *b, const struct limit *l)
{
	if (l->free < b->free) {
		b->free = l->free;
		b->bound = l->bound;
	}
}

static int read_limits(void *b)
{
	struct limit l;

	limit_memlock(&l);
	tighter(b, &l);
	limit_memory(&l);
	tighter(b, &l);
	return 0;
}

KEDGE_API int kedge_region_budget(struct kedge_region_budget *user)
{
	struct kedge_region_budget b = { .size = sizeof(b) };

	NO_CANCEL();
	if (!user)
		return kedge_reason(-EINVAL, "the result is NULL");
	region_adopt();
	b.limit = budget_limit();
	b.used = budget_used();
	b.free = b.used < b.limit ? b.limit - b.used : 0;
	b.bound = KEDGE_BOUND_BUDGET;
	/* A process that may have no thread more reads them by descriptors of its own. */
	if (keeper_use()) {
		read_limits(&b);
	} else {
		if (keeper_call(read_limits, &b))
			read_limits(&b);
		keeper_unuse();
	}
	return kedge__info_copy(user, BUDGET_V1, &b, sizeof(b));
}
