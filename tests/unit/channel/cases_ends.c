// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ends of operations and channels, and the processes that may use them.
 */
#include <sys/un.h>

#include <kedge/tcp.h>

#include "cases.h"

void cancel_ends_a_posted_receive(void **state)
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

static void until_each_has_one(void)
{
	const uint64_t end = now_ns() + HANG_S * 1000000000ull;

	while ((!a.cnt || !b.cnt) && now_ns() < end) {
		turn(&a);
		turn(&b);
	}
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
	/* The sender is not told that it is done unless it came. */
	if (a.cnt && !a.done[0].status) {
		assert_int_equal(b.cnt, 1);
		assert_int_equal(b.done[0].status, 0);
	}
	/* One that was not matched is still there for the other side. */
	if (!a.cnt)
		post(&b, in, len, TAG(1), 0);
	if (!b.cnt)
		put(&a, out, len, 1);
	until_each_has_one();
	many_turns();
	assert_in_range(a.cnt, 1, 2);
	assert_in_range(b.cnt, 1, 2);
	if (!rc)
		assert_true((by_sender ? &a : &b)->done[0].status !=
			    -ETIMEDOUT);
	if (!b.done[b.cnt - 1].status)
		assert_true(is_filled(in, len, 9));
	/* The receiver may give up a message that has landed, and one that has not. */
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

void time_runs_out(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = 30 };
	char in[8], *big = malloc(MIB);

	open_pair(&o, &o);
	memset(big, 1, MIB);
	post(&b, in, 8, TAG(1), 0);
	put(&a, big, MIB, 2);
	assert_int_equal(kedge_channel_wait(b.ch, 60000), 1);
	turns(1, 1);
	assert_int_equal(a.done[0].status, -ETIMEDOUT);
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	free(big);
	close_pair();
}

/* The reason is the channel's, for all that this thread has heard of others since. */
static void says(int rc, const char *what)
{
	assert_int_equal(rc, -ECONNRESET);
	assert_non_null(strstr(kedge_strerror(rc), what));
	assert_non_null(strstr(kedge_strerror(rc), "open another"));
	kedge_reason(-ECONNRESET, "of another channel");
}

void a_closed_peer_is_seen(void **state)
{
	char in[8], *big = malloc(MIB);
	struct kedge_completion c[4];

	open_pair(NULL, NULL);
	memset(big, 1, MIB);
	put(&a, "last", 5, 1);
	put(&b, big, MIB, 1);
	close_a();
	assert_int_equal(kedge_channel_wait(b.ch, 60000), 1);
	assert_int_equal(kedge_channel_poll(b.ch, c, 4), 1);
	assert_int_equal(c[0].status, -ECONNRESET);
	/* A message that had arrived is still received. */
	post(&b, in, 8, ANY, 0);
	assert_int_equal(kedge_channel_poll(b.ch, c, 4), 1);
	assert_string_equal(in, "last");
	says((int)kedge_channel_poll(b.ch, c, 4), "peer has closed");
	says(kedge_channel_send(b.ch, "x", 1, 1, 0, NULL), "peer has closed");
	says(kedge_channel_recv(b.ch, in, 8, ANY, 0, NULL), "peer has closed");
	says(kedge_channel_arm(b.ch), "peer has closed");
	says(kedge_channel_wait(b.ch, -1), "peer has closed");
	says((int)kedge_channel_poll(b.ch, c, 4), "peer has closed");
	free(big);
	kedge_channel_close(b.ch);
}

void a_message_ends_a_wait(void **state)
{
	char in[8];

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_wait(b.ch, 0), 0);
	post(&b, in, 8, ANY, 0);
	assert_int_equal(kedge_channel_wait(b.ch, 0), 0);
	put(&a, "x", 2, 1);
	assert_int_equal(kedge_channel_wait(b.ch, 60000), 1);
	turns(0, 1);
	close_pair();
}

/* ---- other processes ---- */

static int use_parents(void *arg)
{
	struct kedge_channel_info info = { .size = sizeof(info) };
	struct kedge_channel_stats st = { .size = sizeof(st) };
	struct kedge_completion c;

	(void)arg;
	CHILD_CHECK(kedge_channel_send(a.ch, "x", 1, 1, 0, NULL) == -ECHILD);
	CHILD_CHECK(kedge_channel_recv(a.ch, &c, 1, 1, 1, 0, NULL) == -ECHILD);
	CHILD_CHECK(kedge_channel_poll(a.ch, &c, 1) == -ECHILD);
	CHILD_CHECK(kedge_channel_arm(a.ch) == -ECHILD);
	CHILD_CHECK(kedge_channel_info(a.ch, &info) == -ECHILD);
	CHILD_CHECK(kedge_channel_stats(a.ch, &st) == -ECHILD);
	CHILD_CHECK(!kedge_channel_alloc(a.ch, 1));
	kedge_channel_close(a.ch);
	return 0;
}

void a_child_has_no_part(void **state)
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

	CHILD_CHECK(!kedge_channel_open_shm(path, NULL, 60000, &ch));
	CHILD_CHECK(kedge_channel_send(ch, "bye", 4, 1, 0, NULL) == 1);
	_exit(0);
}

static void processes_meet_at_a_name_that_one_listens_at(void **state)
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
	assert_int_equal(kedge_listener_accept(l, 60000, &ch), 0);
	waitpid(pid, NULL, 0);
	assert_int_equal(kedge_channel_recv(ch, in, 8, ANY, 0, NULL), 0);
	while (!n)
		n = kedge_channel_poll(ch, &c, 1);
	assert_int_equal(n, 1);
	assert_string_equal(in, "bye");
	do
		n = kedge_channel_poll(ch, &c, 1);
	while (!n);
	says((int)n, "the peer is gone");
	says((int)kedge_channel_poll(ch, &c, 1), "the peer is gone");
	kedge_channel_close(ch);
	kedge_listener_close(l);
	assert_int_equal(kedge_channel_open_shm(path, NULL, 100, &ch),
			 -ECONNREFUSED);
}

static void refuses_fd(int fd, const char *why)
{
	struct kedge_channel *ch;

	assert_int_equal(kedge_channel_open_fd(fd, NULL, -1, &ch), -EBADF);
	if (!strstr(kedge_strerror(-EBADF), why))
		fail_msg("\"%s\" says not \"%s\"", kedge_strerror(-EBADF), why);
	close(fd);
}

static void only_connected_stream_sockets_are_taken(void **state)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int sv[2], fd;

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv), 0);
	refuses_fd(sv[0], "stream");
	close(sv[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	refuses_fd(sv[0], "stream");
	close(sv[1]);
	refuses_fd(socket(AF_UNIX, SOCK_STREAM, 0), "not connected");
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	/* With no name it gets one of its own. */
	assert_int_equal(bind(fd, (struct sockaddr *)&name,
			      sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 1), 0);
	refuses_fd(fd, "not connected");
	refuses_fd(socket(AF_INET, SOCK_STREAM, 0), "Unix");
	refuses_fd(dup(0), "Unix");
}

static void bad_arguments_are_refused(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	struct kedge_channel *ch;

	o.way = KEDGE_WAY_EAGER;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	o.way = 0;
	o.eager_max = 524289;
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

/* Both ends of 20 channels, each with a message of every size about the borders. */
static void later_channels_send_less_at_once(void **state)
{
	enum { CNT = 20, LEN = 600 << 10 };
	static const size_t lens[] = { 65536, 65537, 524288, 524289 };
	struct kedge_channel_info ia = { .size = sizeof(ia) },
				  ib = { .size = sizeof(ib) };
	static char out[LEN], in[LEN];
	struct end many[CNT][2];
	size_t i, j;

	for (i = 0; i < CNT; i++) {
		open_pair(NULL, NULL);
		many[i][0] = a;
		many[i][1] = b;
	}
	fill(out, LEN, 3);
	for (i = 0; i < CNT; i++) {
		a = many[i][0];
		b = many[i][1];
		kedge_channel_info(a.ch, &ia);
		kedge_channel_info(b.ch, &ib);
		assert_int_equal(ia.eager_max, ib.eager_max);
		if (pair_over() == OVER_SHM)
			assert_int_equal(ia.eager_max,
					 i < 8 ? 524288 : 65536);
		for (j = 0; j < ARRAY_SIZE(lens); j++) {
			memset(in, 0, LEN);
			a.cnt = b.cnt = 0;
			post(&b, in, LEN, ANY, 1);
			turns((size_t)!put(&a, out, lens[j], 1), 1);
			assert_int_equal(b.done[0].status, 0);
			assert_true(is_filled(in, lens[j], 3));
			assert_true((b.done[0].way == KEDGE_WAY_EAGER) ==
				    (lens[j] <= ia.eager_max));
		}
		close_pair();
	}
}

static struct kedge_channel *none;

/* Each call's own reason, not that of the one before. */
static void refuses(int rc, const char *what)
{
	const struct kedge_channel_opts wrong = { .size = sizeof(wrong),
						  .secret_len = 1 };
	struct kedge_listener *l;

	assert_int_equal(rc, -EINVAL);
	if (!strstr(kedge_strerror(rc), what))
		fail_msg("\"%s\" says not \"%s\"", kedge_strerror(rc), what);
	assert_int_equal(kedge_listener_open_shm("@x", &wrong, &l), -EINVAL);
}

void each_refusal_has_its_own_reason(void **state)
{
	struct kedge_listener *l;
	struct kedge_channel *ch;
	char x[8];

	refuses(kedge_channel_open_fd(0, NULL, 0, NULL), "NULL");
	refuses(kedge_channel_open_shm(NULL, NULL, 0, &ch), "path");
	refuses(kedge_listener_open_shm(NULL, NULL, &l), "path");
	refuses(kedge_channel_open_tcp(NULL, NULL, NULL, 0, &ch), "service");
	refuses(kedge_listener_open_tcp(NULL, NULL, NULL, &l), "service");
	refuses(kedge_listener_accept(NULL, 0, &ch), "listener");
	refuses(kedge_listener_fd(NULL), "listener");
	open_pair(NULL, NULL);
	refuses(kedge_channel_send(a.ch, NULL, 5, 1, 0, NULL), "memory");
	refuses(kedge_channel_recv(a.ch, NULL, 5, ANY, 0, NULL), "buffer");
	refuses(kedge_channel_send(none, x, 1, 1, 0, NULL), "channel");
	refuses(kedge_channel_recv(none, x, 1, ANY, 0, NULL), "channel");
	refuses(kedge_channel_sendmsg(a.ch, NULL, NULL), "message");
	refuses(kedge_channel_recvmsg(a.ch, NULL, NULL), "message");
	refuses((int)kedge_channel_poll(a.ch, NULL, 1), "completions");
	refuses(kedge_channel_probe(a.ch, ANY, NULL), "envelope");
	refuses(kedge_channel_info(a.ch, NULL), "result");
	refuses(kedge_channel_stats(a.ch, NULL), "result");
	refuses(kedge_channel_cost(a.ch, 99, 1, 0, &(uint64_t){ 0 }), "way");
	refuses(kedge_channel_cancel(none, 1), "channel");
	refuses(kedge_channel_arm(none), "channel");
	refuses(kedge_channel_fd(none), "channel");
	close_pair();
}

int family_ends(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cancel_ends_a_posted_receive),
		cmocka_unit_test(cancel_at_every_state),
		cmocka_unit_test(time_runs_out),
		cmocka_unit_test(a_closed_peer_is_seen),
		cmocka_unit_test(a_message_ends_a_wait),
		cmocka_unit_test(a_child_has_no_part),
		cmocka_unit_test(processes_meet_at_a_name_that_one_listens_at),
		cmocka_unit_test(only_connected_stream_sockets_are_taken),
		cmocka_unit_test(bad_arguments_are_refused),
		cmocka_unit_test(later_channels_send_less_at_once),
		cmocka_unit_test(each_refusal_has_its_own_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
