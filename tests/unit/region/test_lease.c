// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers that put and get by an adapter, a fake one (fake_fabric.c): when they do, and what becomes
 * of a lease that is in the way of the owner, whose peer does not answer, or whose adapter fails.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "leased.h"
#include "target.h"

#define COPIES 512

static unsigned int gets_done(void)
{
	return atomic_load(&fake_fabric()->gets);
}

static void puts_and_gets_go_by_it(void **state)
{
	const unsigned int puts = puts_done(), gets = gets_done();
	uint64_t old = 1;
	char c[16] = "";

	begin_leased(NULL);
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
	end_remote();
}

static void nothing_goes_by_it_in_a_suspension(void **state)
{
	char c;

	begin_leased(NULL);
	region_at()[0] = 'a';
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	assert_int_equal(kedge_remote_put(remote, 0, "b", 1, 10), -ETIMEDOUT);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, 10), -ETIMEDOUT);
	assert_int_equal(region_at()[0], 'a');
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	assert_int_equal(kedge_region_resume(region), 0);
	wait_for_lease(remote);
	assert_int_equal(kedge_remote_put(remote, 0, "b", 1, SOON_MS), 0);
	assert_int_equal(region_at()[0], 'b');
	end_remote();
}

static void a_move_has_the_new_pages_leased(void **state)
{
	char c;

	begin_leased(NULL);
	assert_int_equal(kedge_remote_put(remote, LEN - 1, "a", 1, SOON_MS), 0);
	assert_int_equal(kedge_region_move(region, NULL, SOON_MS, NULL), 0);
	assert_int_equal(region_at()[LEN - 1], 'a');
	assert_int_equal(kedge_remote_put(remote, LEN - 2, "b", 1, SOON_MS), 0);
	assert_int_equal(region_at()[LEN - 2], 'b');
	wait_for_lease(remote);
	assert_int_equal(kedge_remote_put(remote, LEN - 2, "c", 1, SOON_MS), 0);
	assert_int_equal(region_at()[LEN - 2], 'c');
	region_at()[LEN - 1] = 'd';
	assert_int_equal(kedge_remote_get(remote, LEN - 1, &c, 1, SOON_MS), 0);
	assert_int_equal(c, 'd');
	end_remote();
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
	assert_int_equal(kedge_remote_put(remote, LEN, "z", 1, SOON_MS), 0);
	assert_int_equal(region_at()[LEN], 'z');
	end_remote();
}

static void a_revoked_handle_has_no_lease(void **state)
{
	struct kedge_handle own;
	unsigned int puts;

	begin_leased(NULL);
	own = handle;
	own.bytes[16] ^= 1;
	assert_int_equal(kedge_region_revoke(region, &own), 0);
	puts = puts_done();
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), -EKEYREVOKED);
	assert_int_equal(puts_done(), puts);
	assert_int_equal(region_at()[0], 0);
	end_remote();
	/* Nor has one of a region that is closed. */
	begin_leased(NULL);
	kedge_region_close(region);
	WAIT_FOR(kedge_remote_put(remote, 0, "x", 1, SOON_MS) == -EKEYREVOKED);
	kedge_remote_close(remote);
}

static void is_over_before_an_unmapping_is(void **state)
{
	unsigned int puts;
	int i;

	begin_leased(NULL);
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
	end_remote();
}

/* ---- peers that do not answer ---- */

/* It stops itself, with a lease; then it does what it is told at each continuation. */
static void peer(int step)
{
	char c = 's';

	remote = open_it();
	while (way_of(remote) != KEDGE_REMOTE_RDMA)
		usleep(1000);
	raise(SIGSTOP);
	if (step)
		CHILD_CHECK(!kedge_remote_put(remote, LEN, &c, 1, SOON_MS));
	CHILD_CHECK(!kedge_remote_put(remote, 0, &c, 1, SOON_MS));
	_exit(0);
}

static pid_t stopped_peer(int step)
{
	pid_t pid = fork_child();
	int status;

	if (!pid)
		peer(step);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	return pid;
}

static void one_that_is_stopped_fails_a_suspension(void **state)
{
	pid_t pid;

	need_threads_after_fork();
	make_region(LEN, NULL);
	pid = stopped_peer(0);
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

/* It stores nowhere else, and nothing that it is told is stored is lost. */
static void one_that_is_stopped_loses_its_lease_to_a_trim(void **state)
{
	struct kedge_region_opts o = { .size = sizeof(o), .max_len = LEN * 2 };
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(kedge_region_create(LEN * 2, &o, &region), 0);
	advertise(NULL);
	pid = stopped_peer(1);
	assert_int_equal(atomic_load(&fake_fabric()->live), 1);
	test_clock_hurry(100);
	assert_int_equal(kedge_region_trim(region, LEN), 0);
	test_clock_rest();
	assert_int_equal(atomic_load(&fake_fabric()->live), 0);
	assert_int_equal(kedge_region_grow(region, LEN * 2), 0);
	assert_int_equal(region_at()[LEN], 0);
	kill(pid, SIGCONT);
	reap(pid);
	assert_int_equal(region_at()[LEN], 's');
	assert_int_equal(region_at()[0], 's');
	kedge_region_close(region);
}

static void one_that_is_stopped_loses_its_lease_to_an_unmapping(void **state)
{
	pid_t pid;

	need_threads_after_fork();
	make_region(LEN, NULL);
	pid = stopped_peer(0);
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

static void one_that_is_killed_is_in_nobodys_way(void **state)
{
	pid_t pid;
	int status;

	need_threads_after_fork();
	make_region(LEN, NULL);
	pid = stopped_peer(0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
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
	begin_remote(NULL);
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

	begin_leased(NULL);
	threads = threads_now();
	atomic_store(&fake_fabric()->fails, 1);
	for (i = 0; i < 3; i++) {
		assert_int_equal(kedge_remote_put(remote, (uint64_t)i, "f", 1, SOON_MS), 0);
		assert_int_equal(region_at()[i], 'f');
		/* It cannot arrive once more, behind what comes next. */
		assert_true(atomic_load(
			&fake_fabric()->is_over[atomic_load(&fake_fabric()->failed)]));
		if (i < 2)
			wait_for_lease(remote);
	}
	WAIT_FOR(threads_now() == threads - 1);
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	atomic_store(&fake_fabric()->fails, 0);
	assert_int_equal(kedge_remote_put(remote, 0, "g", 1, SOON_MS), 0);
	assert_int_equal(region_at()[0], 'g');
	assert_int_equal(way_of(remote), KEDGE_REMOTE_SERVED);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	end_remote();
}

static void without_an_adapter_the_owner_does_it(void **state)
{
	atomic_store(&fake_fabric()->refuses, 1);
	begin_remote(NULL);
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), 0);
	assert_int_equal(region_at()[0], 'x');
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

static void rights_are_the_handles(void **state)
{
	struct kedge_handle_opts o = { .size = sizeof(o), .access = KEDGE_HANDLE_READ,
				       .offset = 4096, .len = 4096 };
	char c;

	begin_leased(&o);
	region_at()[4096] = 'r';
	assert_int_equal(kedge_remote_put(remote, 0, "x", 1, SOON_MS), -EACCES);
	assert_int_equal(kedge_remote_get(remote, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(c, 'r');
	assert_int_equal(kedge_remote_get(remote, 4096, &c, 1, SOON_MS), -EFAULT);
	end_remote();
}

/* ---- suspensions under load ---- */

static struct {
	struct kedge_remote *r;
	_Atomic bool stop;
	_Atomic uint64_t done;
	_Atomic int rc;
} load;

/* The same number in all of it: what is torn shows. */
static void *put_numbers(void *unused)
{
	uint64_t block[COPIES], n = 0;
	int i, rc = 0;

	(void)unused;
	while (!rc && !atomic_load(&load.stop)) {
		n++;
		for (i = 0; i < COPIES; i++)
			block[i] = n;
		rc = kedge_remote_put(load.r, 0, block, sizeof(block), SOON_MS);
		if (!rc)
			atomic_store(&load.done, n);
	}
	atomic_store(&load.rc, rc);
	return NULL;
}

static void no_put_is_torn_or_lost(void **state)
{
	const unsigned int puts = puts_done();
	volatile uint64_t *at;
	uint64_t done, before;
	pthread_t t;
	int n, i;

	begin_leased(NULL);
	load.r = remote;
	atomic_store(&load.stop, false);
	atomic_store(&load.done, 0);
	assert_int_equal(pthread_create(&t, NULL, put_numbers, NULL), 0);
	for (n = 0; n < 200; n++) {
		before = atomic_load(&load.done);
		WAIT_FOR(atomic_load(&load.done) > before);
		if (n % 4 == 3)
			wait_for_lease(remote);
		assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
		done = atomic_load(&load.done);
		at = (volatile uint64_t *)(void *)region_at();
		for (i = 0; i < COPIES; i++)
			assert_int_equal(at[i], at[0]);
		assert_in_range(at[0], done, done + 1);
		assert_int_equal(kedge_region_resume(region), 0);
	}
	atomic_store(&load.stop, true);
	pthread_join(t, NULL);
	assert_int_equal(atomic_load(&load.rc), 0);
	assert_true(puts_done() > puts);
	end_remote();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(adapters_that_fail_leave_it_to_the_stream),
	cmocka_unit_test(one_that_is_stopped_fails_a_suspension),
	cmocka_unit_test(one_that_is_stopped_loses_its_lease_to_a_trim),
	cmocka_unit_test(one_that_is_stopped_loses_its_lease_to_an_unmapping),
	cmocka_unit_test(is_over_before_an_unmapping_is),
	cmocka_unit_test(one_that_is_killed_is_in_nobodys_way),
	cmocka_unit_test(puts_and_gets_go_by_it),
	cmocka_unit_test(nothing_goes_by_it_in_a_suspension),
	cmocka_unit_test(a_move_has_the_new_pages_leased),
	cmocka_unit_test(what_has_grown_is_leased_and_what_is_trimmed_is_not),
	cmocka_unit_test(a_revoked_handle_has_no_lease),
	cmocka_unit_test(an_adapter_that_fails_is_given_up),
	cmocka_unit_test(without_an_adapter_the_owner_does_it),
	cmocka_unit_test(not_every_handle_has_a_lease),
	cmocka_unit_test(one_lease_at_a_time),
	cmocka_unit_test(rights_are_the_handles),
	cmocka_unit_test(no_put_is_torn_or_lost),
};

int main(void)
{
	const struct suite s = { "lease", SUITE_OF(tests), .by = "lease" };

	test_clock_begin();
	return suite_run(&s, NULL);
}
