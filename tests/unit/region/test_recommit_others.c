// SPDX-License-Identifier: BSD-2-Clause
/*
 * Parts of a region that the program has taken away: for operations that are submitted, a
 * migration, a process that is refused userfaultfd later, huge pages, and pages swapped out.
 */
#include <sys/sysinfo.h>

#include "look.h"
#include "recommit.h"
#include "submit.h"
#include "suites.h"

static void submitted_operations_say_so(void **state)
{
	struct kedge_remote_completion first;
	char c = 'x', buf[2 * PART];
	struct kedge_remote_part two[2] = { { 0, buf, PART }, { FROM + PART - 1, buf + PART, 1 } };
	struct kedge_remote_part none[3] = { { 5, &c, 1 }, { FROM + PART - 1, &c, 1 },
					     { FROM + PART + 5, &c, 1 } };
	struct kedge_remote_part around[2] = { { 0, buf, PART }, { FROM + PART, buf + PART, 1 } };
	struct kedge_remote_op op[5] = {
		put_of(FROM, &c, 1, 0), get_of(0, NULL, 0, 1), put_of(FROM + PART, &c, 1, 2),
		get_of(0, NULL, 0, 3), put_of(0, NULL, 0, 4),
	};

	op[1].parts = two;
	op[1].part_cnt = 2;
	op[3].parts = around;
	op[3].part_cnt = 2;
	op[4].parts = none;
	op[4].part_cnt = 3;
	queue = make_queue(0);
	unmap_part();
	submit(remote, op, 5);
	first = ends(0, -ENODATA);
	assert_non_null(strstr(kedge_remote_strerror(&first), "kedge_region_recommit()"));
	ends(1, -ENODATA);
	ends(2, 0);
	ends(3, 0);
	ends(4, -ENODATA);
	assert_int_equal(at[5], 'o');
	assert_int_equal(at[FROM + PART + 5], 'o');
	assert_int_equal(buf[PART], 'x');
	assert_int_equal(at[FROM + PART], 'x');
	assert_int_equal(kedge_region_recommit(region, 0, 0, NULL), 0);
	assert_int_equal(at[FROM], 'o');
	submit(remote, op, 1);
	ends(0, 0);
	assert_int_equal(at[FROM], 'x');
	kedge_queue_close(queue);
}

static int freeze_rc;
static char frozen_byte;

/* The last moment in which the program may store, and in which peers are served still. */
static int unmap_in_time(void *unused)
{
	unmap_part();
	freeze_rc = kedge_remote_get(remote, FROM, &frozen_byte, 1, SOON_MS);
	return 0;
}

static void *accept_it(void *invitation)
{
	struct kedge_region *r = NULL;

	kedge_invitation_accept(invitation, SOON_MS, &r);
	return r;
}

/* Another owner is given what the program had in its mapping, or nothing. */
static void it_does_not_migrate(void **state)
{
	struct kedge_migrate_opts o = { .size = sizeof(o), .timeout_ms = SOON_MS,
					.freeze = unmap_in_time };
	struct kedge_recommit_info info;
	struct kedge_invitation *i;
	struct kedge_handle h;
	pthread_t thread;
	void *next;

	assert_int_equal(kedge_invitation_open(NULL, &i, &h), 0);
	unmap_part();
	assert_int_equal(kedge_region_migrate(region, &h, NULL, NULL), -ENODATA);
	assert_non_null(strstr(kedge_strerror(-ENODATA), "16384 to 24576"));
	is_missing();
	assert_int_equal(recommit(0, 0, &info), 0);
	assert_int_equal(pthread_create(&thread, NULL, accept_it, i), 0);
	freeze_rc = 0;
	assert_int_equal(kedge_region_migrate(region, &h, &o, NULL), -ENODATA);
	pthread_join(thread, &next);
	assert_null(next);
	assert_int_equal(freeze_rc, -ENODATA);
	is_missing();
	assert_int_equal(recommit(0, 0, &info), 0);
	kedge_invitation_close(i);
	is_whole();
}

/* A process may be refused userfaultfd from some time on. */
static int it_may_be_refused_later(void *unused)
{
	char c;

	begin_watched();
	CHILD_CHECK(refuse_call(SYS_userfaultfd));
	/* A region that is there goes on. */
	unmap_part();
	is_missing();
	CHILD_CHECK(!kedge_region_recommit(region, 0, 0, NULL));
	CHILD_CHECK(!kedge_region_move(region, NULL, SOON_MS, NULL));
	unmap_part();
	CHILD_CHECK(kedge_remote_get(remote, FROM, &c, 1, SOON_MS) == -ENODATA);
	CHILD_CHECK(!kedge_region_recommit(region, 0, 0, NULL));
	end_remote();
	/* Another region has none. */
	make_region(LEN, NULL);
	remote = open_it();
	at = region_at();
	CHILD_CHECK(!(query(region).flags & KEDGE_REGION_WATCHED));
	CHILD_CHECK(way_of(remote) == KEDGE_REMOTE_SERVED);
	unmap_part();
	CHILD_CHECK(kedge_remote_get(remote, FROM, &c, 1, SOON_MS) == -ENODATA);
	CHILD_CHECK(kedge_remote_get(remote, 0, &c, 1, SOON_MS) == 0);
	CHILD_CHECK(!kedge_region_recommit(region, 0, 0, NULL));
	CHILD_CHECK(kedge_remote_get(remote, FROM, &c, 1, SOON_MS) == 0);
	end_remote();
	return 0;
}

static void huge_pages(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .page_size = (size_t)2 << 20 };
	struct kedge_recommit_info info;
	const size_t huge = o.page_size;
	char c;

	if (kedge_region_create(2 * huge, &o, &region)) {
		print_message("skipped: no huge pages are set aside: %s\n",
			      kedge_strerror(-ENOMEM));
		skip();
	}
	advertise(NULL);
	remote = open_it();
	at = region_at();
	memset(at, 'o', 2 * huge);
	assert_int_equal(munmap(at + huge, huge), 0);
	assert_int_equal(kedge_remote_get(remote, huge + 5, &c, 1, SOON_MS), -ENODATA);
	assert_int_equal(kedge_remote_get(remote, huge - 1, &c, 1, SOON_MS), 0);
	assert_int_equal(recommit(huge + 7, 1, &info), 0);
	assert_int_equal(info.mapped, huge);
	assert_int_equal(at[huge], 'o');
	assert_int_equal(kedge_remote_put(remote, 2 * huge - 1, "p", 1, SOON_MS), 0);
	assert_int_equal(at[2 * huge - 1], 'p');
	assert_int_equal(madvise(at + huge, huge, MADV_REMOVE), 0);
	if (is_told())
		assert_int_equal(kedge_remote_get(remote, huge, &c, 1, SOON_MS), -ENODATA);
	assert_int_equal(recommit(0, 0, &info), 0);
	assert_int_equal(info.lost, huge);
	assert_int_equal(at[huge], 0);
	assert_int_equal(kedge_remote_get(remote, huge, &c, 1, SOON_MS), 0);
	end_remote();
}

static bool has_swap(void)
{
	struct sysinfo i;

	return !sysinfo(&i) && i.freeswap >= LEN;
}

/* Pages stay that others have in their tables, as adapters do; here no peer has any yet. */
static void swap_out(void)
{
	assert_int_equal(syscall(SYS_munlock, at, LEN), 0);
	if (has_swap() && !way->leased)
		WAIT_FOR(!madvise(at, LEN, MADV_PAGEOUT) && look_smaps(at, "Swap") == LEN);
}

static void a_suspended_region_is_swapped_out_and_in(void **state)
{
	struct kedge_recommit_info info;
	char c;

	if (!has_swap())
		print_message("# no swap space here: the pages stay where they are\n");
	begin_watched();
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	swap_out();
	assert_int_equal(kedge_remote_get(remote, FROM, &c, 1, 1), -ETIMEDOUT);
	assert_int_equal(query(region).missing, 0);
	assert_int_equal(recommit(0, 0, &info), 0);
	assert_int_equal(info.lost + info.mapped, 0);
	assert_int_equal(look_smaps(at, "Swap"), 0);
	assert_true(look_status("VmLck") >= LEN);
	assert_int_equal(kedge_region_resume(region), 0);
	gets_byte(remote, FROM, 'o');
	assert_int_equal(at[LEN - 1], 'o');
	is_whole();
	end_remote();
}

static const struct CMUnitTest tests[] = {
	watched_case(submitted_operations_say_so),
	watched_case(it_does_not_migrate),
	child_case(it_may_be_refused_later),
	cmocka_unit_test(huge_pages),
	cmocka_unit_test(a_suspended_region_is_swapped_out_and_in),
};

const struct suite suite_recommit_others = {
	.name = "recommit_others", SUITE_OF(tests), .by = "mapped", .may_run = may_run,
};
