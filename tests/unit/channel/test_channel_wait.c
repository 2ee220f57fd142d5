// SPDX-License-Identifier: BSD-2-Clause
/*
 * Calls of channels that wait: each lasts until its time is up by the clock, for all the
 * slices in which it sleeps meanwhile, and no longer.
 */
#include <sys/un.h>

#include <kedge/tcp.h>

#include "channel_pair.h"
#include "clock.h"

#define HOUR_MS 3600000

static struct kedge_listener *listener;
static char at[64];

/* ---- calls that nobody answers ---- */

static int accept_one(int ms)
{
	struct kedge_channel *ch;

	return kedge_listener_accept(listener, ms, &ch);
}

static int accept_over_shm(int ms)
{
	assert_int_equal(kedge_listener_open_shm(at, NULL, &listener), 0);
	return accept_one(ms);
}

static int accept_over_tcp(int ms)
{
	assert_int_equal(kedge_listener_open_tcp("127.0.0.1", "0", NULL, &listener), 0);
	return accept_one(ms);
}

/* The listener does not accept. */
static int open_over_shm(int ms)
{
	struct kedge_channel *ch;

	assert_int_equal(kedge_listener_open_shm(at, NULL, &listener), 0);
	return kedge_channel_open_shm(at, NULL, ms, &ch);
}

static int open_over_tcp(int ms)
{
	char text[KEDGE_ADDRESS_MAX];
	struct kedge_channel *ch;

	assert_int_equal(kedge_listener_open_tcp("127.0.0.1", "0", NULL, &listener), 0);
	assert_int_equal(kedge_listener_address(listener, text, sizeof(text)), 0);
	return kedge_channel_open_tcp("127.0.0.1", strrchr(text, ':'), NULL, ms, &ch);
}

static int open_over_a_socket(int ms)
{
	struct kedge_channel *ch;
	int sv[2], rc;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	rc = kedge_channel_open_fd(sv[0], NULL, ms, &ch);
	close(sv[0]);
	close(sv[1]);
	return rc;
}

static void each_try_to_meet_lasts_as_long_as_it_may(void **state)
{
	int (*const calls[])(int ms) = { accept_over_shm, accept_over_tcp, open_over_shm,
					 open_over_tcp, open_over_a_socket };
	uint64_t until;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		listener = NULL;
		test_clock_hurry(HOUR_MS / 8);
		until = clock_after_ms(HOUR_MS);
		assert_int_equal(calls[i](HOUR_MS), -ETIMEDOUT);
		assert_true(clock_ns() >= until);
		test_clock_rest();
		kedge_listener_close(listener);
	}
}

/* ---- waiting for what a peer sends ---- */

/* A receive that has so long; 0 is the channel's time. */
static void post_for(uint32_t ms)
{
	static char in[8];
	struct iovec v = { in, sizeof(in) };
	struct kedge_message m = { .size = sizeof(m), .pieces = &v, .cnt = 1, .tag = 1,
				   .mask = UINT64_MAX, .timeout_ms = ms };

	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
}

#define FAR_MS (400 * HOUR_MS)

/* @own_ms: of each operation, which makes a timer. */
static void wait_over(const char *over, uint32_t own_ms)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = own_ms };
	uint64_t until, far;

	setenv("TEST_CHANNEL_OVER", over, 1);
	open_pair(NULL, &o);
	far = clock_after_ms(FAR_MS);
	post_for(own_ms ? 0 : FAR_MS);
	/* The caller's own time is the sooner one, also if this thread does not run for a while. */
	test_clock_hurry(HOUR_MS / 60);
	until = clock_after_ms(HOUR_MS);
	assert_int_equal(kedge_channel_wait(b.ch, HOUR_MS), 0);
	assert_true(clock_ns() >= until);
	test_clock_rest();
	/* That of the operation is: something is to be seen. */
	test_clock_hurry(FAR_MS / 16);
	assert_int_equal(kedge_channel_wait(b.ch, -1), 1);
	assert_int_equal(turn(&b), 1);
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	assert_true(clock_ns() >= far);
	test_clock_rest();
	close_pair();
}

static void each_wait_lasts_as_long_as_it_may(void **state)
{
	wait_over("shm", 0);
	wait_over("shm", FAR_MS);
	wait_over("tcp", 0);
	wait_over("tcp", FAR_MS);
}

static void the_descriptor_tells_that_a_time_is_up(void **state)
{
	const struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = HOUR_MS };
	struct pollfd p = { .events = POLLIN };
	uint64_t until;

	setenv("TEST_CHANNEL_OVER", "shm", 1);
	open_pair(NULL, &o);
	until = clock_after_ms(HOUR_MS);
	post_for(0);
	p.fd = kedge_channel_fd(b.ch);
	test_clock_hurry(HOUR_MS / 8);
	while (!b.cnt) {
		if (!kedge_channel_arm(b.ch))
			assert_int_equal(poll(&p, 1, -1), 1);
		assert_true(turn(&b) >= 0);
	}
	test_clock_rest();
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	assert_true(clock_ns() >= until);
	close_pair();
}

static int begin(void **state)
{
	(void)state;
	test_clock_begin();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_try_to_meet_lasts_as_long_as_it_may),
		cmocka_unit_test(each_wait_lasts_as_long_as_it_may),
		cmocka_unit_test(the_descriptor_tells_that_a_time_is_up),
	};

	snprintf(at, sizeof(at), "@kedge-test-wait-%d", (int)getpid());
	return cmocka_run_group_tests(tests, begin, NULL);
}
