// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device against a fake kernel. The real one is
 * in test_uring_kernel.c.
 */
#include "uring_device.h"

static struct kedge_device *const before = (struct kedge_device *)0x1;

static void expect_refusal(const struct kedge_uring_opts *opts, int rc)
{
	struct kedge_device *d = before;

	assert_int_equal(kedge_device_open_uring(&fake_ring, opts, &d), rc);
	assert_ptr_equal(d, before);
}

static uint64_t slots_of(void)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };

	assert_int_equal(kedge_device_query(dev, &attr), 0);
	return attr.max_regions;
}

/* ---- open and close ---- */

static void open_undoes_every_step(void **state)
{
	struct kedge_device *d;
	int step, rc;

	for (step = 1;; step++) {
		d = before;
		fake_track(step);
		rc = kedge_device_open_uring(&fake_ring, NULL, &d);
		if (!rc)
			break;
		assert_int_equal(fake_untrack(), 0);
		assert_int_equal(rc, -ENOMEM);
		assert_ptr_equal(d, before);
		assert_int_equal(fake.nr, 0);
	}
	/* context, lock, page, its mark, descriptor, table, probe, stack,
	 * states, memory, device */
	assert_int_equal(step - 1, 11);
	fake_calm();
	kedge_device_close(d);
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
	struct kedge_device *d = before;

	assert_int_equal(kedge_device_open_uring(NULL, NULL, &d), -EINVAL);
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
	assert_int_equal(kedge_device_open_uring(&fake_ring, &newer.opts, &dev), 0);
	assert_int_equal(slots_of(), 4096);
}

static void kernels_of_all_ages(void **state)
{

	fake.no_sparse = true;
	open_with(0, 0, 0);
	assert_int_equal(slots_of(), 4096);
	close_dev();
	assert_int_equal(fake.nr, 0);

	fake.max = 1024;
	open_with(0, 0, 0);
	assert_int_equal(slots_of(), 1024);
	close_dev();

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
		{ -ENOMEM, -ENOMEM, "4096 slots" },
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
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		fake.nr = sizes[i];
		open_with(KEDGE_URING_TABLE_EXISTS, 0, 0);
		assert_int_equal(slots_of(), sizes[i]);
		close_dev();
		open_with(KEDGE_URING_TABLE_EXISTS, sizes[i] - 1, 0);
		assert_int_equal(slots_of(), 1);
		close_dev();
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
	int i;

	fake.nr = 6;
	for (i = 0; i < 6; i++)
		fake.slot[i] = &fake_ring;
	open_with(KEDGE_URING_TABLE_EXISTS, 2, 3);
	/* Opening touched nothing. */
	for (i = 0; i < 6; i++)
		assert_ptr_equal(fake.slot[i], &fake_ring);
	for (i = 0; i < 3; i++) {
		assert_int_equal(reg(&mr[i]), 0);
		assert_int_equal(mr[i].handle, 2 + i);
		assert_ptr_equal(fake.slot[2 + i], page);
	}
	assert_int_equal(reg(&mr[0]), -ENOSPC);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	device_dereg(dev, &mr[1]);
	close_dev();
	for (i = 0; i < 6; i++)
		assert_ptr_equal(fake.slot[i],
				 i < 2 || i > 4 ? &fake_ring : NULL);
	assert_int_equal(fake.nr, 6);
}

/* ---- registrations ---- */

static void a_registration_fills_its_slot(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 4);
	assert_int_equal(reg(&mr), 0);
	assert_ptr_equal(fake.slot[mr.handle], page);
	assert_int_equal(mr.offset, (uintptr_t)page);
	device_dereg(dev, &mr);
	assert_null(fake.slot[mr.handle]);
	close_dev();
	assert_int_equal(fake.nr, 0);
	assert_int_equal(fake_log_cnt, 0);
}

static void bad_ranges_do_not_reach_the_kernel(void **state)
{
	struct kedge_device_mr mr;
	int calls;

	open_with(0, 0, 4);
	calls = fake.calls;
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
	struct kedge_device_mr mr;
	size_t i;

	open_with(0, 0, 1);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, cases[i].kernel, 1);
		assert_int_equal(reg(&mr), cases[i].rc);
		expect_words(cases[i].rc, cases[i].words);
		/* The only slot is back. */
		assert_int_equal(reg(&mr), 0);
		device_dereg(dev, &mr);
	}
	/* A table that is not there refuses the question about the slot, too. */
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EINVAL, 2);
	assert_int_equal(reg(&mr), -EBADF);
	expect_words(-EBADF, "replaced");
	/* Neither done nor refused: who knows what is in the slot? */
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, 0, 1);
	assert_int_equal(reg(&mr), -EIO);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(&mr), -ENOSPC);
	assert_int_equal(reg(&mr), 0);
	device_dereg(dev, &mr);
}

static void a_signal_repeats_the_call(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 1);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EINTR, 3);
	assert_int_equal(reg(&mr), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EINTR, 3);
	device_dereg(dev, &mr);
	assert_null(fake.slot[mr.handle]);
	fake_refuse(IORING_UNREGISTER_BUFFERS, -EINTR, 3);
	close_dev();
	assert_int_equal(fake.nr, 0);
	assert_int_equal(fake_log_cnt, 0);
}

static void a_full_table_has_no_room(void **state)
{
	struct kedge_device_mr mr[3], more;
	int round, i;

	open_with(0, 0, 3);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 3; i++)
			assert_int_equal(reg(&mr[i]), 0);
		assert_int_equal(reg(&more), -ENOSPC);
		expect_words(-ENOSPC, "are in use: hold fewer");
		device_dereg(dev, &mr[1]);
		assert_int_equal(reg(&mr[1]), 0);
		for (i = 0; i < 3; i++)
			device_dereg(dev, &mr[i]);
	}
}

static void a_slot_that_is_not_emptied_is_not_reused(void **state)
{
	struct kedge_device_mr a, b, c;

	open_with(0, 0, 2);
	assert_int_equal(reg(&a), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1000);
	device_dereg(dev, &a);
	assert_int_equal(fake_log_cnt, 1);
	assert_non_null(strstr(fake_logged, "did not empty buffer slot 0"));
	assert_ptr_equal(fake.slot[a.handle], page);

	/* Its emptying fails again, then the other slot is taken. */
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(&b), 0);
	assert_int_not_equal(b.handle, a.handle);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(&c), -ENOSPC);
	assert_ptr_equal(fake.slot[a.handle], page);

	/* The kernel relents: emptied first, then filled anew. */
	assert_int_equal(reg(&c), 0);
	assert_int_equal(c.handle, a.handle);
	assert_int_equal(fake_log_cnt, 1);
	device_dereg(dev, &b);
	device_dereg(dev, &c);
}

static void a_second_dereg_harms_nobody(void **state)
{
	struct kedge_device_mr a, b, wild = { .handle = 77, .priv = 77 };

	open_with(0, 0, 2);
	assert_int_equal(reg(&a), 0);
	device_dereg(dev, &a);
	device_dereg(dev, &a);
	device_dereg(dev, &wild);
	assert_int_equal(fake_log_cnt, 2);
	assert_int_equal(reg(&a), 0);
	assert_int_equal(reg(&b), 0);
	assert_int_not_equal(a.handle, b.handle);
	assert_int_equal(reg(&wild), -ENOSPC);
	device_dereg(dev, &a);
	device_dereg(dev, &b);
}

static void a_table_taken_away_leaves_nothing_to_empty(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 2);
	assert_int_equal(reg(&mr), 0);
	fake.nr = 0;
	device_dereg(dev, &mr);
	assert_int_equal(reg(&mr), -EBADF);
	close_dev();
	assert_int_equal(fake_log_cnt, 0);
}

static void a_failing_close_is_logged(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 2);
	fake_refuse(IORING_UNREGISTER_BUFFERS, -EEXIST, 1);
	close_dev();
	assert_int_equal(fake_log_cnt, 1);

	open_with(KEDGE_URING_TABLE_EXISTS, 0, 2);
	assert_int_equal(reg(&mr), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EEXIST, 1);
	close_dev();
	assert_int_equal(fake_log_cnt, 2);
	assert_non_null(strstr(fake_logged, "1 buffer slots"));
}

/* ---- threads and processes ---- */

static void *reg_elsewhere(void *arg)
{
	struct kedge_device_mr mr;

	return (void *)(intptr_t)reg(&mr);
}

static void a_ring_without_descriptor_is_one_threads(void **state)
{
	struct kedge_device_mr mr;
	void *rc;

	close(fake_ring.ring_fd);
	fake_ring.ring_fd = -1;
	fake_ring.enter_ring_fd = FAKE_RING_INDEX;
	open_with(0, 0, 2);
	assert_int_equal(reg(&mr), 0);
	rc = in_thread(reg_elsewhere, NULL);
	assert_int_equal((int)(intptr_t)rc, -EEXIST);
	device_dereg(dev, &mr);
	close_dev();
	assert_int_equal(fake.nr, 0);
}

static void a_forked_child_leaves_the_ring_alone(void **state)
{
	struct kedge_device_mr mr, other;
	int calls, status;
	pid_t pid;

	open_with(0, 0, 2);
	assert_int_equal(reg(&mr), 0);
	calls = fake.calls;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		status = reg(&other) != -ECHILD;
		device_dereg(dev, &mr);
		close_dev();
		_exit(status || fake.calls != calls);
	}
	ended_well(pid);
	device_dereg(dev, &mr);
}

static void *churn(void *arg)
{
	struct kedge_device_mr mr;
	intptr_t done = 0;
	int i;

	for (i = 0; i < 20000; i++) {
		if (reg(&mr))
			continue;
		done++;
		device_dereg(dev, &mr);
	}
	return (void *)done;
}

/* Some emptyings fail, some are retried by another thread: none is lost. */
static void threads_share_the_slots(void **state)
{
	struct kedge_device_mr mr[3];
	pthread_t thread[4];
	intptr_t total = 0;
	void *done;
	int i;

	open_with(0, 0, 3);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1000);
	fake.skip = 3000;
	run_threads(thread, 4, churn, NULL, 0);
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], &done);
		total += (intptr_t)done;
	}
	assert_true(total > 1000);
	fake.times = 0;
	/* Each reg brings one lost slot back. */
	for (i = 0; i < 3; i++)
		if (!reg(&mr[0]))
			device_dereg(dev, &mr[0]);
	for (i = 0; i < 3; i++)
		assert_int_equal(reg(&mr[i]), 0);
	for (i = 0; i < 3; i++)
		device_dereg(dev, &mr[i]);
}

#include "test_uring.cases.h"
