// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device's care for pages that the kernel lets go of late,
 * and where it reclaims pinned ones, against a fake kernel.
 */
#include "uring_device.h"

/* Registrations that end, so that the device has seen how the kernel unpins. */
static void some_ends(int cnt)
{
	struct kedge_device_mr mr;

	while (cnt--) {
		assert_int_equal(reg(&mr), 0);
		device_dereg(dev, &mr);
	}
}

/* ---- late unpins ---- */

static void a_prompt_kernel_is_not_waited_for(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	fake.pinned = 2;
	some_ends(8);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(&mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	fake.room = 0;
}

static void a_kernel_that_tells_nothing_is_not_waited_for(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	fake.late = 1;
	some_ends(8);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(&mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
}

static void a_late_unpin_makes_room(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	fake.pinned = 1;
	fake.late = 11;
	some_ends(8);
	assert_int_equal(fake.owed, 8);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(&mr), 0);
	assert_int_equal(fake.sleeps, 11);
	device_dereg(dev, &mr);
}

/* The limit is reached by what is held: that is said in finite time. */
static void what_is_held_is_not_waited_for_without_end(void **state)
{
	struct kedge_device_mr held, mr;

	open_with(0, 0, 64);
	fake.pinned = 1;
	fake.late = 1000000;
	some_ends(8);
	assert_int_equal(reg(&held), 0);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(&mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 30);
	/* Nothing was emptied since: no second wait. */
	assert_int_equal(reg(&mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 30);
	device_dereg(dev, &held);
}

/* Another thread's pin hides one unpin: the next one shows it. */
static void one_look_decides_nothing(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	fake.pinned = 1;
	fake.late = 1;
	some_ends(2);
	fake.late = 0;
	some_ends(1);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(&mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	fake.room = 0;
}

/* A slot that is not emptied says nothing about the kernel's unpins. */
static void a_refused_emptying_is_no_look(void **state)
{
	struct kedge_device_mr mr[4];
	int i;

	open_with(0, 0, 64);
	fake.pinned = 2;
	for (i = 0; i < 4; i++)
		assert_int_equal(reg(&mr[i]), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 5);
	for (i = 0; i < 4; i++)
		device_dereg(dev, &mr[i]);
	/* A lost slot is tried first, and refused as well. */
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(&mr[0]), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	fake.room = 0;
}

/* ---- dirty pages ---- */

/* Reclaim took pinned pages, too. */
static void open_on_5_17(void)
{
	fake.release = "5.17.15-200.fc35";
	open_with(0, 0, 64);
}

static void an_older_kernel_marks_what_may_be_written_once(void **state)
{
	struct kedge_device_mr mr;

	open_on_5_17();
	assert_int_equal(device_reg(dev, page + 100, 2 * PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	assert_int_equal(fake.marks, 1);
	assert_int_equal(fake.mark_at, at(0));
	assert_int_equal(fake.mark_end, at(3));
	device_preserve(dev, &mr, at(0), at(1), 0);
	device_dereg(dev, &mr);
	assert_int_equal(device_reg(dev, page, PAGE, 0, &mr), 0);
	assert_int_equal(fake.marks, 1);
	close_dev();
	assert_int_equal(fake.marks, 1);
}

static void it_says_that_it_pins_and_writes(void **state)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };

	open_with(0, 0, 64);
	assert_int_equal(kedge_device_query(dev, &attr), 0);
	assert_int_equal(attr.flags, KEDGE_DEVICE_WRITES | KEDGE_DEVICE_PINS);
	assert_int_equal(attr.max_regions, 64);
}

/* ---- one registration, ended twice ---- */

static struct kedge_device_mr twice;

static void end_again(void)
{
	device_dereg(dev, &twice);
}

static void a_second_end_during_the_first_is_refused(void **state)
{
	struct kedge_device_mr mr[64], more;
	int i;

	open_with(0, 0, 64);
	assert_int_equal(reg(&twice), 0);
	fake.in_call = end_again;
	device_dereg(dev, &twice);
	assert_int_equal(fake_log_cnt, 1);
	twice.priv = UINT64_C(1) << 40;
	device_dereg(dev, &twice);
	assert_int_equal(fake_log_cnt, 2);
	/* Each slot is given out once. */
	for (i = 0; i < 64; i++)
		assert_int_equal(reg(&mr[i]), 0);
	assert_int_equal(reg(&more), -ENOSPC);
	for (i = 0; i < 64; i++)
		device_dereg(dev, &mr[i]);
	close_dev();
	assert_int_equal(fake_log_cnt, 2);
}

static void what_is_not_pinned_is_not_marked(void **state)
{
	struct kedge_device_mr mr;

	open_on_5_17();
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EFAULT, 1);
	assert_int_equal(reg(&mr), -EFAULT);
	assert_int_equal(fake.marks, 0);
}

/* Memory that changes between the pin and the mark is pinned and marked anew. */
static void what_changes_meanwhile_is_registered_anew(void **state)
{
	static const int errors[] = { ENOMEM, EFAULT };
	struct kedge_device_mr mr;
	size_t i;
	int calls;

	open_on_5_17();
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		fake.marks = 0;
		fake.mark_fails = 2;
		fake.mark_errno = errors[i];
		calls = fake.calls;
		assert_int_equal(reg(&mr), 0);
		assert_int_equal(fake.marks, 3);
		assert_int_equal(fake.calls - calls, 5);
		assert_ptr_equal(fake.slot[mr.handle], page);
		device_dereg(dev, &mr);
	}
	/* It never ends: registered, as far as that goes. */
	fake.marks = 0;
	fake.mark_fails = 1000;
	assert_int_equal(reg(&mr), 0);
	assert_int_equal(fake.marks, 4);
	assert_ptr_equal(fake.slot[mr.handle], page);
	device_dereg(dev, &mr);
}

static void a_slot_that_cannot_be_emptied_to_mark_is_lost(void **state)
{
	struct kedge_device_mr mr, other;

	open_on_5_17();
	fake.mark_fails = 1;
	fake.mark_errno = ENOMEM;
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 1);
	fake.skip = 1;
	assert_int_equal(reg(&mr), -EACCES);
	assert_ptr_equal(fake.slot[0], page);
	/* The next one empties it first. */
	assert_int_equal(reg(&other), 0);
	device_dereg(dev, &other);
	assert_null(fake.slot[0]);
	close_dev();
	assert_int_equal(fake_log_cnt, 0);
}

#include "test_uring_pages.cases.h"
