// SPDX-License-Identifier: BSD-2-Clause
/* The clock that a test moves: who waits for an hour is through at once when it is over. */
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#include "base/base.h"
#include "clock.h"
#include "cases.h"

#define HOUR_MS 3600000

static void wait_by_poll(uint64_t until)
{
	while (clock_ns() < until)
		poll(NULL, 0, clock_wait_ms(until));
}

static void wait_by_clock_poll(uint64_t until)
{
	assert_int_equal(clock_poll(NULL, 0, until), 0);
	assert_true(clock_ns() >= until);
}

static void wait_by_futex(uint64_t until)
{
	static uint32_t word;
	struct timespec ts;

	while (clock_ns() < until) {
		ts = clock_wait_ts(until);
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &ts, NULL, 0);
	}
}

static void wait_by_cond(uint64_t until)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond;

	assert_int_equal(clock_cond_init(&cond), 0);
	pthread_mutex_lock(&lock);
	while (!clock_cond_wait(&cond, &lock, until))
		;
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&cond);
}

static void wait_by_timer(uint64_t until)
{
	const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	struct itimerspec when = { 0 };
	uint64_t cnt;

	assert_true(fd >= 0);
	while (clock_ns() < until) {
		when.it_value = clock_until_ts(until);
		timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL);
		assert_int_equal(read(fd, &cnt, sizeof(cnt)), sizeof(cnt));
	}
	close(fd);
}

static void (*const ways[])(uint64_t until) = { wait_by_poll, wait_by_clock_poll, wait_by_futex,
						wait_by_cond, wait_by_timer };

struct waiter {
	void (*wait)(uint64_t until);
	uint64_t until;
	pthread_t thread;
};

static _Atomic unsigned int begun;

static void *wait_for_hour(void *arg)
{
	struct waiter *w = arg;

	atomic_fetch_add(&begun, 1);
	w->wait(w->until);
	return NULL;
}

static void each_way_of_waiting_sees_the_clock_move(void **state)
{
	struct waiter w[ARRAY_SIZE(ways)];
	size_t i;

	test_clock_begin();
	atomic_store(&begun, 0);
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		w[i].wait = ways[i];
		w[i].until = clock_after_ms(HOUR_MS);
		assert_int_equal(pthread_create(&w[i].thread, NULL, wait_for_hour, &w[i]), 0);
	}
	WAIT_FOR(atomic_load(&begun) == ARRAY_SIZE(ways));
	for (i = 0; i < ARRAY_SIZE(ways); i++)
		assert_int_equal(pthread_tryjoin_np(w[i].thread, NULL), EBUSY);
	test_clock_move_ms(HOUR_MS);
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		pthread_join(w[i].thread, NULL);
		assert_true(clock_ns() >= w[i].until);
	}
	test_clock_end();
}

static void a_process_behind_a_fork_shares_the_moved_clock(void **state)
{
	uint64_t until;
	size_t i;
	pid_t pid;

	test_clock_begin();
	until = clock_after_ms(HOUR_MS);
	fflush(NULL);
	pid = fork();
	assert_int_not_equal(pid, -1);
	if (!pid) {
		alarm(CHILD_TIMEOUT);
		for (i = 0; i < ARRAY_SIZE(ways); i++)
			ways[i](until);
		CHILD_CHECK(clock_ns() >= until);
		_exit(0);
	}
	test_clock_move_ms(HOUR_MS);
	ended_well(pid);
	test_clock_end();
}

static void what_is_told_of_the_time_is_no_slice(void **state)
{
	test_clock_begin();
	assert_in_range(clock_left_ms(clock_after_ms(HOUR_MS)), HOUR_MS / 2, HOUR_MS);
	assert_int_equal(clock_wait_ms(clock_after_ms(HOUR_MS)), 1);
	assert_int_equal(clock_wait_ms(clock_ns()), 0);
	assert_int_equal(clock_wait_ms(CLOCK_NEVER), -1);
	test_clock_end();
	assert_in_range(clock_wait_ms(clock_after_ms(HOUR_MS)), HOUR_MS / 2, HOUR_MS);
}

static void a_wait_of_one_thread_ends_as_another_hurries_the_clock(void **state)
{
	const uint64_t until = clock_after_ms(HOUR_MS);

	test_clock_begin();
	test_clock_hurry(HOUR_MS / 4);
	wait_by_clock_poll(until);
	test_clock_rest();
	test_clock_end();
}

static void the_sooner_of_two_is_no_later_than_either(void **state)
{
	const uint64_t soon = clock_after_ms(1000);

	assert_true(clock_sooner(soon, HOUR_MS * 1000000ull) == soon);
	assert_true(clock_sooner(clock_after_ms(HOUR_MS), 1000) < soon);
	assert_true(clock_sooner(CLOCK_NEVER, 1000) < soon);
	assert_true(clock_sooner(CLOCK_NEVER, CLOCK_NEVER) == CLOCK_NEVER);
}

static void what_comes_ends_a_wait_before_its_deadline(void **state)
{
	struct pollfd p = { .events = POLLIN };
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	p.fd = fds[0];
	assert_int_equal(clock_poll(&p, 1, clock_after_ms(HOUR_MS)), 1);
	assert_int_equal(clock_poll(&p, 1, CLOCK_NEVER), 1);
	/* Also one that is over: it is a look. */
	assert_int_equal(clock_poll(&p, 1, clock_ns()), 1);
	close(fds[0]);
	close(fds[1]);
}

static void a_deadline_does_not_wrap(void **state)
{
	assert_true(clock_after_ns(UINT64_MAX) == CLOCK_NEVER);
	assert_true(clock_after_ms(UINT64_MAX) == CLOCK_NEVER);
	assert_true(clock_after_ms(UINT64_MAX / 1000000u) == CLOCK_NEVER);
	assert_true(clock_deadline(-1) == CLOCK_NEVER);
	assert_true(clock_deadline(INT_MAX) > clock_ns());
	assert_int_equal(clock_left_ms(CLOCK_NEVER), -1);
	assert_int_equal(clock_left_ms(CLOCK_NEVER - 1), INT_MAX);
	assert_int_equal(clock_left_ms(0), 0);
}

static void both_clocks_move(void **state)
{
	uint64_t fine, coarse;

	test_clock_begin();
	fine = clock_ns();
	coarse = clock_coarse_ns();
	test_clock_move_ms(HOUR_MS);
	assert_true(clock_ns() >= fine + HOUR_MS * 1000000ull);
	assert_true(clock_coarse_ns() >= coarse + HOUR_MS * 1000000ull);
	test_clock_end();
}

/* A sandbox may let a process have no descriptors. A loop around the poll does not spin then. */
static void a_poll_that_is_refused_takes_time(void **state)
{
	struct rlimit was, none;
	struct pollfd p = { .fd = -1 };
	uint64_t begin;
	int rc, err;

	getrlimit(RLIMIT_NOFILE, &was);
	none = (struct rlimit){ 0, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	begin = clock_ns();
	rc = clock_poll(&p, 1, CLOCK_NEVER);
	err = errno;
	setrlimit(RLIMIT_NOFILE, &was);
	assert_int_equal(rc, -1);
	assert_int_equal(err, EINVAL);
	assert_true(clock_ns() - begin >= CLOCK_REFUSED_NS);
}

#define LISTED PLAIN
#include "test_clock.cases.h"
