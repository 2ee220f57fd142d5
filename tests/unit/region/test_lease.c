// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers that put and get by an adapter, a fake one (fake_fabric.c): when they do, and what becomes
 * of a lease that is in the way of the owner, whose peer does not answer, or whose adapter fails.
 */
#include "clock.h"
#include "leased.h"
#include "target.h"

static unsigned int gets_done(void)
{
	return atomic_load(&fake_fabric()->gets);
}

static void puts_and_gets_go_by_it(void **state)
{
	const unsigned int puts = puts_done(), gets = gets_done();
	uint64_t old = 1;
	char c[16] = "";

	assert_int_equal(kedge_remote_put(remote, 100, "hello", 6, SOON_MS), 0);
	assert_string_equal(region_at() + 100, "hello");
	assert_int_equal(kedge_remote_get(remote, 100, c, 6, SOON_MS), 0);
	assert_string_equal(c, "hello");
	assert_int_equal(puts_done(), puts + 1);
	assert_int_equal(gets_done(), gets + 1);
	/* A number is the owner's affair: its processor adds to it as well. */
	assert_int_equal(kedge_remote_fetch_add(remote, 8, 5, &old, SOON_MS), 0);
	assert_int_equal(old, 0);
	assert_int_equal(region_at()[8], 5);
	assert_int_equal(puts_done(), puts + 1);
}

static void a_move_has_the_new_pages_leased(void **state)
{
	assert_int_equal(kedge_remote_put(remote, LEN - 1, "a", 1, SOON_MS), 0);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	assert_int_equal(region_at()[LEN - 1], 'a');
	puts_byte(remote, LEN - 2, 'b');
	wait_for_lease(remote);
	puts_byte(remote, LEN - 2, 'c');
	region_at()[LEN - 1] = 'd';
	gets_byte(remote, LEN - 1, 'd');
}

static void what_has_grown_is_leased_and_what_is_trimmed_is_not(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = LEN * 4 };

	assert_int_equal(kedge_region_create(LEN, &o, &region), 0);
	advertise(NULL);
	remote = open_it();
	wait_for_lease(remote);
	assert_int_equal(kedge_remote_put(remote, LEN, "x", 1, SOON_MS), -EFAULT);
	assert_int_equal(kedge_region_grow(region, LEN * 4), 0);
	WAIT_FOR(put_is_leased(LEN * 4 - 1));
	assert_int_equal(region_at()[LEN * 4 - 1], 'x');
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	assert_int_equal(kedge_remote_put(remote, LEN, "y", 1, SOON_MS), -EFAULT);
	WAIT_FOR(put_is_leased(LEN - 1));
	assert_int_equal(kedge_region_grow(region, LEN * 2), 0);
	assert_int_equal(region_at()[LEN], 0);
	puts_byte(remote, LEN, 'z');
	end_remote();
}

static void is_over_before_an_unmapping_is(void **state)
{
	unsigned int puts;
	int i;

	for (i = 0; i < 20; i++) {
		assert_int_equal(munmap(region_at() + 8192, 4096), 0);
		assert_int_equal(atomic_load(&fake_fabric()->live), 0);
		puts = puts_done();
		assert_int_equal(kedge_remote_put(remote, 8192, "x", 1, SOON_MS), -ENODATA);
		assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), 0);
		assert_int_equal(puts_done(), puts);
		assert_int_equal(kedge_region_recommit(region, 0, 0, NULL), 0);
		wait_for_lease(remote);
		assert_int_equal(kedge_remote_put(remote, 8192, "y", 1, SOON_MS), 0);
		assert_int_equal(puts_done(), puts + 1);
		assert_int_equal(region_at()[8192], 'y');
	}
}

/* ---- peers that do not answer ---- */

/* Of a new region: it stops itself, with a lease; then it puts. */
static pid_t stopped_peer(void)
{
	pid_t pid;

	need_threads_after_fork();
	make_region(LEN, NULL);
	pid = fork_child();
	if (!pid) {
		remote = open_it();
		wait_for_lease(remote);
		raise(SIGSTOP);
		CHILD_CHECK(!kedge_remote_put(remote, 0, "s", 1, SOON_MS));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	return pid;
}

static void one_that_is_stopped_fails_a_suspension(void **state)
{
	const pid_t pid = stopped_peer();

	test_clock_hurry(10);
	assert_int_equal(kedge_region_suspend(region, 100), -ETIMEDOUT);
	test_clock_rest();
	assert_non_null(strstr(kedge_strerror(-ETIMEDOUT), "is it stopped?"));
	kill(pid, SIGCONT);
	reap(pid);
	assert_int_equal(region_at()[0], 's');
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	kedge_region_close(region);
}

static void one_that_is_stopped_loses_its_lease_to_an_unmapping(void **state)
{
	const pid_t pid = stopped_peer();

	assert_int_equal(atomic_load(&fake_fabric()->live), 1);
	test_clock_hurry(100);
	assert_int_equal(munmap(region_at() + 8192, 4096), 0);
	test_clock_rest();
	assert_int_equal(atomic_load(&fake_fabric()->live), 0);
	kill(pid, SIGCONT);
	reap(pid);
	assert_int_equal(region_at()[0], 's');
	kedge_region_close(region);
}

/* ---- a region that migrates ---- */

static void is_copied(int rdma)
{
	struct kedge_migrate_info how = { .size = sizeof(how) };
	struct target *target = target_new();
	char *got = malloc(LEN), *put = malloc(LEN);

	assert_true(got && put);
	memset(put, 'p', LEN);
	start_processes();
	target_start(target);
	make_region(LEN, NULL);
	remote = open_it();
	memcpy(region_at(), put, LEN);
	migrate_to(target, NULL, &how);
	assert_int_equal(how.rdma, rdma);
	assert_int_equal(kedge_remote_get(remote, 0, got, LEN, SOON_MS), 0);
	assert_memory_equal(got, put, LEN);
	free(got);
	free(put);
	end_remote();
	target_end(target);
}

static void adapters_that_fail_leave_it_to_the_stream(void **state)
{
	need_threads_after_fork();
	atomic_store(&fake_fabric()->fails, 1);
	is_copied(0);
	atomic_store(&fake_fabric()->fails, 0);
	is_copied(1);
	atomic_store(&fake_fabric()->refuses, 1);
	is_copied(0);
	atomic_store(&fake_fabric()->refuses, 0);
}

/* ---- where there is none ---- */

static void an_adapter_that_fails_is_given_up(void **state)
{
	unsigned int threads;
	int i;

	threads = threads_now();
	atomic_store(&fake_fabric()->fails, 1);
	for (i = 0; i < 3; i++) {
		puts_byte(remote, (uint64_t)i, 'f');
		/* It cannot arrive once more, behind what comes next. */
		assert_true(atomic_load(
			&fake_fabric()->is_over[atomic_load(&fake_fabric()->failed)]));
		if (i < 2)
			wait_for_lease(remote);
	}
	WAIT_FOR(threads_now() == threads - 1);
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	atomic_store(&fake_fabric()->fails, 0);
	puts_byte(remote, 0, 'g');
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
}

static void without_an_adapter_the_owner_does_it(void **state)
{
	atomic_store(&fake_fabric()->refuses, 1);
	make_region(LEN, NULL);
	remote = open_it();
	puts_byte(remote, 0, 'x');
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	end_remote();
	atomic_store(&fake_fabric()->refuses, 0);
}

static void not_every_handle_has_a_lease(void **state)
{
	struct kedge_handle_opts o = { .size = sizeof(o), .access = KEDGE_HANDLE_WRITE };
	int fd;

	/* One that may not read. */
	make_region(LEN, &o);
	fd = dial_by_tcp();
	assert_int_equal(lease_by_hand(fd), -EOPNOTSUPP);
	close(fd);
	/* One that ends by itself. */
	o = (struct kedge_handle_opts){ .size = sizeof(o), .expires_ms = SOON_MS };
	advertise(&o);
	fd = dial_by_tcp();
	assert_int_equal(lease_by_hand(fd), -EOPNOTSUPP);
	close(fd);
	/* On one host there are better ways. */
	advertise(NULL);
	fd = open_by_hand();
	assert_int_equal(lease_by_hand(fd), -EOPNOTSUPP);
	close(fd);
	kedge_region_close(region);
}

static void one_lease_at_a_time(void **state)
{
	struct stream_req q = { .op = STREAM_LEASE_OVER, .seq = 2, .first = 2 };
	const unsigned int lent = atomic_load(&fake_fabric()->lent);
	int fd, i;

	make_region(LEN, NULL);
	fd = dial_by_tcp();
	/* One that is not there can be given back. */
	assert_int_equal(ask(fd, q), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(lease_by_hand(fd), 0);
		assert_int_equal(lease_by_hand(fd), -EPROTO);
		assert_int_equal(ask(fd, q), 0);
	}
	assert_int_equal(atomic_load(&fake_fabric()->lent), lent + 2);
	/* It is recalled, and the peer does not care; but ends. */
	assert_int_equal(lease_by_hand(fd), 0);
	assert_int_equal(kedge_region_suspend(region, 100), -ETIMEDOUT);
	close(fd);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	kedge_region_close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(adapters_that_fail_leave_it_to_the_stream),
	cmocka_unit_test(one_that_is_stopped_fails_a_suspension),
	cmocka_unit_test(one_that_is_stopped_loses_its_lease_to_an_unmapping),
	remote_case(is_over_before_an_unmapping_is),
	remote_case(puts_and_gets_go_by_it),
	remote_case(a_move_has_the_new_pages_leased),
	cmocka_unit_test(what_has_grown_is_leased_and_what_is_trimmed_is_not),
	remote_case(an_adapter_that_fails_is_given_up),
	cmocka_unit_test(without_an_adapter_the_owner_does_it),
	cmocka_unit_test(not_every_handle_has_a_lease),
	cmocka_unit_test(one_lease_at_a_time),
};

const struct suite suite = { "lease", SUITE_OF(tests), .by = "lease", .first = test_clock_begin };
