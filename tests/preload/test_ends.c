// SPDX-License-Identifier: BSD-2-Clause
/* Domains and devices that go, with and without regions in use. */
#include "test_preload.h"

void a_domain_is_busy_while_it_has_regions(void **state)
{
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *a = ibv_reg_mr(other, area, PAGE, LW);
	struct ibv_mr *b = ibv_reg_mr(other, area + PAGE, PAGE, LW | RW);

	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	dereg(a);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	dereg(b);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	assert_int_equal(fake->regs, 0);
}

void an_imported_domain_is_let_go(void **state)
{
	struct ibv_pd *other = ibv_import_pd(context, 0);

	dereg(ibv_reg_mr(other, area, PAGE, LW));
	assert_int_equal(fake->regs, kept(0, 1));
	ibv_unimport_pd(other);
	assert_int_equal(fake->regs, 0);
}

void a_device_is_closed_with_all_that_is_kept(void **state)
{
	struct ibv_context *c = open_fake();
	struct ibv_pd *p = ibv_alloc_pd(c);

	dereg(ibv_reg_mr(p, area, PAGE, LW));
	assert_int_equal(fake->regs, kept(0, 1));
	assert_int_equal(ibv_close_device(c), 0);
	assert_int_equal(fake->leaked, 0);
	assert_int_equal(fake->regs, 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

/* Memory that another domain may get, and here does. */
void a_device_is_closed_with_regions_in_use(void **state)
{
	struct ibv_context *c = open_fake();
	struct ibv_pd *p = ibv_alloc_pd(c);
	struct ibv_mr *a = ibv_reg_mr(p, area, PAGE, LW);
	struct ibv_mr *b = ibv_reg_mr(p, area + 2 * PAGE, PAGE, LW | RW);
	struct ibv_mr *mr;
	int made;

	dereg(ibv_reg_mr(p, area + 32 * PAGE, PAGE, LW));
	assert_int_equal(fake->regs, kept(2, 3));
	assert_int_equal(ibv_close_device(c), 0);
	/* The program's own fault, and no more than that. */
	assert_int_equal(fake->leaked, 2);
	fake->leaked = 0;
	assert_int_equal(fake->regs, 0);

	p->context = context;
	made = regs_made();
	mr = ibv_reg_mr(p, area, PAGE, LW);
	assert_non_null(mr);
	assert_int_equal(regs_made(), made + 1);
	assert_ptr_equal(mr->context, context);
	dereg(mr);

	/* Without kedge these would be gone with their device. */
	if (mode != PLAIN) {
		dereg(a);
		dereg(b);
	}
	assert_int_equal(fake->regs, kept(0, 1));
	assert_int_equal(ibv_dealloc_pd(p), 0);
}

void an_imported_domain_goes_with_regions_in_use(void **state)
{
	struct ibv_context *c = open_fake();
	struct ibv_pd *p = ibv_import_pd(context, 0);
	struct ibv_mr *a = ibv_reg_mr(p, area, PAGE, LW);

	dereg(ibv_reg_mr(p, area + 32 * PAGE, PAGE, LW));
	ibv_unimport_pd(p);
	assert_int_equal(fake->regs, 1);

	/* Its memory comes again, on another device. */
	p->context = c;
	dereg(ibv_reg_mr(p, area, PAGE, LW));
	assert_int_equal(fake->regs, kept(1, 2));
	assert_int_equal(ibv_close_device(c), 0);
	assert_int_equal(fake->leaked, 0);
	assert_int_equal(fake->regs, 1);
	dereg(a);
	assert_int_equal(fake->regs, 0);
	assert_int_equal(ibv_dealloc_pd(p), 0);
}
