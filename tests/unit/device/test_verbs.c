// SPDX-License-Identifier: BSD-2-Clause
/*
 * The verbs device against a fake RDMA device. A real stack
 * is in tests/vm/verbs_device.c.
 */
#include "cases.h"
#include "base/base.h"
#include "device/device.h"
#include "fakes/faults.h"
#include "fakes/verbs.h"

#define PAGE 4096u

static char page[4 * PAGE] __attribute__((aligned(PAGE)));
static struct kedge_device *const before = (struct kedge_device *)0x1;

static void expect_refusal(const struct kedge_verbs_opts *opts, int rc)
{
	struct kedge_device *dev = before;

	assert_int_equal(kedge_device_open_verbs(&fake_pd, opts, &dev), rc);
	assert_ptr_equal(dev, before);
}

static int reg(struct kedge_device *dev, uint32_t access,
	       struct kedge_device_mr *mr)
{
	return device_reg(dev, page, PAGE, access, mr);
}

static struct kedge_device_attr attr_of(struct kedge_device *dev)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };

	assert_int_equal(kedge_device_query(dev, &attr), 0);
	return attr;
}

/* ---- open and close ---- */

static void open_undoes_every_step(void **state)
{
	struct kedge_verbs_opts o = { .size = sizeof(o),
				      .flags = KEDGE_VERBS_RELAXED_ORDERING,
				      .window_qp = &fake_qp };
	long live = fault_live();
	struct kedge_device *dev;
	int step, rc;

	for (step = 1;; step++) {
		dev = before;
		fault_at(step);
		rc = kedge_device_open_verbs(&fake_pd, &o, &dev);
		fault_at(0);
		if (!rc)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_ptr_equal(dev, before);
		assert_int_equal(fault_live(), live);
		assert_true(fake_clean());
	}
	/* context, lock, pages, their mark, a page that is tried, lock of the
	 * windows, device */
	assert_int_equal(step - 1, 7);
	kedge_device_close(dev);
	assert_int_equal(fault_live(), live);
}

/* The context alone has to be asked, registered with, or waited for. */
static void what_the_device_says_to_open_comes_back(void **state)
{
	struct kedge_verbs_opts o = { .size = sizeof(o),
				      .flags = KEDGE_VERBS_RELAXED_ORDERING };
	static const struct {
		enum fake_op op;
		int err, rc;
		const char *words;
	} cases[] = {
		{ FAKE_QUERY, EIO, -ENODEV, "fake0 is gone" },
		{ FAKE_QUERY, ENODEV, -ENODEV, "fake0 is gone" },
		{ FAKE_QUERY, EPERM, -EPERM, "error 1" },
		{ FAKE_REG, ENOSPC, -ENOSPC, "no room" },
		{ FAKE_REG, ENOMEM, -ENOMEM, "no memory to register" },
		{ FAKE_REG, ENETDOWN, -ENETDOWN, "error 100" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_refuse(cases[i].op, cases[i].err, 1);
		expect_refusal(&o, cases[i].rc);
		fake_words(cases[i].rc, cases[i].words);
		assert_true(fake_clean());
	}
}

static void bad_arguments_do_not_reach_the_device(void **state)
{
	struct {
		struct kedge_verbs_opts opts;
		uint64_t later;
	} newer = { .opts.size = sizeof(newer), .later = 1 };
	struct kedge_verbs_opts o = { .size = 31 }; /* 0.1 had 32 */
	struct kedge_device *dev = before;

	assert_int_equal(kedge_device_open_verbs(NULL, NULL, &dev), -EINVAL);
	assert_int_equal(kedge_device_open_verbs(&fake_pd, NULL, NULL),
			 -EINVAL);
	expect_refusal(&o, -EINVAL);
	expect_refusal(&newer.opts, -E2BIG);
	o = (struct kedge_verbs_opts){ .size = sizeof(o), .flags = 4 };
	expect_refusal(&o, -EINVAL);
	o = (struct kedge_verbs_opts){ .size = sizeof(o), .iova_offset = 512 };
	expect_refusal(&o, -EINVAL);
	assert_int_equal(fake.calls[FAKE_QUERY], 0);

	newer.later = 0;
	assert_int_equal(
		kedge_device_open_verbs(&fake_pd, &newer.opts, &dev), 0);
	kedge_device_close(dev);
}

static void limits_are_the_devices(void **state)
{
	struct kedge_verbs_opts o = { .chunk_len = 1u << 24 };
	struct kedge_device_attr attr;
	struct kedge_device *dev;
	struct kedge_device_mr mr;

	dev = fake_open(NULL);
	attr = attr_of(dev);
	assert_int_equal(attr.flags, KEDGE_DEVICE_PINS | KEDGE_DEVICE_EXACT);
	assert_int_equal(attr.max_len, 0);
	assert_int_equal(attr.max_regions, 0);
	assert_int_equal(attr.chunk_len, 2u << 20);
	assert_int_equal(attr.access, KEDGE_ACCESS_ALL);
	kedge_device_close(dev);

	fake.attr.orig_attr.max_mr_size = 2 * PAGE;
	fake.attr.orig_attr.max_mr = 7;
	fake.attr.orig_attr.atomic_cap = IBV_ATOMIC_NONE;
	/* Through the old verb as well. */
	fake.old = true;
	dev = fake_open(&o);
	attr = attr_of(dev);
	assert_int_equal(attr.max_len, 2 * PAGE);
	assert_int_equal(attr.max_regions, 7);
	assert_int_equal(attr.chunk_len, 2 * PAGE);
	assert_int_equal(attr.access,
			 KEDGE_ACCESS_ALL & ~KEDGE_ACCESS_REMOTE_ATOMIC);
	/* Refused, not cut. */
	assert_int_equal(device_reg(dev, page, 2 * PAGE + 1, 0, &mr), -E2BIG);
	assert_int_equal(reg(dev, KEDGE_ACCESS_REMOTE_ATOMIC, &mr),
			 -EOPNOTSUPP);
	assert_int_equal(fake.calls[FAKE_REG], 0);
	assert_int_equal(device_reg(dev, page, 2 * PAGE, 0, &mr), 0);
	device_dereg(dev, &mr);
	kedge_device_close(dev);

	fake.attr.orig_attr.max_mr_size = 0;
	dev = fake_open(&o);
	assert_int_equal(attr_of(dev).max_len, 0);
	assert_int_equal(attr_of(dev).chunk_len, 1u << 24);
	kedge_device_close(dev);
}

static void a_kernel_that_does_not_copy_at_fork_is_told(void **state)
{
	fake.fork = IBV_FORK_ENABLED;
	kedge_device_close(fake_open(NULL));
	assert_int_equal(fake_log_cnt, 0);
	fake.fork = IBV_FORK_DISABLED;
	kedge_device_close(fake_open(NULL));
	assert_int_equal(fake_log_cnt, 1);
	assert_non_null(strstr(fake_logged, "ibv_fork_init()"));
}

/* ---- registrations ---- */

static void a_region_is_what_was_asked_for(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;
	uint64_t at = (uintptr_t)page + 100;

	assert_int_equal(device_reg(dev, page + 100, 50,
				    KEDGE_ACCESS_REMOTE_READ, &mr), 0);
	assert_int_equal(fake.access, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(mr.offset, at);
	assert_true(fake_peer(fake_rkey(&mr), at, 50, IBV_ACCESS_REMOTE_READ));
	assert_false(fake_peer(fake_rkey(&mr), at, 51, IBV_ACCESS_REMOTE_READ));
	assert_false(fake_peer(fake_rkey(&mr), at - 1, 1,
			       IBV_ACCESS_REMOTE_READ));
	assert_false(fake_peer(fake_rkey(&mr), at, 1, IBV_ACCESS_REMOTE_WRITE));
	device_dereg(dev, &mr);
	assert_int_equal(fake.regs, 0);
	assert_false(fake_peer(fake_rkey(&mr), at, 1, IBV_ACCESS_REMOTE_READ));
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 0);
}

static void access_is_what_the_verbs_call_it(void **state)
{
	static const struct {
		uint32_t asked;
		unsigned int got;
	} cases[] = {
		{ 0, 0 },
		{ KEDGE_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE },
		{ KEDGE_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ },
		{ KEDGE_ACCESS_REMOTE_WRITE,
		  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE },
		{ KEDGE_ACCESS_REMOTE_ATOMIC,
		  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE },
		{ KEDGE_ACCESS_ALL,
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC },
	};
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(reg(dev, cases[i].asked, &mr), 0);
		assert_int_equal(fake.access, cases[i].got);
		device_dereg(dev, &mr);
	}
	kedge_device_close(dev);
}

static void keys_and_address_are_found_again(void **state)
{
	struct kedge_verbs_opts o = { .iova_offset = UINT64_MAX - PAGE + 1 };
	struct kedge_device *dev = fake_open(&o);
	struct kedge_device_mr mr;
	struct kedge_mr got;

	assert_int_equal(device_reg(dev, page + 8, 100,
				    KEDGE_ACCESS_REMOTE_READ, &mr), 0);
	got = (struct kedge_mr){ .addr = (uintptr_t)page + 8,
				 .device_handle = mr.handle,
				 .offset = mr.offset };
	/* The first key is 0, as a device's may be. */
	assert_int_equal(kedge_verbs_lkey(&got), 0);
	assert_int_equal(kedge_verbs_rkey(&got), 1);
	assert_int_equal(kedge_verbs_iova(&got, page + 10),
			 (uintptr_t)page + 10 - PAGE);
	assert_true(fake_peer(1, (uintptr_t)page + 8 - PAGE, 100,
			      IBV_ACCESS_REMOTE_READ));
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void bad_ranges_do_not_reach_the_device(void **state)
{
	struct kedge_verbs_opts o = { .iova_offset =
					      -(uint64_t)(uintptr_t)page -
					      PAGE };
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr;

	assert_int_equal(device_reg(dev, page, 0, 0, &mr), -EINVAL);
	assert_int_equal(device_reg(dev, page, SIZE_MAX, 0, &mr), -EINVAL);
	assert_int_equal(device_reg(dev, page, PAGE, 16, &mr), -EINVAL);
	kedge_device_close(dev);
	/* The iova wraps. */
	dev = fake_open(&o);
	assert_int_equal(device_reg(dev, page, 2 * PAGE, 0, &mr), -EINVAL);
	assert_int_equal(fake.calls[FAKE_REG], 0);
	kedge_device_close(dev);
}

static void options_that_the_device_lacks_are_left_out(void **state)
{
	const unsigned int ro = IBV_ACCESS_RELAXED_ORDERING;
	const unsigned int odp = IBV_ACCESS_ON_DEMAND;
	static const struct {
		bool has_odp;
		unsigned int lacks, got;
	} cases[] = {
		{ true, 0, IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_ON_DEMAND },
		{ false, 0, IBV_ACCESS_RELAXED_ORDERING },
		{ true, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_RELAXED_ORDERING },
		{ true, IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ false, IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ true, IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_ON_DEMAND,
		  IBV_ACCESS_RELAXED_ORDERING },
	};
	struct kedge_verbs_opts o = { .flags = KEDGE_VERBS_RELAXED_ORDERING |
					       KEDGE_VERBS_ODP };
	struct kedge_device_mr mr;
	struct kedge_device *dev;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake.lacks = cases[i].lacks;
		fake.lacks_err = i % 2 ? EINVAL : EOPNOTSUPP;
		fake.attr.odp_caps.general_caps =
			cases[i].has_odp ? IBV_ODP_SUPPORT : 0;
		dev = fake_open(&o);
		assert_int_equal(!(attr_of(dev).flags & KEDGE_DEVICE_PINS),
				 !!(cases[i].got & odp));
		assert_int_equal(reg(dev, 0, &mr), 0);
		assert_int_equal(fake.access & (ro | odp), cases[i].got);
		device_dereg(dev, &mr);
		kedge_device_close(dev);
	}
	assert_int_equal(fake_log_cnt, 0);
}

static void demand_paged_regions_are_prefetched(void **state)
{
	struct kedge_verbs_opts o = { .flags = KEDGE_VERBS_ODP };
	uint64_t len = (UINT64_C(5) << 29) + 10;
	struct kedge_device_mr mr;
	struct kedge_device *dev;

	fake.attr.odp_caps.general_caps = IBV_ODP_SUPPORT;
	dev = fake_open(&o);
	assert_int_equal(device_reg(dev, page, len, KEDGE_ACCESS_LOCAL_WRITE,
				    &mr), 0);
	assert_int_equal(fake.calls[FAKE_ADVISE], 3);
	assert_int_equal(fake.advised, len);
	assert_int_equal(fake.advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
	device_dereg(dev, &mr);
	/* A failure is no harm, and not repeated for the rest. */
	fake_refuse(FAKE_ADVISE, EFAULT, 100);
	assert_int_equal(device_reg(dev, page, len, 0, &mr), 0);
	assert_int_equal(fake.calls[FAKE_ADVISE], 4);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 0);
}

/* ---- what cannot be ended ---- */

static void a_lost_region_is_tried_again(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr a, b, c;

	assert_int_equal(reg(dev, KEDGE_ACCESS_REMOTE_READ, &a), 0);
	assert_int_equal(reg(dev, KEDGE_ACCESS_REMOTE_READ, &b), 0);
	fake_refuse(FAKE_DEREG, EBUSY, 3);
	device_dereg(dev, &a);
	assert_int_equal(fake_log_cnt, 1);
	assert_non_null(strstr(fake_logged, "error 16, a window"));
	device_dereg(dev, &b);
	assert_int_equal(fake_log_cnt, 2);
	/* The first fails again, then each reg ends one. */
	assert_int_equal(reg(dev, 0, &c), 0);
	assert_int_equal(fake.regs, 3);
	device_dereg(dev, &c);
	assert_int_equal(reg(dev, 0, &c), 0);
	assert_int_equal(fake.regs, 2);
	device_dereg(dev, &c);
	assert_int_equal(reg(dev, 0, &c), 0);
	assert_int_equal(fake.regs, 1);
	device_dereg(dev, &c);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 2);
}

static void the_close_ends_what_is_lost(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr[3];
	int i;

	for (i = 0; i < 3; i++)
		assert_int_equal(reg(dev, 0, &mr[i]), 0);
	/* -1 and errno, or a negative one, as some providers have it. */
	for (i = 0; i < 3; i++) {
		fake_refuse(FAKE_DEREG, i == 1 ? -EAGAIN : -1, 1);
		device_dereg(dev, &mr[i]);
		assert_non_null(strstr(fake_logged, i == 1 ? "error 11)"
							    : "error 16,"));
	}
	assert_int_equal(fake.regs, 3);
	assert_int_equal(fake_log_cnt, 3);
	fake_refuse(FAKE_DEREG, EINVAL, 1);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 4);
	assert_non_null(strstr(fake_logged, "1 registrations on fake0"));
	assert_int_equal(fake.regs, 1);
	fake.regs = 0;
}

static void what_a_removed_device_had_is_gone(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr a, b, c;

	assert_int_equal(reg(dev, 0, &a), 0);
	assert_int_equal(reg(dev, 0, &b), 0);
	/* EIO of a device that is there is none of that. */
	fake_refuse(FAKE_DEREG, EIO, 1);
	device_dereg(dev, &a);
	assert_non_null(strstr(fake_logged, "error 5"));
	assert_int_equal(fake_log_cnt, 1);
	fake.removed = true;
	assert_int_equal(reg(dev, 0, &c), -ENODEV);
	fake_words(-ENODEV, "fake0 is gone");
	assert_int_equal(fake_log_cnt, 2);
	device_dereg(dev, &b);
	assert_int_equal(reg(dev, 0, &c), -ENODEV);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 2);
	fake.regs = 0;
}

/* ---- threads and processes ---- */

static void a_forked_child_leaves_the_device_alone(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	struct kedge_device_mr mr, lost, other;
	int status;
	pid_t pid;

	assert_int_equal(reg(dev, 0, &mr), 0);
	assert_int_equal(reg(dev, 0, &lost), 0);
	fake_refuse(FAKE_DEREG, EBUSY, 1);
	device_dereg(dev, &lost);
	memset(fake.calls, 0, sizeof(fake.calls));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		status = reg(dev, 0, &other) != -ECHILD;
		device_dereg(dev, &mr);
		kedge_device_close(dev);
		_exit(status || fake.calls[FAKE_REG] || fake.calls[FAKE_DEREG]);
	}
	ended_well(pid);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void *churn(void *arg)
{
	struct kedge_device *dev = arg;
	struct kedge_device_mr mr;
	int i;

	for (i = 0; i < 5000; i++)
		if (!reg(dev, KEDGE_ACCESS_REMOTE_READ, &mr))
			device_dereg(dev, &mr);
	return NULL;
}

/* Some endings fail, some are retried by another thread: none is forgotten. */
static void threads_share_the_lost(void **state)
{
	struct kedge_device *dev = fake_open(NULL);
	pthread_t thread[4];

	fake_refuse(FAKE_DEREG, EBUSY, 1000);
	fake.skip = 3000;
	run_threads(thread, 4, churn, dev, 0);
	join_threads(thread, 4);
	kedge_device_close(dev);
	assert_int_equal(fake.regs, 0);
	assert_true(fake_log_cnt > 0);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, fake_setup, fake_teardown)
#include "test_verbs.cases.h"
