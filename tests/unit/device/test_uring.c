// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device against a fake kernel. The real one is
 * in test_uring_kernel.c.
 */
#include <kedge/uring.h>

#include "cases.h"
#include "base/base.h"
#include "device/device.h"
#include "fakes/uring.h"

#define PAGE 4096u

static char page[2 * PAGE] __attribute__((aligned(PAGE)));
static struct kedge_device *const before = (struct kedge_device *)0x1;

static int setup(void **state)
{
	fake_log_start();
	return fake_reset();
}

static struct kedge_device *open_with(uint32_t flags, uint32_t first,
				      uint32_t slots)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts),
					 .flags = flags,
					 .first_slot = first,
					 .slots = slots };
	struct kedge_device *dev = NULL;

	assert_int_equal(kedge_device_open_uring(&fake_ring, &opts, &dev), 0);
	return dev;
}

static void expect_refusal(const struct kedge_uring_opts *opts, int rc)
{
	struct kedge_device *dev = before;

	assert_int_equal(kedge_device_open_uring(&fake_ring, opts, &dev), rc);
	assert_ptr_equal(dev, before);
}

static int reg(struct kedge_device *dev, struct kedge_device_mr *mr)
{
	return device_reg(dev, page, PAGE, KEDGE_ACCESS_LOCAL_WRITE, mr);
}

static uint64_t slots_of(struct kedge_device *dev)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };

	assert_int_equal(kedge_device_query(dev, &attr), 0);
	return attr.max_regions;
}

static void expect_words(int rc, const char *words)
{
	if (!strstr(kedge_strerror(rc), words))
		fail_msg("\"%s\" does not say \"%s\"", kedge_strerror(rc),
			 words);
}

/* ---- open and close ---- */

static void open_undoes_every_step(void **state)
{
	struct kedge_device *dev;
	int step, rc;

	for (step = 1;; step++) {
		dev = before;
		fake_track(step);
		rc = kedge_device_open_uring(&fake_ring, NULL, &dev);
		if (!rc)
			break;
		assert_int_equal(fake_untrack(), 0);
		assert_int_equal(rc, -ENOMEM);
		assert_ptr_equal(dev, before);
		assert_int_equal(fake.nr, 0);
	}
	/* context, lock, page, its mark, descriptor, table, probe, stack,
	 * states, memory, device */
	assert_int_equal(step - 1, 11);
	fake_calm();
	kedge_device_close(dev);
	assert_int_equal(fake_untrack(), 0);
	assert_int_equal(fake.nr, 0);
}

static void bad_arguments_do_not_reach_the_kernel(void **state)
{
	struct {
		struct kedge_uring_opts opts;
		uint32_t later;
	} newer = { .opts.size = sizeof(newer), .later = 1 };
	struct kedge_uring_opts o = { .size = 15 }; /* 0.1 had 16 */
	struct kedge_device *dev = before;

	assert_int_equal(kedge_device_open_uring(NULL, NULL, &dev), -EINVAL);
	assert_int_equal(kedge_device_open_uring(&fake_ring, NULL, NULL),
			 -EINVAL);
	expect_refusal(&o, -EINVAL);
	expect_refusal(&newer.opts, -E2BIG);
	o = (struct kedge_uring_opts){ .size = sizeof(o), .flags = 4 };
	expect_refusal(&o, -EINVAL);
	o = (struct kedge_uring_opts){ .size = sizeof(o), .first_slot = 1 };
	expect_refusal(&o, -EINVAL);
	o = (struct kedge_uring_opts){ .size = sizeof(o),
				       .flags = KEDGE_URING_TABLE_EXISTS,
				       .first_slot = UINT32_MAX,
				       .slots = 2 };
	expect_refusal(&o, -EINVAL);
	assert_int_equal(fake.calls, 0);

	newer.later = 0;
	assert_int_equal(kedge_device_open_uring(&fake_ring, &newer.opts, &dev),
			 0);
	assert_int_equal(slots_of(dev), 16384);
	kedge_device_close(dev);
}

static void kernels_of_all_ages(void **state)
{
	struct kedge_device *dev;

	fake.no_sparse = true;
	dev = open_with(0, 0, 0);
	assert_int_equal(slots_of(dev), 16384);
	kedge_device_close(dev);
	assert_int_equal(fake.nr, 0);

	fake.max = 1024;
	dev = open_with(0, 0, 0);
	assert_int_equal(slots_of(dev), 1024);
	kedge_device_close(dev);

	fake.no_empty = true;
	expect_refusal(NULL, -EOPNOTSUPP);
	expect_words(-EOPNOTSUPP, "5.13");

	fake.no_sparse = false;
	fake.no_update = true;
	expect_refusal(NULL, -EOPNOTSUPP);
	assert_int_equal(fake.nr, 0);
}

static void a_table_too_large_is_refused(void **state)
{
	struct kedge_uring_opts o = { .size = sizeof(o), .slots = 16385 };

	expect_refusal(&o, -EINVAL);
	expect_words(-EINVAL, "16385");
	o.slots = UINT32_MAX;
	expect_refusal(&o, -EINVAL);
	fake.no_sparse = true;
	o.slots = 16385;
	expect_refusal(&o, -EINVAL);
}

static void what_the_kernel_says_to_open_comes_back(void **state)
{
	static const struct {
		int kernel, rc;
		const char *words;
	} cases[] = {
		{ -EBUSY, -EBUSY, "KEDGE_URING_TABLE_EXISTS" },
		{ -ENOMEM, -ENOMEM, "16384 slots" },
		{ -EEXIST, -EEXIST, "IORING_SETUP_SINGLE_ISSUER" },
		{ -EACCES, -EACCES, "restrictions" },
		{ -EPERM, -EPERM, "seccomp" },
		{ -EBADF, -EBADF, "closed" },
		{ -EOPNOTSUPP, -EBADF, "closed" },
		{ -EIO, -EIO, "error 5" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_refuse(IORING_REGISTER_BUFFERS2, cases[i].kernel, 1);
		expect_refusal(NULL, cases[i].rc);
		expect_words(cases[i].rc, cases[i].words);
		assert_int_equal(fake.nr, 0);
	}
}

static void a_closed_ring_is_refused(void **state)
{
	int fd = fake_ring.ring_fd;

	close(fd);
	expect_refusal(NULL, -EBADF);
	assert_int_equal(fake.calls, 0);
	fake_ring.ring_fd = -1;
	fake_ring.enter_ring_fd = -1;
	expect_refusal(NULL, -EBADF);
}

static void the_slots_of_a_table_are_counted(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 7, 1000, 16384, 19999 };
	struct kedge_device *dev;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		fake.nr = sizes[i];
		dev = open_with(KEDGE_URING_TABLE_EXISTS, 0, 0);
		assert_int_equal(slots_of(dev), sizes[i]);
		kedge_device_close(dev);
		dev = open_with(KEDGE_URING_TABLE_EXISTS, sizes[i] - 1, 0);
		assert_int_equal(slots_of(dev), 1);
		kedge_device_close(dev);
		assert_int_equal(fake.nr, sizes[i]);
	}
}

static void slots_outside_the_table_are_refused(void **state)
{
	struct kedge_uring_opts o = { .size = sizeof(o),
				      .flags = KEDGE_URING_TABLE_EXISTS };

	expect_refusal(&o, -EINVAL);
	expect_words(-EINVAL, "no buffer table");
	fake.nr = 8;
	o.slots = 9;
	expect_refusal(&o, -EINVAL);
	o.slots = 2;
	o.first_slot = 7;
	expect_refusal(&o, -EINVAL);
	expect_words(-EINVAL, "slot 8 ");
	o.slots = 1;
	o.first_slot = UINT32_MAX;
	expect_refusal(&o, -EINVAL);
	fake.no_update = true;
	o.first_slot = 0;
	expect_refusal(&o, -EOPNOTSUPP);
}

static void close_empties_our_slots_and_no_other(void **state)
{
	struct kedge_device_mr mr[3];
	struct kedge_device *dev;
	int i;

	fake.nr = 6;
	for (i = 0; i < 6; i++)
		fake.slot[i] = &fake_ring;
	dev = open_with(KEDGE_URING_TABLE_EXISTS, 2, 3);
	/* Opening touched nothing. */
	for (i = 0; i < 6; i++)
		assert_ptr_equal(fake.slot[i], &fake_ring);
	for (i = 0; i < 3; i++) {
		assert_int_equal(reg(dev, &mr[i]), 0);
		assert_int_equal(mr[i].handle, 2 + i);
		assert_ptr_equal(fake.slot[2 + i], page);
	}
	assert_int_equal(reg(dev, &mr[0]), -ENOSPC);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	device_dereg(dev, &mr[1]);
	kedge_device_close(dev);
	for (i = 0; i < 6; i++)
		assert_ptr_equal(fake.slot[i],
				 i < 2 || i > 4 ? &fake_ring : NULL);
	assert_int_equal(fake.nr, 6);
}

/* ---- registrations ---- */

static void a_registration_fills_its_slot(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 4);
	struct kedge_device_mr mr;

	assert_int_equal(reg(dev, &mr), 0);
	assert_ptr_equal(fake.slot[mr.handle], page);
	assert_int_equal(mr.offset, (uintptr_t)page);
	device_dereg(dev, &mr);
	assert_null(fake.slot[mr.handle]);
	kedge_device_close(dev);
	assert_int_equal(fake.nr, 0);
	assert_int_equal(fake_log_cnt, 0);
}

static void bad_ranges_do_not_reach_the_kernel(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 4);
	struct kedge_device_mr mr;
	int calls = fake.calls;

	assert_int_equal(device_reg(dev, page, 0, 0, &mr), -EINVAL);
	assert_int_equal(device_reg(dev, page, SIZE_MAX, 0, &mr), -EINVAL);
	assert_int_equal(device_reg(dev, page, PAGE, 16, &mr), -EINVAL);
	assert_int_equal(device_reg(dev, page, PAGE, KEDGE_ACCESS_REMOTE_READ,
				    &mr),
			 -EOPNOTSUPP);
	assert_int_equal(device_reg(dev, page, PAGE, KEDGE_ACCESS_ALL, &mr),
			 -EOPNOTSUPP);
	assert_int_equal(device_reg(dev, page, (1u << 30) + 1, 0, &mr), -E2BIG);
	assert_int_equal(device_reg(dev, NULL, PAGE, 0, &mr), -EFAULT);
	assert_int_equal(fake.calls, calls);
	kedge_device_close(dev);
}

static void what_the_kernel_says_to_reg_comes_back(void **state)
{
	static const struct {
		int kernel, rc;
		const char *words;
	} cases[] = {
		{ -ENOMEM, -ENOMEM, "" },
		{ -EFAULT, -EFAULT, "cannot be pinned" },
		{ -EOVERFLOW, -EFAULT, "cannot be pinned" },
		{ -EOPNOTSUPP, -EOPNOTSUPP, "kind of memory" },
		{ -EEXIST, -EEXIST, "IORING_SETUP_SINGLE_ISSUER" },
		{ -EACCES, -EACCES, "restrictions" },
		{ -ENOSYS, -ENOSYS, "seccomp" },
		{ -EBADF, -EBADF, "closed" },
		{ -ENXIO, -EBADF, "replaced" },
		{ -EINVAL, -EOPNOTSUPP, "different files" },
		{ -EIO, -EIO, "error 5" },
	};
	struct kedge_device *dev = open_with(0, 0, 1);
	struct kedge_device_mr mr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, cases[i].kernel, 1);
		assert_int_equal(reg(dev, &mr), cases[i].rc);
		expect_words(cases[i].rc, cases[i].words);
		/* The only slot is back. */
		assert_int_equal(reg(dev, &mr), 0);
		device_dereg(dev, &mr);
	}
	/* A table that is not there refuses the question about the slot, too. */
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EINVAL, 2);
	assert_int_equal(reg(dev, &mr), -EBADF);
	expect_words(-EBADF, "replaced");
	/* Neither done nor refused: who knows what is in the slot? */
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, 0, 1);
	assert_int_equal(reg(dev, &mr), -EIO);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(dev, &mr), -ENOSPC);
	assert_int_equal(reg(dev, &mr), 0);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void a_signal_repeats_the_call(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 1);
	struct kedge_device_mr mr;

	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EINTR, 3);
	assert_int_equal(reg(dev, &mr), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EINTR, 3);
	device_dereg(dev, &mr);
	assert_null(fake.slot[mr.handle]);
	fake_refuse(IORING_UNREGISTER_BUFFERS, -EINTR, 3);
	kedge_device_close(dev);
	assert_int_equal(fake.nr, 0);
	assert_int_equal(fake_log_cnt, 0);
}

static void a_full_table_has_no_room(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 3);
	struct kedge_device_mr mr[3], more;
	int round, i;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < 3; i++)
			assert_int_equal(reg(dev, &mr[i]), 0);
		assert_int_equal(reg(dev, &more), -ENOSPC);
		expect_words(-ENOSPC, "are in use: hold fewer");
		device_dereg(dev, &mr[1]);
		assert_int_equal(reg(dev, &mr[1]), 0);
		for (i = 0; i < 3; i++)
			device_dereg(dev, &mr[i]);
	}
	kedge_device_close(dev);
}

static void a_slot_that_is_not_emptied_is_not_reused(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 2);
	struct kedge_device_mr a, b, c;

	assert_int_equal(reg(dev, &a), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1000);
	device_dereg(dev, &a);
	assert_int_equal(fake_log_cnt, 1);
	assert_non_null(strstr(fake_logged, "did not empty buffer slot 0"));
	assert_ptr_equal(fake.slot[a.handle], page);

	/* Its emptying fails again, then the other slot is taken. */
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(dev, &b), 0);
	assert_int_not_equal(b.handle, a.handle);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(dev, &c), -ENOSPC);
	assert_ptr_equal(fake.slot[a.handle], page);

	/* The kernel relents: emptied first, then filled anew. */
	assert_int_equal(reg(dev, &c), 0);
	assert_int_equal(c.handle, a.handle);
	assert_int_equal(fake_log_cnt, 1);
	device_dereg(dev, &b);
	device_dereg(dev, &c);
	kedge_device_close(dev);
}

static void a_second_dereg_harms_nobody(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 2);
	struct kedge_device_mr a, b, wild = { .handle = 77, .priv = 77 };

	assert_int_equal(reg(dev, &a), 0);
	device_dereg(dev, &a);
	device_dereg(dev, &a);
	device_dereg(dev, &wild);
	assert_int_equal(fake_log_cnt, 2);
	assert_int_equal(reg(dev, &a), 0);
	assert_int_equal(reg(dev, &b), 0);
	assert_int_not_equal(a.handle, b.handle);
	assert_int_equal(reg(dev, &wild), -ENOSPC);
	device_dereg(dev, &a);
	device_dereg(dev, &b);
	kedge_device_close(dev);
}

static void a_table_taken_away_leaves_nothing_to_empty(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 2);
	struct kedge_device_mr mr;

	assert_int_equal(reg(dev, &mr), 0);
	fake.nr = 0;
	device_dereg(dev, &mr);
	assert_int_equal(reg(dev, &mr), -EBADF);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 0);
}

static void a_failing_close_is_logged(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 2);
	struct kedge_device_mr mr;

	fake_refuse(IORING_UNREGISTER_BUFFERS, -EEXIST, 1);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 1);

	dev = open_with(KEDGE_URING_TABLE_EXISTS, 0, 2);
	assert_int_equal(reg(dev, &mr), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EEXIST, 1);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 2);
	assert_non_null(strstr(fake_logged, "1 buffer slots"));
}

/* ---- threads and processes ---- */

static void *reg_elsewhere(void *arg)
{
	struct kedge_device_mr mr;

	return (void *)(intptr_t)reg(arg, &mr);
}

static void a_ring_without_descriptor_is_one_threads(void **state)
{
	struct kedge_device_mr mr;
	struct kedge_device *dev;
	void *rc;

	close(fake_ring.ring_fd);
	fake_ring.ring_fd = -1;
	fake_ring.enter_ring_fd = FAKE_RING_INDEX;
	dev = open_with(0, 0, 2);
	assert_int_equal(reg(dev, &mr), 0);
	rc = in_thread(reg_elsewhere, dev);
	assert_int_equal((int)(intptr_t)rc, -EEXIST);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
	assert_int_equal(fake.nr, 0);
}

static void a_forked_child_leaves_the_ring_alone(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 2);
	struct kedge_device_mr mr, other;
	int calls, status;
	pid_t pid;

	assert_int_equal(reg(dev, &mr), 0);
	calls = fake.calls;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		status = reg(dev, &other) != -ECHILD;
		device_dereg(dev, &mr);
		kedge_device_close(dev);
		_exit(status || fake.calls != calls);
	}
	ended_well(pid);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void *churn(void *arg)
{
	struct kedge_device *dev = arg;
	struct kedge_device_mr mr;
	intptr_t done = 0;
	int i;

	for (i = 0; i < 20000; i++) {
		if (reg(dev, &mr))
			continue;
		done++;
		device_dereg(dev, &mr);
	}
	return (void *)done;
}

/* Some emptyings fail, some are retried by another thread: none is lost. */
static void threads_share_the_slots(void **state)
{
	struct kedge_device *dev = open_with(0, 0, 3);
	struct kedge_device_mr mr[3];
	pthread_t thread[4];
	intptr_t total = 0;
	void *done;
	int i;

	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1000);
	fake.skip = 3000;
	run_threads(thread, 4, churn, dev, 0);
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], &done);
		total += (intptr_t)done;
	}
	assert_true(total > 1000);
	fake.times = 0;
	/* Each reg brings one lost slot back. */
	for (i = 0; i < 3; i++)
		if (!reg(dev, &mr[0]))
			device_dereg(dev, &mr[0]);
	for (i = 0; i < 3; i++)
		assert_int_equal(reg(dev, &mr[i]), 0);
	for (i = 0; i < 3; i++)
		device_dereg(dev, &mr[i]);
	kedge_device_close(dev);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, setup, fake_close)
#include "test_uring.cases.h"

int main(void)
{
	return RUN(cases);
}
