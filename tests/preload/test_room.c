// SPDX-License-Identifier: BSD-2-Clause
/* Adapters that have no room for another region. */
#include "test_preload.h"

/* Adapters that are full say the one or the other. */
static const int full_errs[] = { ENOMEM, ENOSPC };

static void fill_with_kept(void)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		dereg(reg(area + 2 * i * PAGE, PAGE, LW));
	assert_int_equal(fake->regs, kept(0, 8));
}

static void alone(struct ibv_mr *mr)
{
	assert_non_null(mr);
	assert_int_equal(fake->regs, 1);
	dereg(mr);
}

/* Registrations that the cache has no part of, by each call. */
void what_is_kept_makes_room_for_others(void **state)
{
	unsigned int i;

	fake->max = 8;
	for (i = 0; i < 2; i++) {
		fake->full = full_errs[i];
		fill_with_kept();
		alone(ibv_reg_mr(pd, area, PAGE, LW | IBV_ACCESS_MW_BIND));
		fill_with_kept();
		alone(ibv_reg_mr_iova(pd, area, PAGE, 12345, LW));
		fill_with_kept();
		alone(ibv_reg_mr_iova2(pd, area, PAGE, 12345, LW));
	}
	fake->max = fake->full = 0;
}

/* An error that is no want of room leaves what is kept alone. */
void another_error_flushes_nothing(void **state)
{
	fill_with_kept();
	fake->reg_err = EPERM;
	fake->reg_times = 1;
	refused_with(area, PAGE, LW | IBV_ACCESS_MW_BIND, EPERM);
	assert_int_equal(fake->regs, kept(0, 8));
}

void what_is_kept_makes_room(void **state)
{
	int i;

	fake->max = 8;
	fill_with_kept();
	/* One that the cache has no part of. */
	alone(reg(area, PAGE, LW | IBV_ACCESS_MW_BIND));
	for (i = 0; i < 100; i++)
		dereg(reg(area + (unsigned int)i % 60 * PAGE, PAGE, LW));
	fake->max = 0;
}

void who_holds_all_is_told_so(void **state)
{
	struct ibv_mr *mr[2];
	unsigned int i;

	fake->max = 2;
	for (i = 0; i < 2; i++) {
		fake->full = full_errs[i];
		mr[0] = reg(area, PAGE, LW);
		mr[1] = reg(area + 2 * PAGE, PAGE, LW);
		refused_with(area + 4 * PAGE, PAGE, LW, full_errs[i]);
		dereg(mr[0]);
		dereg(reg(area + 4 * PAGE, PAGE, LW));
		dereg(mr[1]);
	}
	fake->max = fake->full = 0;
}
