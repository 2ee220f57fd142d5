// SPDX-License-Identifier: BSD-2-Clause
/*
 * The io_uring device's marking of pages that the ring wrote to, and the fate of those
 * that it cannot mark, against a fake kernel; pagemap is the real one's.
 */
#include "uring_device.h"

static void keep(const struct kedge_device_mr *mr, uint32_t flags)
{
	device_preserve(dev, mr, at(0), at(1), flags);
}

static void marks_come_at_the_end(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	assert_int_equal(device_reg(dev, page + 100, 2 * PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	assert_int_equal(fake.marks, 0);
	device_preserve(dev, &mr, at(0) + 100, at(2) + 100, 0);
	assert_int_equal(fake.marks, 1);
	/* Whole pages. */
	assert_int_equal(fake.mark_at, at(0));
	assert_int_equal(fake.mark_end, at(3));
	device_dereg(dev, &mr);
	assert_int_equal(fake.marks, 1);
	/* It is not there any more. */
	keep(&mr, 0);
	mr.priv = UINT64_C(1) << 40;
	keep(&mr, 0);
	assert_int_equal(fake.marks, 1);
	close_dev();
	assert_int_equal(fake.marks, 1);
	assert_int_equal(fake_log_cnt, 0);
}

static void who_frees_nothing_lazily_has_no_marks(void **state)
{
	static const int errors[] = { EINVAL, EPERM };
	struct kedge_device_mr mr;
	size_t i;

	open_with(KEDGE_URING_NO_MADV_FREE, 0, 64);
	assert_int_equal(reg(&mr), 0);
	keep(&mr, 0);
	device_dereg(dev, &mr);
	close_dev();
	assert_int_equal(fake.marks, 0);
	/* Nor has a kernel that cannot. */
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		fake.no_populate = errors[i];
		open_with(0, 0, 64);
		assert_int_equal(reg(&mr), 0);
		keep(&mr, 0);
		close_dev();
		assert_int_equal(fake.marks, 0);
	}
}

static void a_kernel_is_as_old_as_it_says(void **state)
{
	static const struct {
		const char *release;
		int at_reg;
	} cases[] = { { "5.18.0", 0 },	   { "5.14.0-427.el9", 1 },
		      { "6.1.0-13", 0 },   { "4.99.1", 1 },
		      { "10.0.0-rc1", 0 }, { "fake", 1 } };
	struct kedge_device_mr mr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		fake.release = cases[i].release;
		fake.marks = 0;
		open_with(0, 0, 64);
		assert_int_equal(reg(&mr), 0);
		assert_int_equal(fake.marks, cases[i].at_reg);
		keep(&mr, 0);
		assert_int_equal(fake.marks, 1);
		device_dereg(dev, &mr);
		close_dev();
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
	fake.smaps = text;
}

static void fail_marks(int cnt)
{
	fake.mark_errno = EINVAL;
	fake.mark_fails = cnt;
}

static void what_is_not_lazily_freed_need_not_be_marked(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	lazy(0, 3, 0);
	assert_int_equal(reg(&mr), 0);
	fail_marks(1000);
	keep(&mr, 0);
	device_dereg(dev, &mr);
	assert_null(fake.slot[mr.handle]);
	close_dev();
	assert_int_equal(fake_log_cnt, 0);
}

static void what_would_be_lost_stays_pinned(void **state)
{
	struct kedge_device_mr mr, other;
	uint64_t handle;

	open_with(0, 0, 64);
	lazy(0, 3, 4);
	assert_int_equal(reg(&mr), 0);
	handle = mr.handle;
	fail_marks(1000);
	keep(&mr, 0);
	device_dereg(dev, &mr);
	assert_ptr_equal(fake.slot[handle], page);
	assert_int_equal(fake_log_cnt, 1);
	assert_non_null(strstr(fake_logged, "stays pinned"));
	/* Looked at again by a registration, in vain; not by each. */
	assert_int_equal(reg(&other), 0);
	device_dereg(dev, &other);
	assert_ptr_equal(fake.slot[handle], page);
	fake.mark_fails = 0;
	assert_int_equal(reg(&other), 0);
	device_dereg(dev, &other);
	assert_ptr_equal(fake.slot[handle], page);
	/* A while later it can be marked, wherever it is by then. */
	fake.now_ns += 100000000;
	fake.marks = 0;
	assert_int_equal(reg(&other), 0);
	assert_int_equal(fake.marks, 3);
	assert_null(fake.slot[handle == other.handle ? 63 : handle]);
	device_dereg(dev, &other);
	close_dev();
	assert_int_equal(fake_log_cnt, 1);
}

/* A slot that the kernel refused once is not hidden by one that is owed for long. */
static void an_owed_slot_hides_no_other(void **state)
{
	struct kedge_device_mr lost, owed, other;
	int i;

	open_with(0, 0, 64);
	lazy(0, 3, 4);
	assert_int_equal(reg(&lost), 0);
	assert_int_equal(reg(&owed), 0);
	fake_refuse(IORING_REGISTER_BUFFERS_UPDATE, -EACCES, 1);
	device_dereg(dev, &lost);
	fail_marks(1000);
	keep(&owed, 0);
	device_dereg(dev, &owed);
	for (i = 0; i < 2; i++)
		assert_int_equal(reg(&other), 0);
	assert_true(!fake.slot[lost.handle] || lost.handle == other.handle);
	assert_ptr_equal(fake.slot[owed.handle], page);
}

/* In a full table the slots are looked at at once. */
static void a_full_table_pays_at_once(void **state)
{
	struct kedge_uring_opts opts = { .size = sizeof(opts), .slots = 1 };
	struct kedge_device_mr mr;

	assert_int_equal(kedge_device_open_uring(&fake_ring, &opts, &dev), 0);
	lazy(0, 3, 4);
	assert_int_equal(reg(&mr), 0);
	fail_marks(1000);
	keep(&mr, 0);
	device_dereg(dev, &mr);
	assert_int_equal(reg(&mr), -ENOSPC);
	assert_int_equal(reg(&mr), -ENOSPC);
	assert_ptr_equal(fake.slot[0], page);
	fake.mark_fails = 0;
	assert_int_equal(reg(&mr), 0);
	device_dereg(dev, &mr);
}

static void the_close_says_what_may_be_lost(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	lazy(0, 3, 4);
	assert_int_equal(reg(&mr), 0);
	fail_marks(1000);
	keep(&mr, 0);
	device_dereg(dev, &mr);
	close_dev();
	assert_int_equal(fake_log_cnt, 2);
	assert_non_null(strstr(fake_logged, "may be dropped"));
	assert_non_null(strstr(fake_logged, " 1 registrations"));
}

static void the_close_marks_what_is_still_registered(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	assert_int_equal(device_reg(dev, page + PAGE, PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	assert_int_equal(device_reg(dev, page, PAGE, 0, &mr), 0);
	close_dev();
	assert_int_equal(fake.marks, 1);
	assert_int_equal(fake.mark_at, at(1));
	assert_int_equal(fake.mark_end, at(2));
	assert_int_equal(fake_log_cnt, 0);
}

static void without_proc_what_cannot_be_marked_stays(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	fake.smaps = "";
	assert_int_equal(reg(&mr), 0);
	/* Present pages cannot be told: better too many. */
	keep(&mr, KEDGE_PRESERVE_UNSURE);
	assert_int_equal(fake.marks, 1);
	fail_marks(1);
	keep(&mr, 0);
	device_dereg(dev, &mr);
	assert_ptr_equal(fake.slot[0], page);
	assert_int_equal(fake_log_cnt, 1);
	close_dev();
	/* Marked after all. */
	assert_int_equal(fake_log_cnt, 1);

	open_with(0, 0, 64);
	assert_int_equal(reg(&mr), 0);
	keep(&mr, KEDGE_PRESERVE_UNSURE | KEDGE_PRESERVE_MOVED);
	assert_int_equal(fake_log_cnt, 2);
	assert_non_null(strstr(fake_logged, "mremap"));
	device_dereg(dev, &mr);
}

/* ---- what may have gone ---- */

static void what_is_absent_is_not_marked(void **state)
{
	struct kedge_device_mr mr;
	char *p = new_map(600 * PAGE);

	open_with(0, 0, 64);
	madvise(p, 600 * PAGE, MADV_NOHUGEPAGE);
	assert_int_equal(device_reg(dev, p, 600 * PAGE,
				    KEDGE_ACCESS_LOCAL_WRITE, &mr),
			 0);
	device_preserve(dev, &mr, (uintptr_t)p, (uintptr_t)p + 600 * PAGE,
			KEDGE_PRESERVE_UNSURE);
	assert_int_equal(fake.marks, 0);
	memset(p + 598 * PAGE, 'x', PAGE);
	device_preserve(dev, &mr, (uintptr_t)p, (uintptr_t)p + 600 * PAGE,
			KEDGE_PRESERVE_UNSURE);
	assert_int_equal(fake.marks, 1);
	assert_int_equal(fake.mark_at, (uintptr_t)p + 598 * PAGE);
	assert_int_equal(fake.mark_end, (uintptr_t)p + 599 * PAGE);
	/* Shared memory is never freed lazily. */
	munmap(p, 600 * PAGE);
	p = mmap(p, 600 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memset(p, 'x', 600 * PAGE);
	device_preserve(dev, &mr, (uintptr_t)p, (uintptr_t)p + 600 * PAGE,
			KEDGE_PRESERVE_UNSURE);
	assert_int_equal(fake.marks, 1);
	munmap(p, 600 * PAGE);
	device_dereg(dev, &mr);
}

static void what_was_moved_is_marked_where_it_is(void **state)
{
	struct kedge_device_mr mr;

	open_with(0, 0, 64);
	assert_int_equal(reg(&mr), 0);
	snprintf(text, sizeof(text),
		 "%lx-%lx rw-p 00000000 00:00 0\nLazyFree: 8 kB\n"
		 "%lx-%lx rw-p 00000000 00:00 0\nLazyFree: 0 kB\n",
		 (long)at(1), (long)at(3), (long)at(3), (long)at(4));
	fake.smaps = text;
	keep(&mr, KEDGE_PRESERVE_UNSURE);
	assert_int_equal(fake.mark_end, at(1));
	keep(&mr, KEDGE_PRESERVE_UNSURE | KEDGE_PRESERVE_MOVED);
	assert_int_equal(fake.mark_at, at(1));
	assert_int_equal(fake.mark_end, at(3));
	device_dereg(dev, &mr);
}

#include "test_uring_mark.cases.h"
