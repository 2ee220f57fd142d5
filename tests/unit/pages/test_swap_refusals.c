// SPDX-License-Identifier: BSD-2-Clause
/*
 * Refusals of the page swap: none changes anything.
 */
#include <liburing.h>

#include "../../process/alone.h"
#include "swap_mem.h"

/* ---- refusals ---- */

static void wrong_ranges_are_refused(void **state)
{
	size_t page = page_len();
	char *a = small_area(8 * page, 1);

	assert_int_equal(kedge_page_swap(a, a + page, 0), -EINVAL);
	assert_int_equal(kedge_page_swap(a + 1, a + page, page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page + 8, page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page, page + 1), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page, 2 * page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a, page), -EINVAL);
	assert_int_equal(kedge_page_swap((void *)-page, a, page), -EINVAL);
	assert_int_equal(kedge_page_swap(a, a + page, -page), -EINVAL);
	assert_int_equal(kedge_page_swap_with(a, a + page, page, 8), -EINVAL);
	assert_true(stamped(a, 8 * page, 1));
}

/* Swap both ways round: refused with @want, the reason has @words, all is well. */
static void refused(char *odd, size_t len, int want, const char *words)
{
	char *b = small_area(len, 2);
	int i, rc;

	for (i = 0; i < 2; i++) {
		rc = kedge_page_swap_with(i ? b : odd, i ? odd : b, len, way);
		if (rc != want)
			fail_msg("%d, not %d: %s", rc, want,
				 kedge_strerror(rc));
		if (!strstr(kedge_strerror(rc), words))
			fail_msg("\"%s\" has no \"%s\"", kedge_strerror(rc),
				 words);
	}
	assert_true(stamped(b, len, 2));
	area_free(b, len);
}

static void unfit_memory_is_refused(void **state)
{
	size_t page = page_len(), len = 8 * page;
	char *p = small_area(len, 1);
	int fd = memfd_create("swap", MFD_CLOEXEC);

	need_way();
	assert_int_equal(mprotect(p + page, page, PROT_READ), 0);
	refused(p, len, -EOPNOTSUPP, "read and written");
	mprotect(p + page, page, PROT_NONE);
	refused(p, len, -EOPNOTSUPP, "read and written");
	mprotect(p + page, page, PROT_READ | PROT_WRITE);
	/* The sanitizers' mlock() does nothing. */
	if (!syscall(SYS_mlock, p + 2 * page, page)) {
		refused(p, len, -EOPNOTSUPP, "locked");
		syscall(SYS_munlock, p + 2 * page, page);
	}
	assert_true(stamped(p, len, 1));
	munmap(p + 3 * page, page);
	refused(p, len, -EFAULT, "nothing is mapped");
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	mmap(p, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	refused(p, len, -EOPNOTSUPP, "shared");
	mmap(p, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
	*p = 1;
	refused(p, len, -EOPNOTSUPP, "file");
	mmap(p, len, PROT_READ | PROT_WRITE,
	     MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	refused(p, len, -EOPNOTSUPP, "shared");
	close(fd);
}

static void huge_tlb_pages_are_refused(void **state)
{
	size_t len = pages_huge_len();
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	need_way();
	skip_if(p == MAP_FAILED, "vm.nr_hugepages is 0");
	refused(p, len, -EOPNOTSUPP, "huge TLB");
	munmap(p, len);
}

static void a_pinned_page_stops_all_of_it(void **state)
{
	size_t page = page_len(), len = 600 * page;
	char *a = small_area(len, 1), *b = small_area(len, 2);
	struct io_uring ring;
	struct iovec pin = { b + 555 * page, page };

	need_way();
	pin_alone();
	skip_if(io_uring_queue_init(2, &ring, 0), "there is no io_uring");
	assert_int_equal(io_uring_register_buffers(&ring, &pin, 1), 0);
	assert_int_equal(kedge_page_swap(a, b, len), -EBUSY);
	assert_int_equal(kedge_page_swap(b, a, len), -EBUSY);
	expect_stamps(a, 1, b, 2, len);
	io_uring_unregister_buffers(&ring);
	io_uring_queue_exit(&ring);
	/* The kernel unpins from a work queue. */
	while (kedge_page_swap(a, b, len) == -EBUSY)
		usleep(1000);
	assert_true(stamped(a, len, 2));
}

static void a_pinned_huge_page_stops_all_of_it(void **state)
{
	size_t page = page_len(), len = 3 * pages_huge_len();
	char *a = huge_area(len, 1), *b = huge_area(len, 2);
	struct io_uring ring;
	struct iovec pin = { b + len - page, page };

	need_way();
	pin_alone();
	skip_if(io_uring_queue_init(2, &ring, 0), "there is no io_uring");
	assert_int_equal(io_uring_register_buffers(&ring, &pin, 1), 0);
	assert_int_equal(kedge_page_swap(a, b, len), -EBUSY);
	assert_int_equal(kedge_page_swap(b, a, len), -EBUSY);
	expect_stamps(a, 1, b, 2, len);
	io_uring_queue_exit(&ring);
}

/* Each takes a split, which some kernels try for ever. */
static void a_pinned_huge_page_that_is_cut_stops_all_of_it(void **state)
{
	size_t page = page_len(), huge = pages_huge_len();
	char *a = huge_area(huge, 1), *b = huge_area(2 * huge, 2);
	struct iovec pin = { .iov_base = a, .iov_len = huge };
	struct io_uring ring;

	need_way();
	pin_alone();
	skip_if(io_uring_queue_init(2, &ring, 0), "there is no io_uring");
	assert_int_equal(io_uring_register_buffers(&ring, &pin, 1), 0);
	assert_int_equal(kedge_page_swap(a + page, b + page, huge - page),
			 -EBUSY);
	assert_int_equal(kedge_page_swap(b, a, huge - page), -EBUSY);
	assert_int_equal(kedge_page_swap(a, b + page, huge), -EBUSY);
	assert_true(stamped(a, huge, 1));
	io_uring_unregister_buffers(&ring);
	io_uring_queue_exit(&ring);
	/* The kernel lets go of it in its own time. */
	while (kedge_page_swap(a + page, b + page, huge - page) == -EBUSY)
		usleep(1000);
	assert_int_equal(*(uint64_t *)(void *)(a + page), stamp_of(2, 1));
	assert_true(stamped(a, page, 1));
}

static void a_forked_child_stops_it(void **state)
{
	size_t len = 40 * page_len();
	char *a = small_area(len, 1), *b = small_area(len, 2);
	int hold[2];
	char c;
	pid_t pid;

	need_way();
	assert_int_equal(pipe(hold), 0);
	pid = fork();
	assert_int_not_equal(pid, -1);
	if (!pid) {
		close(hold[1]);
		_exit(read(hold[0], &c, 1) == 0 && stamped(a, len, 1) &&
		      stamped(b, len, 2) ? 0 : 1);
	}
	close(hold[0]);
	assert_int_equal(kedge_page_swap(a, b, len), -EBUSY);
	expect_stamps(a, 1, b, 2, len);
	close(hold[1]);
	ended_well(pid);
	/* Written again, they are the parent's own. */
	stamp(a, len, 1);
	stamp(b, len, 2);
	assert_int_equal(kedge_page_swap(a, b, len), 0);
	assert_true(stamped(a, len, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLAIN(wrong_ranges_are_refused),
		EACH(unfit_memory_is_refused),
		EACH(huge_tlb_pages_are_refused),
		MOVE(a_pinned_page_stops_all_of_it),
		MOVE(a_pinned_huge_page_stops_all_of_it),
		MOVE(a_pinned_huge_page_that_is_cut_stops_all_of_it),
		MOVE(a_forked_child_stops_it),
	};

	return cmocka_run_group_tests_name("swap_refusals", tests, NULL, NULL);
}
