// SPDX-License-Identifier: BSD-2-Clause
/*
 * A region migrates within this process, and the system refuses something at each step, here or
 * there. There is one region in the end, either the former or the next, with all of its bytes, and
 * its peer goes on.
 */
#include <kedge/migrate.h>

#include "clock.h"
#include "remote.h"

#include "look.h"
#include "refuse.h"

/* In which a next one that was not asked gives up. */
#define ACCEPT_MS 500

WRAP(void *, malloc, size_t len)
{
	/* Buffers of handles, and of what is sealed. */
	return len == sizeof(uint64_t) * 11 && fails() ? NULL : __real_malloc(len);
}

struct next {
	struct kedge_invitation *invitation;
	struct kedge_region *region;
	pthread_t thread;
	int rc;
};

static void *accepts(void *arg)
{
	struct next *n = arg;

	n->rc = kedge_invitation_accept(n->invitation, ACCEPT_MS, &n->region);
	return NULL;
}

/* The outcome is one for both. */
static int settle(struct next *n, const struct kedge_handle *h, int rc)
{
	const struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = 2000 };

	atomic_store(&fail_at, 0);
	while (rc == -EINPROGRESS)
		rc = kedge_region_migrate(region, h, &o, NULL);
	pthread_join(n->thread, NULL);
	assert_int_equal(!rc, !n->rc);
	if (!rc) {
		kedge_region_close(region);
		region = n->region;
	}
	return rc;
}

static int migrate_once(void)
{
	const struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = 2000 };
	struct next n = { .rc = -1 };
	struct kedge_handle h;
	char c = 0;
	int rc = kedge_invitation_open(NULL, &n.invitation, &h);

	if (rc)
		return rc;
	/* Without a thread of the test's there is no step. */
	if (pthread_create(&n.thread, NULL, accepts, &n)) {
		kedge_invitation_close(n.invitation);
		return -EAGAIN;
	}
	rc = kedge_region_migrate(region, &h, &o, NULL);
	rc = settle(&n, &h, rc);
	kedge_invitation_close(n.invitation);
	assert_int_equal(region_at()[LEN - 1], 'z');
	region_at()[LEN - 2] = 'y';
	assert_int_equal(kedge_remote_get(remote, LEN - 2, &c, 1, SOON_MS), 0);
	assert_int_equal(c, 'y');
	assert_int_equal(kedge_remote_put(remote, LEN - 2, "x", 1, SOON_MS), 0);
	assert_int_equal(region_at()[LEN - 2], 'x');
	return rc;
}

static void each_step_is_undone(void **state)
{
	struct kedge_region_budget b = { .size = sizeof(b) };
	unsigned int step, failed = 0;

	begin_remote(NULL);
	region_at()[LEN - 1] = 'z';
	assert_int_equal(migrate_once(), 0);
	for (step = 1; is_step(step); step++) {
		/* One of the two may wait for the other in vain. A machine that stands still has it
		 * fail for time, and the outcome is one, too. */
		test_clock_hurry(10);
		fail_from(step);
		failed += migrate_once() < 0;
		atomic_store(&fail_at, 0);
		test_clock_rest();
	}
	print_message("# %u steps, %u failed\n", step - 1, failed);
	assert_true(failed >= 10);
	assert_int_equal(kedge_region_budget(&b), 0);
	assert_int_equal(b.used, LEN);
	end_remote();
	assert_int_equal(kedge_region_budget(&b), 0);
	assert_int_equal(b.used, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(each_step_is_undone),
};

const long counted_calls[] = { SYS_socket, SYS_connect, SYS_getsockopt, SYS_mmap, SYS_openat,
			       SYS_ioctl, SYS_userfaultfd, SYS_sendmsg, SYS_epoll_ctl, SYS_accept4,
			       0 };
const struct suite suite = { "migrate_faults", SUITE_OF(tests), .by = "mapped",
			     .first = test_clock_begin };
