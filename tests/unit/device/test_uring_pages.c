// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device's care for pages that the kernel lets go of late,
 * and where it reclaims pinned ones, against a fake kernel.
 */
#include <kedge/uring.h>

#include "cases.h"
#include "base/base.h"
#include "device/device.h"
#include "fakes/uring.h"

#define PAGE 4096u

static char page[3 * PAGE] __attribute__((aligned(PAGE)));

static int setup(void **state)
{
	fake_log_start();
	return fake_reset();
}

static struct kedge_device *open_with(uint32_t flags)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts),
					 .flags = flags,
					 .slots = 64 };
	struct kedge_device *dev = NULL;

	assert_int_equal(kedge_device_open_uring(&fake_ring, &opts, &dev), 0);
	return dev;
}

static int reg(struct kedge_device *dev, struct kedge_device_mr *mr)
{
	return device_reg(dev, page, PAGE, KEDGE_ACCESS_LOCAL_WRITE, mr);
}

/* Registrations that end, so that the device has seen how the kernel unpins. */
static void some_ends(struct kedge_device *dev, int cnt)
{
	struct kedge_device_mr mr;

	while (cnt--) {
		assert_int_equal(reg(dev, &mr), 0);
		device_dereg(dev, &mr);
	}
}

/* ---- late unpins ---- */

static void a_prompt_kernel_is_not_waited_for(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	fake.pinned = 2;
	some_ends(dev, 8);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	fake.room = 0;
	kedge_device_close(dev);
}

static void a_kernel_that_tells_nothing_is_not_waited_for(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	fake.late = 1;
	some_ends(dev, 8);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	kedge_device_close(dev);
}

static void a_late_unpin_makes_room(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	fake.pinned = 1;
	fake.late = 11;
	some_ends(dev, 8);
	assert_int_equal(fake.owed, 8);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(dev, &mr), 0);
	assert_int_equal(fake.sleeps, 11);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

/* The limit is reached by what is held: that is said in finite time. */
static void what_is_held_is_not_waited_for_without_end(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr held, mr;

	fake.pinned = 1;
	fake.late = 1000000;
	some_ends(dev, 8);
	assert_int_equal(reg(dev, &held), 0);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 30);
	/* Nothing was emptied since: no second wait. */
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 30);
	device_dereg(dev, &held);
	kedge_device_close(dev);
}

/* Another thread's pin hides one unpin: the next one shows it. */
static void one_look_decides_nothing(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	fake.pinned = 1;
	fake.late = 1;
	some_ends(dev, 2);
	fake.late = 0;
	some_ends(dev, 1);
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	fake.room = 0;
	kedge_device_close(dev);
}

/* A slot that is not emptied says nothing about the kernel's unpins. */
static void a_refused_emptying_is_no_look(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr[4];
	int i;

	fake.pinned = 2;
	for (i = 0; i < 4; i++)
		assert_int_equal(reg(dev, &mr[i]), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 5);
	for (i = 0; i < 4; i++)
		device_dereg(dev, &mr[i]);
	/* A lost slot is tried first, and refused as well. */
	fake.room = fake.pinned - 1;
	assert_int_equal(reg(dev, &mr[0]), -ENOMEM);
	assert_int_equal(fake.sleeps, 0);
	fake.room = 0;
	kedge_device_close(dev);
}

/* ---- dirty pages ---- */

static uint64_t at(size_t n)
{
	return (uintptr_t)page + n * PAGE;
}

/* Reclaim took pinned pages, too. */
static struct kedge_device *open_on_5_17(void)
{
	fake.release = "5.17.15-200.fc35";
	return open_with(0);
}

static void an_older_kernel_marks_what_may_be_written_once(void **state)
{
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr;

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
	kedge_device_close(dev);
	assert_int_equal(fake.marks, 1);
}

static void it_says_that_it_pins_and_writes(void **state)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	struct kedge_device *dev = open_with(0);

	assert_int_equal(kedge_device_query(dev, &attr), 0);
	assert_int_equal(attr.flags, KEDGE_DEVICE_WRITES | KEDGE_DEVICE_PINS);
	assert_int_equal(attr.max_regions, 64);
	kedge_device_close(dev);
}

/* ---- one registration, ended twice ---- */

static struct kedge_device *twice_dev;
static struct kedge_device_mr twice;

static void end_again(void)
{
	device_dereg(twice_dev, &twice);
}

static void a_second_end_during_the_first_is_refused(void **state)
{
	struct kedge_device_mr mr[64], more;
	int i;

	twice_dev = open_with(0);
	assert_int_equal(reg(twice_dev, &twice), 0);
	fake.in_call = end_again;
	device_dereg(twice_dev, &twice);
	assert_int_equal(fake_log_cnt, 1);
	twice.priv = UINT64_C(1) << 40;
	device_dereg(twice_dev, &twice);
	assert_int_equal(fake_log_cnt, 2);
	/* Each slot is given out once. */
	for (i = 0; i < 64; i++)
		assert_int_equal(reg(twice_dev, &mr[i]), 0);
	assert_int_equal(reg(twice_dev, &more), -ENOSPC);
	for (i = 0; i < 64; i++)
		device_dereg(twice_dev, &mr[i]);
	kedge_device_close(twice_dev);
	assert_int_equal(fake_log_cnt, 2);
}

static void what_is_not_pinned_is_not_marked(void **state)
{
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr;

	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EFAULT, 1);
	assert_int_equal(reg(dev, &mr), -EFAULT);
	assert_int_equal(fake.marks, 0);
	kedge_device_close(dev);
}

/* Memory that changes between the pin and the mark is pinned and marked anew. */
static void what_changes_meanwhile_is_registered_anew(void **state)
{
	static const int errors[] = { ENOMEM, EFAULT };
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr;
	size_t i;
	int calls;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		fake.marks = 0;
		fake.mark_fails = 2;
		fake.mark_errno = errors[i];
		calls = fake.calls;
		assert_int_equal(reg(dev, &mr), 0);
		assert_int_equal(fake.marks, 3);
		assert_int_equal(fake.calls - calls, 5);
		assert_ptr_equal(fake.slot[mr.handle], page);
		device_dereg(dev, &mr);
	}
	/* It never ends: registered, as far as that goes. */
	fake.marks = 0;
	fake.mark_fails = 1000;
	assert_int_equal(reg(dev, &mr), 0);
	assert_int_equal(fake.marks, 4);
	assert_ptr_equal(fake.slot[mr.handle], page);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void a_slot_that_cannot_be_emptied_to_mark_is_lost(void **state)
{
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr, other;

	fake.mark_fails = 1;
	fake.mark_errno = ENOMEM;
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 1);
	fake.skip = 1;
	assert_int_equal(reg(dev, &mr), -EACCES);
	assert_ptr_equal(fake.slot[0], page);
	/* The next one empties it first. */
	assert_int_equal(reg(dev, &other), 0);
	device_dereg(dev, &other);
	assert_null(fake.slot[0]);
	kedge_device_close(dev);
	assert_int_equal(fake_log_cnt, 0);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, setup, fake_close)
#include "test_uring_pages.cases.h"

int main(void)
{
	return RUN(cases);
}
