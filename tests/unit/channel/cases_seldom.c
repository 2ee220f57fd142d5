// SPDX-License-Identifier: BSD-2-Clause
/*
 * Programs that poll, but seldom, and never wait: between two polls goes longer than
 * the coarse clock needs to move. News for them must not take hundreds of polls.
 * Their number is decided by the clock alone, and no machine is too slow for it.
 */
#include "cases.h"

#define POLLS 8 /* in which it is told, at most */

/* So long that the coarse clock has moved. */
static void pause_longer(void)
{
	uint64_t was = clock_coarse_ns();

	while (clock_coarse_ns() == was)
		usleep(1000);
}

/* As a program that spun until now. */
static void spin(struct end *e)
{
	int i;

	for (i = 0; i < 1000; i++)
		assert_int_equal(turn(e), 0);
}

static void a_time_that_is_up_is_told(void **state)
{
	struct iovec v = { &v, sizeof(v) };
	struct kedge_message m = { .size = sizeof(m), .pieces = &v, .cnt = 1,
				   .tag = 5, .mask = UINT64_MAX,
				   .timeout_ms = 1 };
	int i;

	open_pair(NULL, NULL);
	spin(&b);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	for (i = 0; i < POLLS && !b.cnt; i++) {
		pause_longer();
		turn(&b);
	}
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	close_pair();
}

/* Each poll has a message to take. */
static void a_time_is_told_beside_messages(void **state)
{
	struct iovec v = { &v, sizeof(v) };
	struct kedge_message m = { .size = sizeof(m), .pieces = &v, .cnt = 1,
				   .tag = 5, .mask = UINT64_MAX,
				   .timeout_ms = 1 };
	char in[2 * POLLS];
	bool told = false;
	size_t n, k;
	int i;

	open_pair(NULL, NULL);
	for (i = 0; i < 2 * POLLS; i++)
		post(&b, &in[i], 1, TAG(1), 9);
	spin(&b);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	for (i = 0; i < POLLS && !told; i++) {
		put(&a, "x", 1, 1);
		pause_longer();
		n = b.cnt;
		turn(&b);
		for (k = n; k < b.cnt; k++)
			told |= b.done[k].status == -ETIMEDOUT;
	}
	assert_true(told);
	close_pair();
}

void that_the_peer_is_gone_is_told(void **state)
{
	ssize_t rc = 0;
	int i;

	open_pair(NULL, NULL);
	spin(&b);
	close_unheard(&a);
	for (i = 0; i < POLLS && !rc; i++) {
		pause_longer();
		rc = turn(&b);
	}
	assert_int_equal(rc, -ECONNRESET);
	kedge_channel_close(b.ch);
}

static void sleep_for_good(struct kedge_channel *ch)
{
	for (;;)
		pause();
}

/* It says nothing at its end. */
static void that_the_peer_was_killed_is_told(void **state)
{
	ssize_t rc = 0;
	pid_t pid;
	int i;

	need_shm("a killed peer over a network is said by its kernel");
	pid = open_child(sleep_for_good);
	spin(&b);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (i = 0; i < POLLS && !rc; i++) {
		pause_longer();
		rc = turn(&b);
	}
	assert_int_equal(rc, -ECONNRESET);
	close_pair();
}

int family_seldom(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_time_that_is_up_is_told),
		cmocka_unit_test(a_time_is_told_beside_messages),
		cmocka_unit_test(that_the_peer_is_gone_is_told),
		cmocka_unit_test(that_the_peer_was_killed_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
