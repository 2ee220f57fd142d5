// SPDX-License-Identifier: BSD-2-Clause
/* Operations under way when what they need ends, or the thread that waits for them. */
#include <sys/time.h>

#include "look.h"
#include "submit.h"
#include "suites.h"

/* ---- ends ---- */

static void what_is_under_way_is_cancelled(void **state)
{
	static char large[3 << 20];
	struct kedge_remote_op o[6];
	uint64_t i;

	make_region(sizeof(large), NULL);
	remote = open_it();
	queue = make_queue(0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	for (i = 0; i < 6; i++) {
		o[i] = put_of(0, large, sizeof(large), i);
		o[i].timeout_ms = -1;
	}
	submit(remote, o, 6);
	kedge_remote_close(remote);
	for (i = 0; i < 6; i++)
		assert_string_not_equal(
			kedge_remote_strerror(&(struct kedge_remote_completion[]){
				ends(i, -ECANCELED) }[0]), "");
	assert_int_equal(read_now(), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	remote = open_it();
	submit(remote, o, 1);
	ends(0, 0);
	end_queue();
}

/* It closes the remote, or resumes the region, once the other thread waits. */
static void *resume_soon(void *unused)
{
	const _Atomic pid_t first = getpid();

	look_asleep(&first);
	kedge_region_resume(region);
	return unused;
}

static void closing_a_queue_waits_for_operations(void **state)
{
	struct kedge_remote_op o[2] = { add_of(8, 1, 1), add_of(8, 1, 2) };
	pthread_t t;

	begin_queue(0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, o, 2);
	assert_int_equal(pthread_create(&t, NULL, resume_soon, NULL), 0);
	kedge_queue_close(queue);
	assert_int_equal(((uint64_t *)(void *)region_at())[1], 2);
	pthread_join(t, NULL);
	end_remote();
}

static void a_child_has_none_of_them(void **state)
{
	struct kedge_remote_op o[2] = { add_of(8, 1, 1), add_of(8, 1, 2) };
	struct kedge_remote_completion c = { .size = sizeof(c) };
	struct kedge_queue *parents;
	pid_t pid;
	int fd;

	need_threads_after_fork();
	begin_queue(0);
	fd = kedge_queue_fd(queue);
	assert_true(fd >= 0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, o, 2);
	pid = fork_child();
	if (!pid) {
		parents = queue;
		CHILD_CHECK(kedge_remote_submit(remote, queue, o, 1) == -ECHILD);
		CHILD_CHECK(kedge_queue_read(queue, &c, 1, -1) == -ECHILD);
		CHILD_CHECK(kedge_queue_fd(queue) == -ECHILD);
		kedge_remote_close(remote);
		make_region(LEN, NULL);
		remote = open_it();
		CHILD_CHECK(kedge_remote_submit(remote, parents, o, 1) == -ECHILD);
		queue = make_queue(0);
		CHILD_CHECK(kedge_remote_submit(remote, queue, o, 2) == 2);
		CHILD_CHECK(kedge_queue_read(queue, &c, 1, SOON_MS) == 1 && !c.status);
		CHILD_CHECK(kedge_queue_read(queue, &c, 1, SOON_MS) == 1 && !c.status);
		end_queue();
		kedge_queue_close(parents);
		_exit(0);
	}
	reap(pid);
	assert_int_equal(kedge_region_resume(region), 0);
	ends(1, 0);
	ends(2, 0);
	end_queue();
}

/* Not as a leak checker ends it, which takes what the ended threads had for lost. */
static void end_at_once(void)
{
	_exit(0);
}

/* The library's threads do not keep a process whose own have ended. */
static void it_does_not_keep_the_process(void **state)
{
	struct kedge_remote_op o = add_of(8, 1, 1);
	pid_t pid;

	need_threads_after_fork();
	pid = fork_child();
	if (!pid) {
		alarm(CHILD_TIMEOUT);
		atexit(end_at_once);
		begin_queue(0);
		kedge_region_suspend(region, SOON_MS);
		o.timeout_ms = -1;
		submit(remote, &o, 1);
		pthread_exit(NULL);
	}
	reap(pid);
}

/* ---- threads that are interrupted ---- */

static _Atomic int ticks;

static void tick(int sig)
{
	ticks++;
}

static void signals_do_not_end_a_wait(void **state)
{
	const struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction sa = { .sa_handler = tick }, was;
	struct kedge_remote_op o = add_of(8, 1, 1);
	pthread_t t;

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	submit(remote, &o, 1);
	assert_int_equal(sigaction(SIGALRM, &sa, &was), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	WAIT_FOR(ticks > 3);
	assert_int_equal(pthread_create(&t, NULL, resume_soon, NULL), 0);
	ends(1, 0);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &was, NULL), 0);
	pthread_join(t, NULL);
}

static void *submit_for_ever(void *unused)
{
	struct kedge_remote_op o = add_of(8, 1, 1);

	while (kedge_remote_submit(remote, queue, &o, 1) != -EINVAL)
		pthread_testcancel();
	return unused;
}

static void *read_for_ever(void *arg)
{
	_Atomic uint64_t *cnt = arg;
	struct kedge_remote_completion c = { .size = sizeof(c) };

	for (;;) {
		atomic_fetch_add(cnt, (uint64_t)kedge_queue_read(queue, &c, 1, 5));
		pthread_testcancel();
	}
	return NULL;
}

/* A thread that is cancelled at any moment has taken its completion, or not. */
static void a_cancelled_reader_loses_none(void **state)
{
	struct kedge_remote_op o = add_of(8, 1, 1);
	_Atomic uint64_t got = 0, sent = 0;
	pthread_t t;
	int i, rc;

	for (i = 0; i < 50; i++) {
		assert_int_equal(pthread_create(&t, NULL, read_for_ever, (void *)&got), 0);
		do {
			rc = kedge_remote_submit(remote, queue, &o, 1);
			sent += rc == 1;
		} while (sent % 37);
		pthread_cancel(t);
		pthread_join(t, NULL);
	}
	while (got < sent) {
		ends(1, 0);
		got++;
	}
	assert_int_equal(read_now(), 0);
	assert_int_equal(((uint64_t *)(void *)region_at())[1], sent);
}

/* Nor has one that submits left an operation without its completion. */
static void a_cancelled_thread_submits_whole_operations(void **state)
{
	struct kedge_remote_completion c = { .size = sizeof(c) };
	uint64_t got = 0, least;
	pthread_t t;
	int i;

	for (i = 0; i < 50; i++) {
		assert_int_equal(pthread_create(&t, NULL, submit_for_ever, NULL), 0);
		for (least = got + 20; got < least; got++)
			ends(1, 0);
		pthread_cancel(t);
		pthread_join(t, NULL);
	}
	kedge_remote_close(remote);
	while (kedge_queue_read(queue, &c, 1, 0) == 1)
		got += !c.status;
	remote = open_it();
	if (!way->served)
		assert_int_equal(((uint64_t *)(void *)region_at())[1], got);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_is_under_way_is_cancelled),
	cmocka_unit_test(closing_a_queue_waits_for_operations),
	cmocka_unit_test(a_child_has_none_of_them),
	cmocka_unit_test(it_does_not_keep_the_process),
	queue_case(signals_do_not_end_a_wait),
	queue_case(a_cancelled_reader_loses_none),
	queue_case(a_cancelled_thread_submits_whole_operations),
};

const struct suite suite_submit_ends = {
	.name = "submit_ends", SUITE_OF(tests), .by = "tcp",
};
