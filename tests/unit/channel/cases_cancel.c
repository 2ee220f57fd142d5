// SPDX-License-Identifier: BSD-2-Clause
/*
 * No call is a cancellation point. A thread whose cancellation is pending calls each
 * of them: the first that were one would end it, with what it does half done.
 */
#include "cases.h"

#define LEN (3 * MIB)

static char *out, *in, *step;
static bool survived;

static void send_and_take(size_t len)
{
	step = "a message";
	post(&b, in, len, TAG(1), 2);
	put(&a, out, len, 1);
	while (!b.cnt) {
		turn(&a);
		turn(&b);
	}
	b.cnt = 0;
	a.cnt = 0;
}

static void wake(void)
{
	struct kedge_envelope env = { .size = sizeof(env) };

	step = "arm and wait";
	kedge_channel_arm(b.ch);
	put(&a, out, 8, 3);
	kedge_channel_wait(b.ch, -1);
	step = "probe";
	while (kedge_channel_probe(b.ch, TAG(3), &env) == 0)
		turn(&a);
	post(&b, in, 8, TAG(3), 4);
	while (!b.cnt)
		turn(&b);
	b.cnt = 0;
	step = "wait for nothing";
	kedge_channel_wait(b.ch, 1);
}

static void pieces(void)
{
	struct iovec v = { out, LEN }, w = { in, LEN };
	struct kedge_message m = { .size = sizeof(m), .pieces = &w, .cnt = 1,
				   .tag = 5, .mask = UINT64_MAX,
				   .timeout_ms = 100000 };
	uint64_t name;

	step = "pieces";
	kedge_channel_recvmsg(b.ch, &m, NULL);
	m.pieces = &v;
	kedge_channel_sendmsg(a.ch, &m, NULL);
	while (!b.cnt) {
		turn(&a);
		turn(&b);
	}
	b.cnt = 0;
	a.cnt = 0;
	step = "cancel";
	kedge_channel_recv(b.ch, in, LEN, 6, UINT64_MAX, 1, &name);
	kedge_channel_cancel(b.ch, name);
	b.cnt = 0;
}

static void rest(void)
{
	struct kedge_channel_info info = { .size = sizeof(info) };
	uint64_t ns;
	void *p;

	step = "alloc";
	p = kedge_channel_alloc(a.ch, MIB);
	kedge_channel_free(a.ch, p);
	step = "cost";
	kedge_channel_cost(a.ch, KEDGE_WAY_COPY, MIB, 0, &ns);
	step = "info";
	kedge_channel_info(a.ch, &info);
	step = "close";
	kedge_channel_close(a.ch);
	kedge_channel_close(b.ch);
}

static void *all_calls(void *arg)
{
	pthread_cancel(pthread_self());
	send_and_take(8);
	send_and_take(600000);
	send_and_take(LEN);
	wake();
	pieces();
	rest();
	survived = true;
	return NULL;
}

static void survives(void *(*work)(void *), void *arg)
{
	pthread_t thread;

	survived = false;
	assert_int_equal(pthread_create(&thread, NULL, work, arg), 0);
	pthread_join(thread, NULL);
	if (!survived)
		fail_msg("the thread ended in %s", step);
}

static void no_call_on_a_channel_is_a_cancellation_point(void **state)
{
	out = malloc(LEN);
	in = malloc(LEN);
	fill(out, LEN, 1);
	open_pair(NULL, NULL);
	survives(all_calls, NULL);
	assert_true(is_filled(in, LEN, 1));
	free(in);
	free(out);
}

/* ---- making channels ---- */

static char path[64];

static void *connect_pending(void *arg)
{
	pthread_cancel(pthread_self());
	step = "opening";
	assert_int_equal(kedge_channel_open_shm(path, NULL, 5000, &a.ch), 0);
	survived = true;
	return NULL;
}

static void *listen_pending(void *arg)
{
	struct kedge_listener **l = arg;

	pthread_cancel(pthread_self());
	step = "opening a listener";
	assert_int_equal(kedge_listener_open_shm(path, NULL, l), 0);
	step = "accepting";
	assert_int_equal(kedge_listener_accept(*l, 1, &b.ch), -ETIMEDOUT);
	survived = true;
	return NULL;
}

static void *accept_one(void *arg)
{
	assert_int_equal(kedge_listener_accept(arg, 5000, &b.ch), 0);
	return NULL;
}

static void *close_pending(void *arg)
{
	pthread_cancel(pthread_self());
	step = "closing a listener";
	kedge_listener_close(arg);
	survived = true;
	return NULL;
}

static void nor_is_one_that_makes_channels(void **state)
{
	char dir[] = "/tmp/kedge-cancel-XXXXXX";
	struct kedge_listener *l;
	pthread_t thread;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	survives(listen_pending, &l);
	assert_int_equal(pthread_create(&thread, NULL, accept_one, l), 0);
	survives(connect_pending, NULL);
	pthread_join(thread, NULL);
	close_pair();
	survives(close_pending, l);
	rmdir(dir);
}

int family_cancel(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_call_on_a_channel_is_a_cancellation_point),
		cmocka_unit_test(nor_is_one_that_makes_channels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
