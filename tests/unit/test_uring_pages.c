// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the io_uring device does about pages that the kernel lets go of late,
 * and about pages that it does not mark, against a kernel made of paper.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <kedge/uring.h>

#include "base/base.h"
#include "device/device.h"
#include "uring_paper.h"

#define PAGE 4096u

static char page[3 * PAGE] __attribute__((aligned(PAGE)));

static int setup(void **state)
{
	/* Present. */
	memset(page, 'x', sizeof(page));
	paper_log_start();
	return paper_reset();
}

static struct kedge_device *open_with(uint32_t flags)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts),
					 .flags = flags,
					 .slots = 64 };
	struct kedge_device *dev = NULL;

	assert_int_equal(kedge_device_open_uring(&paper_ring, &opts, &dev), 0);
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

	paper.pinned = 2;
	some_ends(dev, 8);
	paper.room = paper.pinned - 1;
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(paper.sleeps, 0);
	paper.room = 0;
	kedge_device_close(dev);
}

static void a_kernel_that_tells_nothing_is_not_waited_for(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	paper.late = 1;
	some_ends(dev, 8);
	paper_refuse(IORING_REGISTER_BUFFERS_UPDATE, -ENOMEM, 1);
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(paper.sleeps, 0);
	kedge_device_close(dev);
}

static void a_late_unpin_makes_room(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	paper.pinned = 1;
	paper.late = 11;
	some_ends(dev, 8);
	assert_int_equal(paper.owed, 8);
	paper.room = paper.pinned - 1;
	assert_int_equal(reg(dev, &mr), 0);
	assert_int_equal(paper.sleeps, 11);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

/* The limit is reached by what is held: that is said in finite time. */
static void what_is_held_is_not_waited_for_without_end(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr held, mr;

	paper.pinned = 1;
	paper.late = 1000000;
	some_ends(dev, 8);
	assert_int_equal(reg(dev, &held), 0);
	paper.room = paper.pinned - 1;
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(paper.sleeps, 30);
	/* Nothing was emptied since: no second wait. */
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(paper.sleeps, 30);
	device_dereg(dev, &held);
	kedge_device_close(dev);
}

/* Another thread's pin hides one unpin: the next one shows it. */
static void one_look_decides_nothing(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	paper.pinned = 1;
	paper.late = 1;
	some_ends(dev, 2);
	paper.late = 0;
	some_ends(dev, 1);
	paper.room = paper.pinned - 1;
	assert_int_equal(reg(dev, &mr), -ENOMEM);
	assert_int_equal(paper.sleeps, 0);
	paper.room = 0;
	kedge_device_close(dev);
}

/* A slot that is not emptied says nothing about the kernel's unpins. */
static void a_refused_emptying_is_no_look(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr[4];
	int i;

	paper.pinned = 2;
	for (i = 0; i < 4; i++)
		assert_int_equal(reg(dev, &mr[i]), 0);
	paper_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 5);
	for (i = 0; i < 4; i++)
		device_dereg(dev, &mr[i]);
	/* A lost slot is tried first, and refused as well. */
	paper.room = paper.pinned - 1;
	assert_int_equal(reg(dev, &mr[0]), -ENOMEM);
	assert_int_equal(paper.sleeps, 0);
	paper.room = 0;
	kedge_device_close(dev);
}

/* ---- dirty pages ---- */

static uint64_t at(size_t n)
{
	return (uintptr_t)page + n * PAGE;
}

static void keep(struct kedge_device *dev, const struct kedge_device_mr *mr,
		 uint32_t flags)
{
	device_preserve(dev, mr, at(0), at(1), flags);
}

static void marks_come_at_the_end(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	assert_int_equal(device_reg(dev, page + 100, 2 * PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	assert_int_equal(paper.marks, 0);
	device_preserve(dev, &mr, at(0) + 100, at(2) + 100, 0);
	assert_int_equal(paper.marks, 1);
	/* Whole pages. */
	assert_int_equal(paper.mark_at, at(0));
	assert_int_equal(paper.mark_end, at(3));
	device_dereg(dev, &mr);
	assert_int_equal(paper.marks, 1);
	/* It is not there any more. */
	keep(dev, &mr, 0);
	mr.priv = UINT64_C(1) << 40;
	keep(dev, &mr, 0);
	assert_int_equal(paper.marks, 1);
	kedge_device_close(dev);
	assert_int_equal(paper.marks, 1);
	assert_int_equal(paper_log_cnt, 0);
}

static void who_frees_nothing_lazily_has_no_marks(void **state)
{
	static const int errors[] = { EINVAL, EPERM };
	struct kedge_device *dev = open_with(KEDGE_URING_NO_MADV_FREE);
	struct kedge_device_mr mr;
	size_t i;

	assert_int_equal(reg(dev, &mr), 0);
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
	assert_int_equal(paper.marks, 0);
	/* Nor has a kernel that cannot. */
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		paper.no_populate = errors[i];
		dev = open_with(0);
		assert_int_equal(reg(dev, &mr), 0);
		keep(dev, &mr, 0);
		kedge_device_close(dev);
		assert_int_equal(paper.marks, 0);
	}
}

/* Reclaim took pinned pages, too. */
static struct kedge_device *open_on_5_17(void)
{
	paper.release = "5.17.15-200.fc35";
	return open_with(0);
}

static void an_older_kernel_marks_what_may_be_written_once(void **state)
{
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr;

	assert_int_equal(device_reg(dev, page + 100, 2 * PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	assert_int_equal(paper.marks, 1);
	assert_int_equal(paper.mark_at, at(0));
	assert_int_equal(paper.mark_end, at(3));
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	assert_int_equal(device_reg(dev, page, PAGE, 0, &mr), 0);
	assert_int_equal(paper.marks, 1);
	kedge_device_close(dev);
	assert_int_equal(paper.marks, 1);
}

static void a_kernel_is_as_old_as_it_says(void **state)
{
	static const struct {
		const char *release;
		int at_reg;
	} cases[] = { { "5.18.0", 0 },	   { "5.14.0-427.el9", 1 },
		      { "6.1.0-13", 0 },   { "4.99.1", 1 },
		      { "10.0.0-rc1", 0 }, { "paper", 1 } };
	struct kedge_device *dev;
	struct kedge_device_mr mr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		paper.release = cases[i].release;
		paper.marks = 0;
		dev = open_with(0);
		assert_int_equal(reg(dev, &mr), 0);
		assert_int_equal(paper.marks, cases[i].at_reg);
		keep(dev, &mr, 0);
		assert_int_equal(paper.marks, 1);
		device_dereg(dev, &mr);
		kedge_device_close(dev);
	}
}

/* ---- what cannot be marked ---- */

static char text[1024];

/* @kib of [from, to) are anonymous and clean, as are the mappings around it. */
static void lazy(size_t from, size_t to, unsigned int kib)
{
	snprintf(text, sizeof(text),
		 "%lx-%lx r--p 00000000 00:00 0 \nPrivate_Clean: 8 kB\n"
		 "Anonymous: 8 kB\nLazyFree:  8 kB\nAnonHugePages: 0 kB\n"
		 "%lx-%lx r--p 00000000 00:00 0 \nPrivate_Clean: %u kB\n"
		 "Private_Dirty: 8 kB\nAnonymous: 12 kB\nLazyFree:  0 kB\n"
		 "%lx-%lx r--p 00000000 00:00 0 \nPrivate_Clean: 8 kB\n"
		 "Anonymous: 8 kB\nLazyFree:  8 kB\n",
		 (long)at(0) - 8192, (long)at(0) - 4096, (long)at(from),
		 (long)at(to), kib, (long)at(3) + 4096, (long)at(3) + 8192);
	paper.smaps = text;
}

static void fail_marks(int cnt)
{
	paper.mark_errno = EINVAL;
	paper.mark_fails = cnt;
}

static void what_is_not_lazily_freed_need_not_be_marked(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	lazy(0, 3, 0);
	assert_int_equal(reg(dev, &mr), 0);
	fail_marks(1000);
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	assert_null(paper.slot[mr.handle]);
	kedge_device_close(dev);
	assert_int_equal(paper_log_cnt, 0);
}

static void what_would_be_lost_stays_pinned(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr, other;
	uint64_t handle;

	lazy(0, 3, 4);
	assert_int_equal(reg(dev, &mr), 0);
	handle = mr.handle;
	fail_marks(1000);
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	assert_ptr_equal(paper.slot[handle], page);
	assert_int_equal(paper_log_cnt, 1);
	assert_non_null(strstr(paper_logged, "stays pinned"));
	/* Looked at again by a registration, in vain; not by each. */
	assert_int_equal(reg(dev, &other), 0);
	device_dereg(dev, &other);
	assert_ptr_equal(paper.slot[handle], page);
	paper.mark_fails = 0;
	assert_int_equal(reg(dev, &other), 0);
	device_dereg(dev, &other);
	assert_ptr_equal(paper.slot[handle], page);
	/* A while later it can be marked. */
	paper.now_ns += 100000000;
	paper.marks = 0;
	assert_int_equal(reg(dev, &other), 0);
	assert_int_equal(paper.marks, 1);
	assert_int_equal(paper.mark_at, at(0));
	assert_int_equal(paper.mark_end, at(1));
	assert_null(paper.slot[handle == other.handle ? 63 : handle]);
	device_dereg(dev, &other);
	kedge_device_close(dev);
	assert_int_equal(paper_log_cnt, 1);
}

/* In a full table the slots are looked at at once. */
static void a_full_table_pays_at_once(void **state)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts), .slots = 1 };
	struct kedge_device *dev;
	struct kedge_device_mr mr;

	assert_int_equal(kedge_device_open_uring(&paper_ring, &opts, &dev), 0);
	lazy(0, 3, 4);
	assert_int_equal(reg(dev, &mr), 0);
	fail_marks(1000);
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	assert_int_equal(reg(dev, &mr), -ENOSPC);
	assert_int_equal(reg(dev, &mr), -ENOSPC);
	assert_ptr_equal(paper.slot[0], page);
	paper.mark_fails = 0;
	assert_int_equal(reg(dev, &mr), 0);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void the_close_says_what_may_be_lost(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	lazy(0, 3, 4);
	assert_int_equal(reg(dev, &mr), 0);
	fail_marks(1000);
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
	assert_int_equal(paper_log_cnt, 2);
	assert_non_null(strstr(paper_logged, "may be dropped"));
	assert_non_null(strstr(paper_logged, " 1 registrations"));
}

static void the_close_marks_what_is_still_registered(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	assert_int_equal(device_reg(dev, page + PAGE, PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	assert_int_equal(device_reg(dev, page, PAGE, 0, &mr), 0);
	kedge_device_close(dev);
	assert_int_equal(paper.marks, 1);
	assert_int_equal(paper.mark_at, at(1));
	assert_int_equal(paper.mark_end, at(2));
	assert_int_equal(paper_log_cnt, 0);
}

static void without_proc_what_cannot_be_marked_stays(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	paper.smaps = "";
	assert_int_equal(reg(dev, &mr), 0);
	/* What is present cannot be told: better too much. */
	keep(dev, &mr, KEDGE_PRESERVE_UNSURE);
	assert_int_equal(paper.marks, 1);
	fail_marks(1);
	keep(dev, &mr, 0);
	device_dereg(dev, &mr);
	assert_ptr_equal(paper.slot[0], page);
	assert_int_equal(paper_log_cnt, 1);
	kedge_device_close(dev);
	/* Marked after all. */
	assert_int_equal(paper_log_cnt, 1);

	dev = open_with(0);
	assert_int_equal(reg(dev, &mr), 0);
	keep(dev, &mr, KEDGE_PRESERVE_UNSURE | KEDGE_PRESERVE_MOVED);
	assert_int_equal(paper_log_cnt, 2);
	assert_non_null(strstr(paper_logged, "mremap"));
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

/* ---- what may have gone ---- */

static void what_is_absent_is_not_marked(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;
	char *p = mmap(NULL, 600 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	madvise(p, 600 * PAGE, MADV_NOHUGEPAGE);
	assert_int_equal(device_reg(dev, p, 600 * PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	device_preserve(dev, &mr, (uintptr_t)p, (uintptr_t)p + 600 * PAGE,
			KEDGE_PRESERVE_UNSURE);
	assert_int_equal(paper.marks, 0);
	memset(p + 598 * PAGE, 'x', PAGE);
	device_preserve(dev, &mr, (uintptr_t)p, (uintptr_t)p + 600 * PAGE,
			KEDGE_PRESERVE_UNSURE);
	assert_int_equal(paper.marks, 1);
	assert_int_equal(paper.mark_at, (uintptr_t)p + 598 * PAGE);
	assert_int_equal(paper.mark_end, (uintptr_t)p + 599 * PAGE);
	/* Shared memory is never freed lazily. */
	munmap(p, 600 * PAGE);
	p = mmap(p, 600 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memset(p, 'x', 600 * PAGE);
	device_preserve(dev, &mr, (uintptr_t)p, (uintptr_t)p + 600 * PAGE,
			KEDGE_PRESERVE_UNSURE);
	assert_int_equal(paper.marks, 1);
	munmap(p, 600 * PAGE);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void what_was_moved_is_marked_where_it_is(void **state)
{
	struct kedge_device *dev = open_with(0);
	struct kedge_device_mr mr;

	assert_int_equal(reg(dev, &mr), 0);
	snprintf(text, sizeof(text),
		 "%lx-%lx rw-p 00000000 00:00 0\nLazyFree: 8 kB\n"
		 "%lx-%lx rw-p 00000000 00:00 0\nLazyFree: 0 kB\n",
		 (long)at(1), (long)at(3), (long)at(3), (long)at(4));
	paper.smaps = text;
	keep(dev, &mr, KEDGE_PRESERVE_UNSURE);
	assert_int_equal(paper.mark_end, at(1));
	keep(dev, &mr, KEDGE_PRESERVE_UNSURE | KEDGE_PRESERVE_MOVED);
	assert_int_equal(paper.mark_at, at(1));
	assert_int_equal(paper.mark_end, at(3));
	device_dereg(dev, &mr);
	kedge_device_close(dev);
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
	paper.in_call = end_again;
	device_dereg(twice_dev, &twice);
	assert_int_equal(paper_log_cnt, 1);
	twice.priv = UINT64_C(1) << 40;
	device_dereg(twice_dev, &twice);
	assert_int_equal(paper_log_cnt, 2);
	/* Each slot is given out once. */
	for (i = 0; i < 64; i++)
		assert_int_equal(reg(twice_dev, &mr[i]), 0);
	assert_int_equal(reg(twice_dev, &more), -ENOSPC);
	for (i = 0; i < 64; i++)
		device_dereg(twice_dev, &mr[i]);
	kedge_device_close(twice_dev);
	assert_int_equal(paper_log_cnt, 2);
}

static void what_is_not_pinned_is_not_marked(void **state)
{
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr;

	paper_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EFAULT, 1);
	assert_int_equal(reg(dev, &mr), -EFAULT);
	assert_int_equal(paper.marks, 0);
	kedge_device_close(dev);
}

/* What changes between the pin and the mark is pinned and marked anew. */
static void what_changes_meanwhile_is_registered_anew(void **state)
{
	static const int errors[] = { ENOMEM, EFAULT };
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr;
	size_t i;
	int calls;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		paper.marks = 0;
		paper.mark_fails = 2;
		paper.mark_errno = errors[i];
		calls = paper.calls;
		assert_int_equal(reg(dev, &mr), 0);
		assert_int_equal(paper.marks, 3);
		assert_int_equal(paper.calls - calls, 5);
		assert_ptr_equal(paper.slot[mr.handle], page);
		device_dereg(dev, &mr);
	}
	/* It never ends: registered, as far as that goes. */
	paper.marks = 0;
	paper.mark_fails = 1000;
	assert_int_equal(reg(dev, &mr), 0);
	assert_int_equal(paper.marks, 4);
	assert_ptr_equal(paper.slot[mr.handle], page);
	device_dereg(dev, &mr);
	kedge_device_close(dev);
}

static void a_slot_that_cannot_be_emptied_to_mark_is_lost(void **state)
{
	struct kedge_device *dev = open_on_5_17();
	struct kedge_device_mr mr, other;

	paper.mark_fails = 1;
	paper.mark_errno = ENOMEM;
	paper_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 1);
	paper.skip = 1;
	assert_int_equal(reg(dev, &mr), -EACCES);
	assert_ptr_equal(paper.slot[0], page);
	/* The next one empties it first. */
	assert_int_equal(reg(dev, &other), 0);
	device_dereg(dev, &other);
	assert_null(paper.slot[0]);
	kedge_device_close(dev);
	assert_int_equal(paper_log_cnt, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, paper_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_prompt_kernel_is_not_waited_for),
		TEST(a_kernel_that_tells_nothing_is_not_waited_for),
		TEST(a_late_unpin_makes_room),
		TEST(what_is_held_is_not_waited_for_without_end),
		TEST(one_look_decides_nothing),
		TEST(a_refused_emptying_is_no_look),
		TEST(marks_come_at_the_end),
		TEST(who_frees_nothing_lazily_has_no_marks),
		TEST(an_older_kernel_marks_what_may_be_written_once),
		TEST(a_kernel_is_as_old_as_it_says),
		TEST(what_is_not_lazily_freed_need_not_be_marked),
		TEST(what_would_be_lost_stays_pinned),
		TEST(a_full_table_pays_at_once),
		TEST(the_close_says_what_may_be_lost),
		TEST(the_close_marks_what_is_still_registered),
		TEST(without_proc_what_cannot_be_marked_stays),
		TEST(what_is_absent_is_not_marked),
		TEST(what_was_moved_is_marked_where_it_is),
		TEST(it_says_that_it_pins_and_writes),
		TEST(a_second_end_during_the_first_is_refused),
		TEST(what_is_not_pinned_is_not_marked),
		TEST(what_changes_meanwhile_is_registered_anew),
		TEST(a_slot_that_cannot_be_emptied_to_mark_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
