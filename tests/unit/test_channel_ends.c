// SPDX-License-Identifier: BSD-2-Clause
/*
 * How operations and channels end, and who may use them.
 */
#include <sys/wait.h>

#include "channel_pair.h"

static void cancel_ends_a_posted_receive(void **state)
{
	char in[8];
	uint64_t op;

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_recv(b.ch, in, 8, ANY, 4, &op), 0);
	assert_int_equal(kedge_channel_cancel(b.ch, op), 0);
	assert_int_equal(kedge_channel_cancel(b.ch, op), -ENOENT);
	turns(0, 1);
	assert_int_equal(b.done[0].status, -ECANCELED);
	assert_int_equal(b.done[0].user, 4);
	put(&a, "x", 2, 1);
	assert_int_equal(turn(&b), 0);
	close_pair();
}

/* After each number of turns, so at each state of the protocol. */
static void cancel_at(bool by_sender, int after, uint32_t way)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .way = way };
	size_t len = 5 * MIB;
	char *out = malloc(len), *in = malloc(len), small[8] = "";
	uint64_t sent, got;
	int i, rc;

	open_pair(NULL, &o);
	fill(out, len, 9);
	assert_int_equal(kedge_channel_send(a.ch, out, len, 1, 0, &sent), 0);
	assert_int_equal(kedge_channel_recv(b.ch, in, len, TAG(1), 0, &got), 0);
	for (i = 0; i < after; i++)
		turn(i & 1 ? &a : &b);
	rc = by_sender ? kedge_channel_cancel(a.ch, sent)
		       : kedge_channel_cancel(b.ch, got);
	many_turns();
	/* One that was not matched is still there for the other side. */
	if (!a.cnt)
		post(&b, in, len, TAG(1), 0);
	if (!b.cnt)
		put(&a, out, len, 1);
	many_turns();
	assert_in_range(a.cnt, 1, 2);
	assert_in_range(b.cnt, 1, 2);
	if (!rc)
		assert_true((by_sender ? &a : &b)->done[0].status !=
			    -ETIMEDOUT);
	if (!b.done[b.cnt - 1].status)
		assert_true(is_filled(in, len, 9));
	/* Who receives may give up what has landed, and what has not. */
	if (!a.done[0].status && a.cnt == b.cnt && by_sender)
		assert_int_equal(b.done[0].status, 0);
	else if (b.done[0].status)
		assert_int_equal(b.done[0].status, -ECANCELED);
	/* The channel goes on. */
	a.cnt = b.cnt = 0;
	post(&b, small, 8, TAG(2), 0);
	put(&a, "on", 3, 2);
	turns(0, 1);
	assert_string_equal(small, "on");
	free(out);
	free(in);
	close_pair();
}

static void cancel_at_every_state(void **state)
{
	static const uint32_t ways[] = { KEDGE_WAY_COPY, KEDGE_WAY_DIRECT,
					 KEDGE_WAY_SWAP };
	size_t w;
	int after;

	for (w = 0; w < ARRAY_SIZE(ways); w++)
		for (after = 0; after < 100; after += 1 + after / 10) {
			cancel_at(true, after, ways[w]);
			cancel_at(false, after, ways[w]);
		}
}

static void time_runs_out(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = 30 };
	char in[8], *big = malloc(MIB);

	open_pair(&o, &o);
	memset(big, 1, MIB);
	post(&b, in, 8, TAG(1), 0);
	put(&a, big, MIB, 2);
	assert_int_equal(kedge_channel_wait(b.ch, 5000), 1);
	turns(1, 1);
	assert_int_equal(a.done[0].status, -ETIMEDOUT);
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	free(big);
	close_pair();
}

static void a_closed_peer_is_seen(void **state)
{
	char in[8], *big = malloc(MIB);
	struct kedge_completion c[4];

	open_pair(NULL, NULL);
	memset(big, 1, MIB);
	put(&a, "last", 5, 1);
	put(&b, big, MIB, 1);
	kedge_channel_close(a.ch);
	assert_int_equal(kedge_channel_wait(b.ch, 5000), 1);
	assert_int_equal(kedge_channel_poll(b.ch, c, 4), 1);
	assert_int_equal(c[0].status, -ECONNRESET);
	/* What had arrived is still received. */
	post(&b, in, 8, ANY, 0);
	assert_int_equal(kedge_channel_poll(b.ch, c, 4), 1);
	assert_string_equal(in, "last");
	assert_int_equal(kedge_channel_poll(b.ch, c, 4), -ECONNRESET);
	assert_int_equal(kedge_channel_send(b.ch, "x", 1, 1, 0, NULL),
			 -ECONNRESET);
	free(big);
	kedge_channel_close(b.ch);
}

static void waiting_wakes(void **state)
{
	char in[8];

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_wait(b.ch, 0), 0);
	post(&b, in, 8, ANY, 0);
	assert_int_equal(kedge_channel_wait(b.ch, 0), 0);
	put(&a, "x", 2, 1);
	assert_int_equal(kedge_channel_wait(b.ch, 5000), 1);
	turns(0, 1);
	close_pair();
}

/* ---- other processes ---- */

static int use_parents(void *arg)
{
	struct kedge_completion c;

	(void)arg;
	CHILD_CHECK(kedge_channel_send(a.ch, "x", 1, 1, 0, NULL) == -ECHILD);
	CHILD_CHECK(kedge_channel_recv(a.ch, &c, 1, 1, 1, 0, NULL) == -ECHILD);
	CHILD_CHECK(kedge_channel_poll(a.ch, &c, 1) == -ECHILD);
	CHILD_CHECK(kedge_channel_arm(a.ch) == -ECHILD);
	CHILD_CHECK(!kedge_channel_alloc(a.ch, 1));
	kedge_channel_close(a.ch);
	return 0;
}

static void a_child_has_no_part(void **state)
{
	char in[8];

	need_threads_after_fork();
	open_pair(NULL, NULL);
	assert_int_equal(in_child(use_parents, NULL), 0);
	post(&b, in, 8, ANY, 0);
	put(&a, "still", 6, 1);
	turns(0, 1);
	close_pair();
}

static int send_and_die(void *path)
{
	struct kedge_channel *ch;

	CHILD_CHECK(!kedge_channel_open_shm(path, NULL, 5000, &ch));
	CHILD_CHECK(kedge_channel_send(ch, "bye", 4, 1, 0, NULL) == 1);
	_exit(0);
}

static void processes_meet(void **state)
{
	struct kedge_listener *l, *other;
	struct kedge_completion c;
	struct kedge_channel *ch;
	char path[64], in[8] = "";
	ssize_t n = 0;
	pid_t pid;

	need_threads_after_fork();
	snprintf(path, sizeof(path), "@kedge-test-%d", (int)getpid());
	assert_int_equal(kedge_listener_open_shm(path, NULL, &l), 0);
	assert_int_equal(kedge_listener_open_shm(path, NULL, &other),
			 -EADDRINUSE);
	assert_int_equal(kedge_listener_accept(l, 0, &ch), -ETIMEDOUT);
	pid = fork();
	if (!pid)
		send_and_die(path);
	assert_int_equal(kedge_listener_accept(l, 5000, &ch), 0);
	waitpid(pid, NULL, 0);
	assert_int_equal(kedge_channel_recv(ch, in, 8, ANY, 0, NULL), 0);
	while (!n)
		n = kedge_channel_poll(ch, &c, 1);
	assert_int_equal(n, 1);
	assert_string_equal(in, "bye");
	do
		n = kedge_channel_poll(ch, &c, 1);
	while (!n);
	assert_int_equal(n, -ECONNRESET);
	kedge_channel_close(ch);
	kedge_listener_close(l);
	assert_int_equal(kedge_channel_open_shm(path, NULL, 100, &ch),
			 -ECONNREFUSED);
}

static void bad_arguments_are_refused(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	struct kedge_channel *ch;

	o.way = KEDGE_WAY_EAGER;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	o.way = 0;
	o.eager_max = 32769;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	o.eager_max = 0;
	o.size = 4;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	assert_int_equal(kedge_channel_open_shm("", NULL, 0, &ch), -EINVAL);
	assert_int_equal(kedge_channel_open_fd(-1, NULL, 0, &ch), -EBADF);
	assert_int_equal(kedge_channel_open_fd(0, NULL, 0, NULL), -EINVAL);
	assert_int_equal(kedge_channel_poll(NULL, NULL, 0), -EINVAL);
	kedge_channel_close(NULL);
	kedge_listener_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cancel_ends_a_posted_receive),
		cmocka_unit_test(cancel_at_every_state),
		cmocka_unit_test(time_runs_out),
		cmocka_unit_test(a_closed_peer_is_seen),
		cmocka_unit_test(waiting_wakes),
		cmocka_unit_test(a_child_has_no_part),
		cmocka_unit_test(processes_meet),
		cmocka_unit_test(bad_arguments_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
