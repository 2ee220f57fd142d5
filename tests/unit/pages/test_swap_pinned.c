// SPDX-License-Identifier: BSD-2-Clause
/*
 * A huge page that io_uring has pinned, and whose pages are mapped one by one, as fork()
 * leaves it: a swap is refused, on kernels too that would try for ever to split it.
 */
#include <liburing.h>

#include "../../process/alone.h"
#include "pages/move.h"
#include "pages/share/share.h"
#include "swap_mem.h"

/* Two are pinned at a time, by a process and its child. */
#define LEN ((size_t)2 << 20)

/* With ThreadSanitizer, too. */
bool move_guard_wanted(void)
{
	return true;
}

static struct io_uring ring;
static char *a, *b;

static void fork_once(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static int pin(void **state)
{
	struct iovec v;

	a = huge_area(LEN, 1);
	b = huge_area(LEN, 2);
	v = (struct iovec){ a, LEN };
	assert_int_equal(io_uring_register_buffers(&ring, &v, 1), 0);
	/* Pages that are pinned are copied for the child, one by one. */
	fork_once();
	return 0;
}

static int unpin(void **state)
{
	assert_int_equal(io_uring_unregister_buffers(&ring), 0);
	return 0;
}

static void as_they_were(void)
{
	expect_stamps(a, 1, b, 2, LEN);
}

static void a_swap_of_it_is_refused(void **state)
{
	assert_int_equal(kedge_page_swap_with(a, b, LEN, KEDGE_SWAP_MOVE),
			 -EBUSY);
	as_they_were();
	assert_int_equal(kedge_page_swap_with(b, a, LEN, KEDGE_SWAP_MOVE),
			 -EBUSY);
	as_they_were();
	/* One page of it. */
	assert_int_equal(kedge_page_swap_with(a + 3 * page_len(), b, page_len(),
					      KEDGE_SWAP_MOVE), -EBUSY);
	as_they_were();
	stamp(a, LEN, 3);
	assert_true(stamped(a, LEN, 3));
}

static void nor_is_it_shared(void **state)
{
	int fd = memfd_create("share", MFD_CLOEXEC);
	size_t done;

	assert_int_equal(ftruncate(fd, LEN), 0);
	assert_int_equal(pages_share(a, LEN, fd, 0, &done), -EBUSY);
	assert_int_equal(done, 0);
	as_they_were();
	close(fd);
}

/* The scratch space is as it was, too: pages that are not pinned go through it. */
static void others_are_swapped_afterwards(void **state)
{
	char *c = small_area(LEN, 5), *d = small_area(LEN, 6);

	assert_int_equal(kedge_page_swap_with(a, b, LEN, KEDGE_SWAP_MOVE),
			 -EBUSY);
	assert_int_equal(kedge_page_swap_with(c, d, LEN, KEDGE_SWAP_MOVE), 0);
	expect_stamps(c, 6, d, 5, LEN);
}

static void a_child_has_a_watchdog_of_its_own(void **state)
{
	int rc;
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(kedge_page_swap_with(a, b, LEN, KEDGE_SWAP_MOVE),
			 -EBUSY);
	pid = fork();
	if (!pid) {
		struct iovec v = { b, LEN };
		struct io_uring own;

		rc = io_uring_queue_init(2, &own, 0);
		stamp(b, LEN, 2);
		if (!rc)
			rc = io_uring_register_buffers(&own, &v, 1);
		if (!rc)
			fork_once();
		if (!rc)
			rc = kedge_page_swap_with(a, b, LEN, KEDGE_SWAP_MOVE);
		_exit(rc != -EBUSY);
	}
	ended_well(pid);
}

#define LISTED(f) cmocka_unit_test_setup_teardown(f, pin, unpin)
#include "test_swap_pinned.cases.h"

int main(void)
{
	int rc = can_move();

	pin_alone();
	if (!rc)
		rc = io_uring_queue_init(2, &ring, 0);
	if (rc) {
		printf("skipped: %s\n", kedge_strerror(rc));
		return 77;
	}
	return RUN(cases);
}
