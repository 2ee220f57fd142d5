// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels as their user sees them: messages.
 */
#include "cases.h"

/* ---- eager ---- */

void small_messages_arrive(void **state)
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

void unexpected_messages_wait(void **state)
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
void the_order_is_kept(void **state)
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

void all_sizes_wrap_the_ring(void **state)
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

void too_long_is_an_error(void **state)
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
void unexpected_messages_are_bounded(void **state)
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
	WAIT_FOR((turn(&a), turn(&b), !kedge_channel_stats(b.ch, &st) &&
		 st.unexpected == 8));
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
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	uint32_t took = 0;
	int round;

	open_pair(NULL, &o);
	in = l->heap ? kedge_channel_alloc(b.ch, room)
		     : mmap(NULL, room, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_non_null(in);
	memset(in, 0x5a, room);
	/* The pool's thread makes landing pages in its own time. */
	for (round = 0; round < 4 || (l->taken && took != l->taken &&
				      now_ns() < end); round++) {
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
		took = b.done[0].way;
		usleep(l->way == KEDGE_WAY_SWAP ? 1000 : 0);
	}
	if (l->taken)
		assert_int_equal(took, l->taken);
	if (!l->heap)
		munmap(in, room);
	free(out);
	close_pair();
}

void large_messages_arrive(void **state)
{
	static const struct large cases[] = {
		{ KEDGE_WAY_COPY, false, 540000, 3, KEDGE_WAY_COPY },
		{ KEDGE_WAY_COPY, false, 3 * MIB + 5, 3, KEDGE_WAY_COPY },
		{ KEDGE_WAY_DIRECT, true, 3 * MIB + 5, 0, KEDGE_WAY_DIRECT },
		{ KEDGE_WAY_DIRECT, true, 524289, 7, KEDGE_WAY_DIRECT },
		{ KEDGE_WAY_DIRECT, false, 3 * MIB + 5, 1, 0 },
		{ KEDGE_WAY_REGISTER, false, 3 * MIB + 5, 1, 0 },
		{ KEDGE_WAY_SWAP, false, 9 * MIB + 5, 11, 0 },
		{ KEDGE_WAY_SWAP, false, 4 * MIB, 0, 0 },
		{ KEDGE_WAY_SWAP, false, 516 << 10, 0, KEDGE_WAY_COPY },
		{ KEDGE_WAY_AUTO, false, 9 * MIB + 5, 11, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		run_large(&cases[i]);
}

void many_at_once(void **state)
{
	enum { CNT = 40, LEN = 600 << 10 };
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

int family_messages(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_messages_arrive),
		cmocka_unit_test(unexpected_messages_wait),
		cmocka_unit_test(the_order_is_kept),
		cmocka_unit_test(all_sizes_wrap_the_ring),
		cmocka_unit_test(too_long_is_an_error),
		cmocka_unit_test(unexpected_messages_are_bounded),
		cmocka_unit_test(large_messages_arrive),
		cmocka_unit_test(many_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
