// SPDX-License-Identifier: BSD-2-Clause
/*
 * The short way of short messages. Each case looks that it is really taken where
 * nothing stands against it, and what comes where something does.
 */
#include "channel_pair.h"

#include "channel/internal.h"

#define MOST 8300u /* bytes; more than go the short way */
#define EDGE 64u

static char out[MOST], in[MOST + 2 * EDGE];

/* Until nothing but a new packet can be to do. */
static void come_to_rest(void)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;

	do {
		turn(&a);
		turn(&b);
	} while ((a.ch->busy || b.ch->busy) && now_ns() < end);
	assert_false(a.ch->busy || b.ch->busy);
	a.cnt = 0;
	b.cnt = 0;
}

/* With operations that were used before: the first ones are made the long way. */
static void open_at_rest(const struct kedge_channel_opts *o)
{
	open_pair(o, o);
	post(&b, in, MOST, TAG(1), 0);
	put(&a, out, 4000, 1);
	turns(0, 1);
	assert_int_equal(b.done[0].len, 4000);
	come_to_rest();
	assert_true(op_ready(b.ch));
}

static int begin(void **state)
{
	open_at_rest(NULL);
	return 0;
}

static int end(void **state)
{
	close_pair();
	return 0;
}

/* One poll, which looks at new packets alone. */
static ssize_t quick_turn(struct end *e)
{
	e->ch->quick = 0;
	e->ch->quick_max = 64;
	return turn(e);
}

static void quick_until_done(void)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;

	while (!b.cnt && now_ns() < end)
		quick_turn(&b);
	assert_int_equal(b.cnt, 1);
}

static void any_length_arrives_whole(void **state)
{
	size_t len, off;

	for (len = 0; len <= MOST; len += len < 300 ? 1 : 97) {
		off = EDGE + len % 9;
		memset(in, 'i', sizeof(in));
		fill(out, MOST, (unsigned int)len);
		post(&b, in + off, MOST - 9, TAG(len), 7);
		assert_int_equal(put(&a, out, len, len), 1);
		assert_int_equal(quick_turn(&b), 1);
		assert_int_equal(b.done[0].status, 0);
		assert_int_equal(b.done[0].len, len);
		assert_int_equal(b.done[0].tag, len);
		assert_int_equal(b.done[0].user, 7);
		assert_int_equal(b.done[0].flags, KEDGE_COMPLETION_RECV);
		assert_int_equal(b.done[0].way, KEDGE_WAY_EAGER);
		assert_memory_equal(in + off, out, len);
		assert_int_equal(in[off - 1], 'i');
		assert_int_equal(in[off + len], 'i');
		come_to_rest();
	}
}

static void one_too_long_writes_nothing(void **state)
{
	size_t len;

	for (len = 1; len < MOST; len += 131) {
		open_at_rest(NULL);
		memset(in, 'i', sizeof(in));
		memset(out, 'o', MOST);
		post(&b, in + EDGE, len - 1, TAG(1), 0);
		assert_int_equal(put(&a, out, len, 1), 1);
		quick_until_done();
		assert_int_equal(b.done[0].status, -EMSGSIZE);
		assert_int_equal(b.done[0].len, len);
		assert_int_equal(in[EDGE + len - 1], 'i');
		assert_int_equal(in[EDGE - 1], 'i');
		close_pair();
	}
}

static void pieces_are_filled(void **state)
{
	struct iovec v[] = { { in, 3 }, { in + 100, 5 } };
	struct kedge_message m = { .size = sizeof(m), .pieces = v, .cnt = 2,
				   .tag = 4, .mask = UINT64_MAX };

	memset(in, 'i', sizeof(in));
	assert_int_equal(kedge_channel_recvmsg(b.ch, &m, NULL), 0);
	assert_int_equal(put(&a, "abcdefgh", 8, 4), 1);
	quick_until_done();
	assert_memory_equal(in, "abci", 4);
	assert_memory_equal(in + 100, "defghi", 6);
}

/* The time of a message that came in time ends with it. */
static void a_time_ends_with_its_message(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = 5 };
	uint64_t end;

	open_at_rest(&o);
	post(&b, in, 8, TAG(1), 1);
	assert_false(list_empty(&b.ch->timed));
	assert_int_equal(put(&a, "in time", 8, 1), 1);
	quick_until_done();
	assert_int_equal(b.done[0].status, 0);
	assert_true(list_empty(&b.ch->timed));
	/* The same operation again, without a time of its own. */
	b.ch->opts.timeout_ms = 0;
	come_to_rest();
	post(&b, in, 8, TAG(1), 2);
	end = now_ns() + 20 * 1000000;
	while (now_ns() < end)
		assert_int_equal(turn(&b), 0);
	close_pair();
}

static void a_receive_takes_what_waits_for_it(void **state)
{
	assert_int_equal(put(&a, "first", 6, 1), 1);
	while (list_empty(&b.ch->unexpected))
		turn(&b);
	come_to_rest();
	post(&b, in, 8, TAG(1), 1);
	quick_until_done();
	assert_string_equal(in, "first");
}

/* An operation is used again; what it was before does not show. */
static void a_receive_that_got_nothing_says_so(void **state)
{
	uint64_t name;
	size_t i;

	for (i = 0; i < 3; i++) {
		assert_int_equal(kedge_channel_recv(b.ch, in, 4000, 2,
						    UINT64_MAX, 2, &name), 0);
		assert_int_equal(kedge_channel_cancel(b.ch, name), 0);
		turns(0, 1);
		assert_int_equal(b.done[0].status, -ECANCELED);
		assert_int_equal(b.done[0].len, 0);
		assert_int_equal(b.done[0].tag, 2);
		come_to_rest();
	}
}

static void a_bad_buffer_ends_its_message(void **state)
{
	post(&b, (char *)4096, 8, TAG(1), 1);
	assert_int_equal(put(&a, "nowhere", 8, 1), 1);
	quick_until_done();
	assert_int_equal(b.done[0].status, -EFAULT);
	assert_int_equal(kedge_channel_send(a.ch, (char *)4096, 8, 1, 0, NULL),
			 -EFAULT);
}

/* One poll takes all that have come, as far as there is room for them. */
static void a_stream_is_taken_at_once(void **state)
{
	struct kedge_completion c[8];
	uint64_t i;

	for (i = 0; i < 12; i++)
		post(&b, in + 8 * i, 8, TAG(1), i);
	for (i = 0; i < 12; i++)
		assert_int_equal(put(&a, &i, 8, 1), 1);
	b.ch->quick_max = 64;
	/* After a pause one, for who sent it may wait for the answer. */
	assert_int_equal(kedge_channel_poll(b.ch, c, 8), 1);
	assert_int_equal(kedge_channel_poll(b.ch, c, 8), 8);
	assert_int_equal(c[7].user, 8);
	assert_int_equal(kedge_channel_poll(b.ch, c, 8), 3);
	assert_int_equal(kedge_channel_poll(b.ch, c, 8), 0);
	for (i = 0; i < 12; i++)
		assert_memory_equal(in + 8 * i, &i, 8);
}

/* More than the receiver grants at once, which it tells by itself. */
static void credit_comes_back(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .unexpected_cnt = 4 };
	uint64_t i;

	open_at_rest(&o);
	for (i = 0; i < 1000; i++) {
		post(&b, in, 8, TAG(1), i);
		if (!put(&a, &i, 8, 1))
			turns(1, 1);
		else
			quick_until_done();
		assert_memory_equal(in, &i, 8);
		come_to_rest();
	}
	close_pair();
}

/* One that the peer can read by itself is copied once, though it might be eager. */
static void a_message_of_the_heap_is_fetched(void **state)
{
	const size_t len = 40000;
	char *from, *to, *plain = malloc(len);

	from = kedge_channel_alloc(a.ch, len);
	to = kedge_channel_alloc(b.ch, len);
	assert_true(from && to && plain);
	fill(from, len, 6);
	post(&b, to, len, TAG(1), 0);
	assert_int_equal(put(&a, from, len, 1), 0);
	turns(1, 1);
	assert_int_equal(b.done[0].way, KEDGE_WAY_DIRECT);
	assert_memory_equal(to, from, len);
	come_to_rest();
	/* Its order among others is kept. */
	assert_int_equal(put(&a, from, len, 2), 0);
	assert_int_equal(put(&a, from, 8, 2), 1);
	post(&b, plain, len, TAG(2), 1);
	post(&b, in, 8, TAG(2), 2);
	turns(1, 2);
	assert_int_equal(b.done[0].user + b.done[1].user, 3);
	assert_memory_equal(plain, from, len);
	assert_memory_equal(in, from, 8);
	kedge_channel_free(a.ch, from);
	kedge_channel_free(b.ch, to);
	free(plain);
}

/* ---- what nobody waits for yet ---- */

/* Its receive is posted as soon as the poll has returned: it is copied once. */
static void a_message_stays_for_the_next_receive(void **state)
{
	int i;

	post(&b, in, 64, TAG(1), 0);
	for (i = 0; i < 4; i++) {
		fill(out, 64, (unsigned int)i);
		assert_int_equal(put(&a, out, 64, 1), 1);
	}
	for (i = 0; i < 4; i++) {
		b.ch->quick = b.ch->quick_max; /* which looks at all */
		b.cnt = 0;
		assert_int_equal(turn(&b), 1);
		assert_int_equal(b.ch->unexpected_cnt, 0);
		fill(out, 64, (unsigned int)i);
		assert_memory_equal(in, out, 64);
		if (i < 3)
			post(&b, in, 64, TAG(1), 0);
	}
}

/* A message behind it is received, even if each poll has another completion. */
static void none_stays_for_ever(void **state)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull, name;
	bool got = false;
	ssize_t n;

	post(&b, in, 64, TAG(2), 2);
	assert_int_equal(put(&a, out, 64, 1), 1);
	assert_int_equal(put(&a, out, 64, 2), 1);
	while (!got && now_ns() < end) {
		assert_int_equal(kedge_channel_recv(b.ch, in + 64, 64, 3,
						    UINT64_MAX, 3, &name), 0);
		assert_int_equal(kedge_channel_cancel(b.ch, name), 0);
		b.cnt = 0;
		n = turn(&b);
		assert_true(n > 0);
		while (n--)
			got |= b.done[n].user == 2;
	}
	assert_true(got);
}

/* ---- what lies in the ring ---- */

/* Data of an earlier message may look like the next packet's word. */
static void what_lies_behind_a_packet_is_none(void **state)
{
	static const size_t lens[] = { 0, 8, 64, 1000, 8192 };
	struct ring *r;
	uint32_t next;
	size_t i, lap;

	r = b.ch->ring;
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		next = r->in_pos + ring_cells(24 + lens[i]);
		r->in[next & RING_MASK].seq = next + 1;
		r->in[next & RING_MASK].len = 24 + 8;
		post(&b, in, MOST, TAG(1), 0);
		assert_int_equal(put(&a, out, lens[i], 1), 1);
		quick_until_done();
		for (lap = 0; lap < 100; lap++)
			assert_int_equal(turn(&b), 0);
		come_to_rest();
	}
}

/* In the last cell begins one of two. */
static void no_packet_goes_over_the_end(void **state)
{
	struct packet_head h = { .type = PACKET_EAGER, .len = 64, .tag = 1 };
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	struct ring *r;
	ssize_t rc = 0;

	r = b.ch->ring;
	post(&b, in, MOST, TAG(1), 0);
	r->in_pos = RING_CELLS - 1;
	r->in_at = &r->in[r->in_pos];
	memcpy(r->in[r->in_pos].data, &h, sizeof(h));
	r->in[r->in_pos].len = sizeof(h) + 64;
	r->in[r->in_pos].seq = r->in_pos + 1;
	/* A later poll may be the one that looks at what became of the ring. */
	rc = quick_turn(&b);
	while (rc >= 0 && now_ns() < end)
		rc = turn(&b);
	assert_int_equal(rc, -EPROTO);
}

/* More than it was told it may: its messages are not kept. */
static void who_sends_too_many_is_cut_off(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .unexpected_cnt = 8 };
	uint64_t end;
	ssize_t rc = 0;
	int i;

	open_at_rest(&o);
	a.ch->peer.unexpected_cnt = UINT32_MAX;
	for (i = 0; i < 9; i++)
		assert_int_equal(put(&a, out, 8, 1), 1);
	end = now_ns() + HANG_S * 1000000000ull;
	while (rc >= 0 && now_ns() < end)
		rc = turn(&b);
	assert_int_equal(rc, -EPROTO);
	close_pair();
}

/* A message that waits is looked at in each poll. */
static void a_channel_with_a_queue_is_busy(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .unexpected_cnt = 1 };

	open_at_rest(&o);
	put(&a, out, 8, 1);
	assert_int_equal(put(&a, out, 8, 1), 0);
	turn(&a);
	assert_true(a.ch->busy);
	close_pair();
}

/* ---- laps of the ring ---- */

#define PAIRS 96 /* more than there are pages for */

static void go_through(size_t cnt)
{
	size_t i;

	for (i = 0; i < cnt; i++) {
		fill(out, 4000, (unsigned int)i);
		post(&b, in, 4000, TAG(1), i);
		assert_int_equal(put(&a, out, 4000, 1), 1);
		turns(0, 1);
		assert_memory_equal(in, out, 4000);
		b.cnt = 0;
	}
}

static void laps_grow_with_what_goes_through(void **state)
{
	uint32_t was;

	was = b.ch->ring->lap;
	go_through(20);
	assert_int_equal(a.ch->ring->lap, was);
	go_through(9000);
	assert_int_equal(a.ch->ring->lap, RING_CELLS);
	assert_int_equal(b.ch->ring->lap, was);
}

#define BURST 16u
#define LONG  40000u

/* Of any length and number at a time, so that they wait and the ring comes to its
 * end: nothing is written behind it, and all of them come. */
static void in_bursts(unsigned int rounds)
{
	static char from[BURST][LONG], to[BURST][LONG];
	unsigned int seed = 1, n, i, wait;
	size_t len[BURST];

	while (rounds--) {
		n = 1 + (unsigned int)rand_r(&seed) % BURST;
		for (i = 0; i < n; i++) {
			len[i] = (unsigned int)rand_r(&seed) % LONG;
			fill(from[i], len[i], rounds + i);
			post(&b, to[i], LONG, TAG(1), i);
		}
		for (i = 0, wait = 0; i < n; i++)
			wait += !put(&a, from[i], len[i], 1);
		turns(wait, n);
		for (i = 0; i < n; i++) {
			assert_int_equal(b.done[i].user, i);
			assert_int_equal(b.done[i].len, len[i]);
			assert_memory_equal(to[i], from[i], len[i]);
		}
		come_to_rest();
	}
}

static void a_short_ring_is_as_good(void **state)
{
	struct end ends[PAIRS][2];
	size_t cnt = 0;

	do {
		open_at_rest(NULL);
		ends[cnt][0] = a;
		ends[cnt++][1] = b;
	} while (a.ch->ring->out_cells != RING_SHORT && cnt < PAIRS);
	assert_int_equal(a.ch->ring->out_cells, RING_SHORT);
	assert_int_equal(b.ch->ring->in_max, RING_SHORT);
	in_bursts(300);
	assert_true(a.ch->ring->lap <= RING_SHORT);
	while (cnt--) {
		kedge_channel_close(ends[cnt][0].ch);
		kedge_channel_close(ends[cnt][1].ch);
	}
	/* Addresses for long ones are there again. */
	open_at_rest(NULL);
	assert_int_equal(a.ch->ring->out_cells, RING_CELLS);
	in_bursts(300);
	close_pair();
}

/* A bound for the process, whatever the number of its channels. */
static void all_laps_together_are_bounded(void **state)
{
	struct end ends[PAIRS][2];
	uint64_t sum = 0;
	size_t i, again;

	for (again = 0; again < 2; again++) {
		for (i = 0; i < PAIRS; i++) {
			open_at_rest(NULL);
			go_through(1500);
			sum += (a.ch->ring->lap - RING_SOFT) * CELL;
			ends[i][0] = a;
			ends[i][1] = b;
		}
		assert_true(sum <= RING_SPARE);
		assert_true(sum > RING_SPARE / 2);
		sum = 0;
		for (i = 0; i < PAIRS; i++) {
			kedge_channel_close(ends[i][0].ch);
			kedge_channel_close(ends[i][1].ch);
		}
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(any_length_arrives_whole),
		cmocka_unit_test(one_too_long_writes_nothing),
		TEST(pieces_are_filled),
		cmocka_unit_test(a_time_ends_with_its_message),
		TEST(a_receive_takes_what_waits_for_it),
		TEST(a_receive_that_got_nothing_says_so),
		TEST(a_bad_buffer_ends_its_message),
		TEST(a_stream_is_taken_at_once),
		cmocka_unit_test(credit_comes_back),
		TEST(a_message_of_the_heap_is_fetched),
		TEST(a_message_stays_for_the_next_receive),
		TEST(none_stays_for_ever),
		TEST(what_lies_behind_a_packet_is_none),
		TEST(no_packet_goes_over_the_end),
		cmocka_unit_test(who_sends_too_many_is_cut_off),
		cmocka_unit_test(a_channel_with_a_queue_is_busy),
		TEST(laps_grow_with_what_goes_through),
		cmocka_unit_test(a_short_ring_is_as_good),
		cmocka_unit_test(all_laps_together_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
