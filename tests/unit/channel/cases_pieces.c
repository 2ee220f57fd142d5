// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages of several pieces, and operations with a time of their own.
 */
#include "cases.h"

#define LEN   600000u
#define LARGE (5 * MIB)

static char *out, *in;

int pieces_setup(void **state)
{
	out = malloc(LARGE);
	in = malloc(LARGE);
	fill(out, LARGE, 4);
	return 0;
}

int pieces_teardown(void **state)
{
	free(out);
	free(in);
	return 0;
}

static struct kedge_message message(const struct iovec *v, size_t cnt,
				    uint64_t tag)
{
	return (struct kedge_message){ .size = sizeof(struct kedge_message),
				       .pieces = v,
				       .cnt = cnt,
				       .tag = tag,
				       .mask = UINT64_MAX,
				       .user = tag };
}

/* @buf of @len bytes, cut at odd places; one of them is empty. */
static size_t cut(struct iovec *v, char *buf, size_t len)
{
	size_t at[] = { 0, len / 7, len / 7, len / 3, len / 2, len }, i;

	for (i = 0; i + 1 < ARRAY_SIZE(at); i++)
		v[i] = (struct iovec){ buf + at[i], at[i + 1] - at[i] };
	return i;
}

static void goes_through(size_t len, uint32_t way)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .way = way };
	struct kedge_message m;
	struct iovec v[8], w[8];
	size_t n = cut(v, out, len);

	memset(in, 0, len);
	open_pair(NULL, &o);
	cut(w, in, len);
	m = message(w, n, 6);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	m = message(v, n, 6);
	turns(!kedge_channel_sendmsg(a.ch, &m, NULL), 1);
	assert_int_equal(b.done[0].status, 0);
	assert_int_equal(b.done[0].len, len);
	assert_int_equal(b.done[0].user, 6);
	assert_true(is_filled(in, len, 4));
	close_pair();
}

void pieces_go_through_in_order(void **state)
{
	goes_through(0, 0);
	goes_through(40, 0);
	goes_through(8000, 0);
	goes_through(LEN, KEDGE_WAY_COPY);
	goes_through(LEN, KEDGE_WAY_DIRECT);
	goes_through(LARGE, KEDGE_WAY_SWAP);
}

static void a_shorter_message_fills_the_first_pieces(void **state)
{
	struct iovec v[2] = { { in, 6 }, { in + 100, 50 } };
	struct kedge_message m = message(v, 2, 1);

	memset(in, 'x', 200);
	open_pair(NULL, NULL);
	put(&a, "0123456789", 10, 1);
	turn(&b);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	turns(0, 1);
	assert_memory_equal(in, "012345xx", 8);
	assert_memory_equal(in + 100, "6789xx", 6);
	/* One that is too long is none of it. */
	memset(in, 'x', 200);
	post(&b, in + 150, 1, TAG(9), 0);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	put(&a, out, 57, 1);
	turns(0, 2);
	assert_int_equal(b.done[1].status, -EMSGSIZE);
	assert_memory_equal(in, "xxxxxxxx", 8);
	close_pair();
}

/* Memory for them is freed with the operation, in each way of its end. */
void pieces_are_given_up(void **state)
{
	struct iovec v[8], w[8];
	struct kedge_message m;
	uint64_t op;
	size_t n;

	open_pair(NULL, NULL);
	n = cut(v, out, LEN);
	cut(w, in, LEN);
	m = message(w, n, 1);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, &op), 0);
	assert_int_equal(kedge_channel_cancel(b.ch, op), 0);
	m = message(v, n, 1);
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, &op), 0);
	assert_int_equal(kedge_channel_cancel(a.ch, op), 0);
	turns(1, 1);
	assert_int_equal(a.done[0].status, -ECANCELED);
	assert_int_equal(b.done[0].status, -ECANCELED);
	/* These end with the channels. */
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), 0);
	m = message(w, n, 2);
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	close_pair();
}

static void bad_messages_are_refused(void **state)
{
	static struct iovec many[KEDGE_PIECES_MAX + 1];
	struct iovec v[2] = { { in, 1 }, { NULL, 1 } };
	struct kedge_message m = message(v, 2, 1);

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	assert_int_equal(kedge_channel_recvmsg(a.ch, &m, NULL), -EINVAL);
	v[1] = (struct iovec){ in, SIZE_MAX };
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	m = message(many, ARRAY_SIZE(many), 1);
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	m = message(NULL, 1, 1);
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	m = message(v, 1, 1);
	m.flags = 1;
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	m.flags = 0;
	m.reserved = 1;
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	assert_int_equal(kedge_channel_recvmsg(a.ch, &m, NULL), -EINVAL);
	assert_non_null(strstr(kedge_strerror(-EINVAL), "reserved"));
	m.reserved = 0;
	m.size = 8;
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -EINVAL);
	assert_int_equal(kedge_channel_recvmsg(a.ch, &m, NULL), -EINVAL);
	assert_int_equal(kedge_channel_sendmsg(a.ch, NULL, NULL), -EINVAL);
	assert_int_equal(kedge_channel_recvmsg(NULL, &m, NULL), -EINVAL);
	close_pair();
	m = message(v, 1, 1);
	open_pair(NULL, NULL);
	close_unheard(&b);
	WAIT_FOR(turn(&a) < 0);
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -ECONNRESET);
	m = message(v, 2, 1);
	v[1].iov_len = 1;
	assert_int_equal(kedge_channel_sendmsg(a.ch, &m, NULL), -ECONNRESET);
	assert_int_equal(kedge_channel_recvmsg(a.ch, &m, NULL), -ECONNRESET);
	kedge_channel_close(a.ch);
}

/* ---- a time of its own ---- */

static void post_for(uint32_t ms, uint64_t user)
{
	struct iovec v = { in, 8 };
	struct kedge_message m = message(&v, 1, 1);

	m.timeout_ms = ms;
	m.user = user;
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
}

static void operations_end_in_the_order_of_their_times(void **state)
{
	size_t i;

	open_pair(NULL, NULL);
	post_for(60, 3);
	post_for(1, 1);
	post_for(0, 9); /* the channel's: none */
	post_for(30, 2);
	post_for(90, 4);
	post_for(UINT32_MAX, 9);
	WAIT_FOR((turn(&b), b.cnt == 4));
	for (i = 0; i < 4; i++) {
		assert_int_equal(b.done[i].user, i + 1);
		assert_int_equal(b.done[i].status, -ETIMEDOUT);
	}
	close_pair();
}

static void one_without_a_time_outlives_the_channels(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = 5 };

	open_pair(NULL, &o);
	post_for(UINT32_MAX, 1);
	post_for(0, 2);
	WAIT_FOR((turn(&b), b.cnt));
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].user, 2);
	close_pair();
}

static void waiting_ends_when_a_time_is_up(void **state)
{
	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_wait(b.ch, 1), 0);
	post_for(20, 1);
	assert_int_equal(kedge_channel_wait(b.ch, 0), 0);
	while (!b.cnt) {
		assert_int_equal(kedge_channel_wait(b.ch, -1), 1);
		turn(&b);
	}
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	close_pair();
}

int family_pieces(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_go_through_in_order),
		cmocka_unit_test(a_shorter_message_fills_the_first_pieces),
		cmocka_unit_test(pieces_are_given_up),
		cmocka_unit_test(bad_messages_are_refused),
		cmocka_unit_test(operations_end_in_the_order_of_their_times),
		cmocka_unit_test(one_without_a_time_outlives_the_channels),
		cmocka_unit_test(waiting_ends_when_a_time_is_up),
	};

	return cmocka_run_group_tests(tests, pieces_setup, pieces_teardown);
}
