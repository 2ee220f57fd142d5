// SPDX-License-Identifier: BSD-2-Clause
/*
 * The verbs device against an RDMA device made of paper. What a real stack does
 * is in tests/vm/verbs_device.c.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <kedge/verbs.h>

#include "base/base.h"
#include "device/device.h"
#include "faults.h"
#include "verbs_paper.h"

#define PAGE 4096u

static char page[4 * PAGE] __attribute__((aligned(PAGE)));
static struct kedge_device *const before = (struct kedge_device *)0x1;

static int setup(void **state)
{
	paper_log_start();
	paper_reset();
	return 0;
}

static int teardown(void **state)
{
	return paper_clean() ? 0 : -1;
}

static struct kedge_device *open_with(const struct kedge_verbs_opts *opts)
{
	struct kedge_verbs_opts o = { .size = sizeof(o) };
	struct kedge_device *dev = NULL;

	if (opts) {
		o = *opts;
		o.size = sizeof(o);
	}
	assert_int_equal(kedge_device_open_verbs(&paper_pd, &o, &dev), 0);
	return dev;
}

static void expect_refusal(const struct kedge_verbs_opts *opts, int rc)
{
	struct kedge_device *dev = before;

	assert_int_equal(kedge_device_open_verbs(&paper_pd, opts, &dev), rc);
	assert_ptr_equal(dev, before);
}

static void expect_words(int rc, const char *words)
{
	if (!strstr(kedge_strerror(rc), words))
		fail_msg("\"%s\" does not say \"%s\"", kedge_strerror(rc),
			 words);
}

static uint32_t rkey_of(const struct kedge_device_mr *mr)
{
	return (uint32_t)(mr->handle >> 32);
}

/* ---- open and close ---- */

static void open_undoes_every_step(void **state)
{
	struct kedge_verbs_opts o = { .size = sizeof(o),
				      .flags = KEDGE_VERBS_RELAXED_ORDERING,
				      .window_qp = &paper_qp };
	long live = fault_live();
	struct kedge_device *dev;
	int step, rc;

	for (step = 1;; step++) {
		dev = before;
		fault_at(step);
		rc = kedge_device_open_verbs(&paper_pd, &o, &dev);
		fault_at(0);
		if (!rc)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_ptr_equal(dev, before);
		assert_int_equal(fault_live(), live);
		assert_true(paper_clean());
	}
	/* context, locks, pages, their mark, device */
	assert_int_equal(step - 1, 5);
	kedge_device_close(dev);
	assert_int_equal(fault_live(), live);
}

/* ---- registrations ---- */

static void a_region_is_what_was_asked_for(void **state)
{
	struct kedge_device *dev = open_with(NULL);
	struct kedge_device_mr mr;
	uint64_t at = (uintptr_t)page + 100;

	assert_int_equal(device_reg(dev, page + 100, 50,
				    KEDGE_ACCESS_REMOTE_READ, &mr), 0);
	assert_int_equal(paper.access, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(mr.offset, at);
	assert_true(paper_peer(rkey_of(&mr), at, 50, IBV_ACCESS_REMOTE_READ));
	assert_false(paper_peer(rkey_of(&mr), at, 51, IBV_ACCESS_REMOTE_READ));
	assert_false(paper_peer(rkey_of(&mr), at - 1, 1,
				IBV_ACCESS_REMOTE_READ));
	assert_false(paper_peer(rkey_of(&mr), at, 1, IBV_ACCESS_REMOTE_WRITE));
	device_dereg(dev, &mr);
	assert_int_equal(paper.regs, 0);
	assert_false(paper_peer(rkey_of(&mr), at, 1, IBV_ACCESS_REMOTE_READ));
	kedge_device_close(dev);
	assert_int_equal(paper_log_cnt, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(open_undoes_every_step),
		TEST(a_region_is_what_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
