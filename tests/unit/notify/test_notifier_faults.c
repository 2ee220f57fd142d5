// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each step of opening a notifier and adding a watch made to fail in turn: a
 * clear error, or it works all the same; nothing is left behind.
 */
#include "cases.h"
#include "fakes/faults.h"

#include <kedge/hooks.h>

static char *page;
static unsigned int fds, threads;
static long live;

static void remember(void)
{
	fds = open_fds();
	threads = threads_now();
	live = fault_live();
}

static void nothing_left(void)
{
	assert_int_equal(open_fds(), fds);
	assert_true(threads_are(threads));
	assert_int_equal(fault_live(), live);
}

static int setup(void **state)
{
	kedge_notifier_close(open_uffd()); /* what is kept for the process */
	page = new_pages(1);
	return 0;
}

static int teardown(void **state)
{
	free_pages(page, 1);
	return 0;
}

static bool documented(int rc)
{
	return rc == -EOPNOTSUPP || rc == -EPERM || rc == -ENOMEM ||
	       rc == -EMFILE || rc == -ENFILE || rc == -EAGAIN;
}

/* It says of itself what it is: so it sees an unmap. */
static void must_work(struct kedge_notifier *nf)
{
	struct kedge_event ev[2];

	assert_true(kedge_watch_add(nf, page, 1, 1) >= 0);
	pages_at(page, 1);
	assert_int_equal(kedge_notifier_read(nf, ev, 2), 2);
	assert_int_equal(ev[0].cookie, 1);
	assert_int_equal(kedge_watch_remove(nf, 1), 0);
}

static void open_undoes_every_step(void **state)
{
	struct kedge_notifier *const before = (struct kedge_notifier *)0x1;
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "uffd" };
	int step, rc, hit = 1, errors = 0;

	remember();
	for (step = 1; hit; step++) {
		struct kedge_notifier *nf = before;

		fault_at(step);
		rc = kedge_notifier_open(&o, &nf);
		hit = fault_hit();
		fault_at(0);
		if (rc) {
			if (!documented(rc))
				fail_msg("step %d, %s: %d", step, fault_name(),
					 rc);
			assert_ptr_equal(nf, before);
			assert_true(hit);
			errors++;
		} else {
			must_work(nf);
			kedge_notifier_close(nf);
		}
		nothing_left();
	}
	print_message("%d steps, %d of them needed\n", step - 2, errors);
	/* calloc, page, its advice, lock, pipe, maps, pagemap, the backend's
	 * own, the descriptor, its handshake, the thread. */
	assert_true(errors >= 10);
}

static void auto_falls_back_or_fails(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	struct kedge_notifier_opts o = { .size = sizeof(o), .backend = "auto" };
	struct kedge_notifier *best = NULL;
	int step, rc, hit = 1, lesser = 0;
	uint32_t level;

	assert_int_equal(kedge_notifier_open(&o, &best), 0);
	assert_int_equal(kedge_notifier_info(best, &info), 0);
	level = info.level;
	kedge_notifier_close(best);
	remember();
	for (step = 1; hit; step++) {
		struct kedge_notifier *nf = NULL;

		fault_at(step);
		rc = kedge_notifier_open(&o, &nf);
		hit = fault_hit();
		fault_at(0);
		if (!rc) {
			assert_int_equal(kedge_notifier_info(nf, &info), 0);
			if (info.level >= KEDGE_LEVEL_ORDERED)
				must_work(nf);
			lesser += info.level < level;
			kedge_notifier_close(nf);
		}
		assert_true(!rc || documented(rc));
		nothing_left();
	}
	assert_true(lesser > 0);
}

static void a_watch_is_added_or_not(void **state)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	int step, rc, hit = 1, errors = 0;

	remember();
	for (step = 1; hit; step++) {
		struct kedge_notifier *nf = open_uffd();
		struct kedge_event ev[2];

		fault_at(step);
		rc = kedge_watch_add(nf, page, 1, 1);
		hit = fault_hit();
		fault_at(0);
		assert_int_equal(kedge_notifier_info(nf, &info), 0);
		assert_int_equal(info.watches, rc >= 0);
		if (rc < 0) {
			if (rc != -ENOMEM && rc != -ENOSPC &&
			    rc != -EOPNOTSUPP)
				fail_msg("step %d, %s: %d", step, fault_name(),
					 rc);
			errors++;
			must_work(nf); /* with the same cookie */
		} else {
			pages_at(page, 1);
			if (kedge_notifier_read(nf, ev, 2) != 2)
				fail_msg("step %d, %s: not seen", step,
					 fault_name());
		}
		kedge_notifier_close(nf);
		nothing_left();
	}
	print_message("%d steps, %d of them needed\n", step - 2, errors);
	assert_true(errors >= 3);
}

static int make_a_sharer(void *unused)
{
	struct kedge_notifier *nf = NULL;

	fault_at(1);
	kedge_hook_sharing(0);
	CHILD_CHECK(fault_hit());
	fault_at(0);
	kedge_hook_sharing(-1);
	nf = open_uffd();
	CHILD_CHECK(kedge_watch_add(nf, page, page_len(), 1) == KEDGE_WATCH_PROVISIONAL);
	kedge_notifier_close(nf);
	return 0;
}

/* Who shares the memory cannot be remembered, so nothing is kept. In a process of its own. */
static void without_memory_for_sharers(void **state)
{
	need_threads_after_fork();
	assert_int_equal(in_child(make_a_sharer, NULL), 0);
}

#define NEEDED need_uffd
#include "test_notifier_faults.cases.h"
