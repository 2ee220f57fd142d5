// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels as their user sees them. Both ends are in this process and driven by
 * turns, so that each case decides what has happened when.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/base.h"
#include "core.h"

#define ANY	  0, 0
#define TAG(t)	  (t), UINT64_MAX
#define MIB	  ((size_t)1 << 20)
#define TURNS	  2000000

struct end {
	struct kedge_channel *ch;
	struct kedge_completion done[64];
	size_t cnt;
};

static struct end a, b;

struct opening {
	int fd;
	const struct kedge_channel_opts *opts;
	struct kedge_channel *ch;
	int rc;
};

static void *open_other(void *arg)
{
	struct opening *o = arg;

	o->rc = kedge_channel_open_fd(o->fd, o->opts, 5000, &o->ch);
	return NULL;
}

static void open_pair(const struct kedge_channel_opts *oa,
		      const struct kedge_channel_opts *ob)
{
	struct opening other = { .opts = ob };
	pthread_t thread;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	other.fd = sv[1];
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	assert_int_equal(pthread_create(&thread, NULL, open_other, &other), 0);
	assert_int_equal(kedge_channel_open_fd(sv[0], oa, 5000, &a.ch), 0);
	pthread_join(thread, NULL);
	assert_int_equal(other.rc, 0);
	b.ch = other.ch;
}

static void close_pair(void)
{
	kedge_channel_close(a.ch);
	kedge_channel_close(b.ch);
}

static ssize_t turn(struct end *e)
{
	ssize_t n = kedge_channel_poll(e->ch, e->done + e->cnt,
				       ARRAY_SIZE(e->done) - e->cnt);

	if (n > 0)
		e->cnt += (size_t)n;
	return n;
}

/* Until both have so many completions. */
static void turns(size_t on_a, size_t on_b)
{
	int i;

	for (i = 0; i < TURNS && (a.cnt < on_a || b.cnt < on_b); i++) {
		turn(&a);
		turn(&b);
	}
	assert_int_equal(a.cnt, on_a);
	assert_int_equal(b.cnt, on_b);
}

static void fill(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (char)(i * 7 + i / 4096 * 13 + seed);
}

static bool is_filled(const char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != (char)(i * 7 + i / 4096 * 13 + seed))
			return false;
	return true;
}

static void post(struct end *e, void *buf, size_t len, uint64_t tag,
		 uint64_t mask, uint64_t user)
{
	assert_int_equal(kedge_channel_recv(e->ch, buf, len, tag, mask, user,
					    NULL), 0);
}

/* 1 if it was complete at once. */
static int put(struct end *e, const void *buf, size_t len, uint64_t tag)
{
	int rc = kedge_channel_send(e->ch, buf, len, tag, 77, NULL);

	assert_in_range(rc, 0, 1);
	return rc;
}

/* ---- eager ---- */

static void small_messages_arrive(void **state)
{
	char in[64];

	open_pair(NULL, NULL);
	post(&b, in, sizeof(in), TAG(5), 42);
	assert_int_equal(put(&a, "hello", 6, 5), 1);
	turns(0, 1);
	assert_string_equal(in, "hello");
	assert_int_equal(b.done[0].status, 0);
	assert_int_equal(b.done[0].len, 6);
	assert_int_equal(b.done[0].tag, 5);
	assert_int_equal(b.done[0].user, 42);
	assert_int_equal(b.done[0].flags, KEDGE_COMPLETION_RECV);
	assert_int_equal(b.done[0].way, KEDGE_WAY_EAGER);
	close_pair();
}

static void early_messages_wait(void **state)
{
	char in[3][8] = { "", "", "" };

	open_pair(NULL, NULL);
	put(&a, "one", 4, 1);
	put(&a, "two", 4, 2);
	put(&a, "", 0, 3);
	assert_int_equal(turn(&b), 0);
	post(&b, in[0], 8, TAG(2), 0);
	post(&b, in[1], 8, ANY, 1);
	post(&b, in[2], 8, ANY, 2);
	turns(0, 3);
	assert_string_equal(in[0], "two");
	assert_string_equal(in[1], "one");
	assert_int_equal(b.done[2].tag, 3);
	assert_int_equal(b.done[2].len, 0);
	close_pair();
}

/* Of two receives that a message fits it takes the earlier one, whether that is
 * for its tag or for any; messages of one tag do not overtake each other. */
static void the_order_is_kept(void **state)
{
	uint64_t in[4] = { 0 }, i;

	open_pair(NULL, NULL);
	post(&b, &in[0], 8, ANY, 0);
	post(&b, &in[1], 8, TAG(9), 1);
	post(&b, &in[2], 8, 9, 0xf, 2);
	post(&b, &in[3], 8, TAG(9), 3);
	for (i = 1; i <= 4; i++)
		put(&a, &i, 8, 9);
	turns(0, 4);
	for (i = 0; i < 4; i++)
		assert_int_equal(in[i], i + 1);
	close_pair();
}

static void all_sizes_wrap_the_ring(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .eager_max = 32768 };
	static char out[32768], in[32768];
	size_t len;

	open_pair(&o, &o);
	for (len = 0; len <= sizeof(out); len += len < 200 ? 1 : 977) {
		fill(out, len, (unsigned int)len);
		post(&b, in, sizeof(in), TAG(len), 0);
		assert_int_equal(put(&a, out, len, len), 1);
		b.cnt = 0;
		turns(0, 1);
		assert_int_equal(b.done[0].len, len);
		assert_true(is_filled(in, len, (unsigned int)len));
	}
	close_pair();
}

static void too_long_is_an_error(void **state)
{
	char in[8] = "1234567", *big = malloc(MIB);

	open_pair(NULL, NULL);
	memset(big, 'x', MIB);
	post(&b, in, 4, TAG(1), 0);
	post(&b, in, 4, TAG(2), 0);
	put(&a, "123456", 6, 1);
	put(&a, big, MIB, 2);
	turns(1, 2);
	assert_int_equal(b.done[0].status, -EMSGSIZE);
	assert_int_equal(b.done[0].len, 6);
	assert_int_equal(b.done[1].status, -EMSGSIZE);
	assert_int_equal(b.done[1].len, MIB);
	assert_string_equal(in, "1234567");
	assert_int_equal(a.done[0].status, 0);
	free(big);
	close_pair();
}

/* A receiver that does not receive stops the sender, and only until it does. */
static void unexpected_messages_are_bounded(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.unexpected_cnt = 8 };
	struct kedge_channel_stats st = { .size = sizeof(st) };
	uint64_t out[20], i, in;
	int now = 0;

	open_pair(&o, &o);
	for (i = 0; i < 20; i++) {
		out[i] = i;
		now += put(&a, &out[i], 8, i);
	}
	assert_int_equal(now, 8);
	for (i = 0; i < 100; i++) {
		turn(&a);
		turn(&b);
	}
	assert_int_equal(a.cnt, 0);
	assert_int_equal(kedge_channel_stats(b.ch, &st), 0);
	assert_int_equal(st.unexpected, 8);
	for (i = 0; i < 20; i++) {
		b.cnt = 0;
		post(&b, &in, 8, TAG(i), 0);
		turns(a.cnt, 0);
		while (!b.cnt) {
			turn(&a);
			turn(&b);
		}
		assert_int_equal(in, i);
	}
	assert_int_equal(a.cnt, 12);
	close_pair();
}

/* ---- rendezvous ---- */

struct large {
	uint32_t way;
	bool heap;
	size_t len;
	size_t off;	/* from the start of a page */
	uint32_t taken; /* the way that the completion names */
};

/* Pages beside the buffer, and bytes, must stay what they are. */
static void run_large(const struct large *l)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .way = l->way };
	size_t room = l->off + l->len + 2 * page_len(), i;
	char *out = malloc(l->len), *in;
	int round;

	open_pair(NULL, &o);
	in = l->heap ? kedge_channel_alloc(b.ch, room)
		     : mmap(NULL, room, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_non_null(in);
	memset(in, 0x5a, room);
	for (round = 0; round < 4; round++) {
		fill(out, l->len, (unsigned int)round);
		post(&b, in + l->off, l->len, ANY, 3);
		assert_int_equal(put(&a, out, l->len, 8), 0);
		a.cnt = b.cnt = 0;
		turns(1, 1);
		assert_int_equal(a.done[0].status, 0);
		assert_int_equal(b.done[0].status, 0);
		assert_int_equal(b.done[0].len, l->len);
		assert_true(is_filled(in + l->off, l->len,
				      (unsigned int)round));
		for (i = 0; i < l->off; i++)
			assert_int_equal(in[i], 0x5a);
		for (i = l->off + l->len; i < room; i++)
			assert_int_equal(in[i], 0x5a);
		usleep(l->way == KEDGE_WAY_SWAP ? 20000 : 0);
	}
	if (l->taken)
		assert_int_equal(b.done[0].way, l->taken);
	if (!l->heap)
		munmap(in, room);
	free(out);
	close_pair();
}

static void large_messages_arrive(void **state)
{
	static const struct large cases[] = {
		{ KEDGE_WAY_COPY, false, 9000, 3, KEDGE_WAY_COPY },
		{ KEDGE_WAY_COPY, false, 3 * MIB + 5, 3, KEDGE_WAY_COPY },
		{ KEDGE_WAY_DIRECT, true, 3 * MIB + 5, 0, KEDGE_WAY_DIRECT },
		{ KEDGE_WAY_DIRECT, true, 8193, 7, KEDGE_WAY_DIRECT },
		{ KEDGE_WAY_DIRECT, false, 3 * MIB + 5, 1, 0 },
		{ KEDGE_WAY_REGISTER, false, 3 * MIB + 5, 1, 0 },
		{ KEDGE_WAY_SWAP, false, 9 * MIB + 5, 11, 0 },
		{ KEDGE_WAY_SWAP, false, 4 * MIB, 0, 0 },
		{ KEDGE_WAY_SWAP, false, 64 << 10, 0, KEDGE_WAY_COPY },
		{ KEDGE_WAY_AUTO, false, 9 * MIB + 5, 11, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		run_large(&cases[i]);
}

static void many_at_once(void **state)
{
	enum { CNT = 40, LEN = 200 << 10 };
	char *out = malloc((size_t)CNT * LEN), *in = malloc((size_t)CNT * LEN);
	size_t i;

	open_pair(NULL, NULL);
	fill(out, (size_t)CNT * LEN, 1);
	for (i = 0; i < CNT; i += 2)
		post(&b, in + i * LEN, LEN, TAG(i), i);
	for (i = 0; i < CNT; i++)
		put(&a, out + i * LEN, LEN, i);
	turns(CNT / 2, CNT / 2);
	for (i = 1; i < CNT; i += 2)
		post(&b, in + i * LEN, LEN, TAG(i), i);
	turns(CNT, CNT);
	assert_true(is_filled(in, (size_t)CNT * LEN, 1));
	free(out);
	free(in);
	close_pair();
}

/* ---- ends ---- */

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

static void many_turns(void)
{
	int i;

	for (i = 0; i < 1000; i++) {
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
	if (!a.done[0].status && a.cnt == b.cnt)
		assert_int_equal(b.done[0].status, 0);
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
		cmocka_unit_test(small_messages_arrive),
		cmocka_unit_test(early_messages_wait),
		cmocka_unit_test(the_order_is_kept),
		cmocka_unit_test(all_sizes_wrap_the_ring),
		cmocka_unit_test(too_long_is_an_error),
		cmocka_unit_test(unexpected_messages_are_bounded),
		cmocka_unit_test(large_messages_arrive),
		cmocka_unit_test(many_at_once),
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
