// SPDX-License-Identifier: BSD-2-Clause
/*
 * A channel over TCP whose peer is a socket in this test's hands: frames that
 * are right, frames that are not, and what becomes of operations in the middle
 * of one.
 */
#include "tcp_wire.h"

/* From the beginning, within a case. */
static void again(void **state)
{
	wire_teardown(state);
	wire_setup(state);
}

/* ---- receiving ---- */

static void a_message_lands(void **state)
{
	uint32_t id, at, len;

	wire_receive(LEN);
	id = wire_agreed(LEN);
	for (at = 0; at < LEN; at += len) {
		len = LEN - at < 100000 ? LEN - at : 100000;
		say_head(len, id);
		wire_hear(buf, 0);
		wire_say(data + at, len);
		say_tail(TAIL_WHOLE, id);
		kedge_channel_poll(ch, NULL, 0);
	}
	assert_int_equal(wait_one().status, 0);
	assert_memory_equal(buf, data, LEN);
}

/* The peer is in the middle of a frame, and silent. */
static void a_cancelled_receive_waits_for_nobody(void **state)
{
	struct kedge_completion c;
	char small[8] = "";
	uint64_t op = wire_receive(LEN);
	uint32_t id = wire_agreed(LEN);
	ssize_t n;

	say_head(FRAME_MIN, id);
	wire_say(data, 5000);
	while (memcmp(buf, data, 5000))
		kedge_channel_poll(ch, NULL, 0);
	assert_int_equal(kedge_channel_cancel(ch, op), 0);
	n = kedge_channel_poll(ch, &c, 1);
	assert_int_equal(n, 1);
	assert_int_equal(c.status, -ECANCELED);
	/* The rest of its bytes lands nowhere, and the next message does. */
	memset(buf, 0, LEN);
	for (n = 5000; n < (ssize_t)FRAME_MIN; n += 1000) {
		wire_say(data + n, FRAME_MIN - n < 1000 ? FRAME_MIN - n : 1000);
		kedge_channel_poll(ch, NULL, 0);
	}
	say_tail(TAIL_WHOLE, id);
	kedge_channel_recv(ch, small, sizeof(small), 2, UINT64_MAX, 6, NULL);
	say_packet(PACKET_EAGER, 2, "hello", 5);
	c = wait_one();
	assert_int_equal(c.user, 6);
	assert_int_equal(c.status, 0);
	assert_memory_equal(small, "hello", 5);
	for (n = 0; n < (ssize_t)LEN; n++)
		assert_int_equal(buf[n], 0);
}

/* Its last frame is zeros, not data: it is never taken for the message. */
static void what_its_sender_gave_up_is_not_whole(void **state)
{
	const struct packet_op abort_op = { .op = { 0, 1 }, .from = { 7, 1 },
					    .status = -ECANCELED };
	struct kedge_completion c;
	uint32_t id;

	wire_receive(10000);
	id = wire_agreed(10000);
	say_head(10000, id);
	wire_say(data, 10000);
	say_tail(0, 0);
	say_packet(PACKET_FIN, 0, &abort_op, sizeof(abort_op));
	assert_int_equal(kedge_channel_poll(ch, &c, 1), 0);
	assert_int_equal(kedge_channel_poll(ch, &c, 1), 0);
	say_packet(PACKET_ABORT, 0, &abort_op, sizeof(abort_op));
	c = wait_one();
	assert_int_equal(c.status, -ECANCELED);
}

static void a_buffer_that_cannot_be_written_is_an_errno(void **state)
{
	char *bad = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	struct kedge_completion c;
	char small[8];
	uint32_t id;

	kedge_channel_recv(ch, bad, LEN, 1, UINT64_MAX, 5, NULL);
	id = wire_agreed(LEN);
	say_head(1000, id);
	wire_say(data, 1000);
	say_tail(TAIL_WHOLE, id);
	c = wait_one();
	assert_int_equal(c.status, -EFAULT);
	kedge_channel_recv(ch, small, sizeof(small), 2, UINT64_MAX, 6, NULL);
	say_packet(PACKET_EAGER, 2, "hello", 5);
	assert_int_equal(wait_one().status, 0);
	munmap(bad, LEN);
}

/* It was no error before, and no progress either: nothing ever moved. */
static void a_message_lands_without_memory_for_long_buffers(void **state)
{
	no_long_malloc = true;
	a_message_lands(state);
	no_long_malloc = false;
}

static void packets_get_through_without_memory_for_long_buffers(void **state)
{
	enum { CNT = 40, EAGER = 8192 };
	char *got = malloc(EAGER);
	struct kedge_completion c;
	int i;

	no_long_malloc = true;
	malloc_failed = 0;
	/* A packet waits for room in the socket and nothing else. */
	for (i = 0; i < CNT; i++)
		assert_true(kedge_channel_send(ch, data, EAGER, (uint64_t)i, 1,
					       NULL) >= 0);
	for (i = 0; i < CNT; i++) {
		assert_int_equal(hear_packet(got, EAGER).tag, i);
		assert_memory_equal(got, data, EAGER);
	}
	while (kedge_channel_poll(ch, &c, 1))
		assert_int_equal(c.status, 0);
	for (i = 0; i < 10; i++)
		say_packet(PACKET_EAGER, (uint64_t)i, data, EAGER);
	for (i = 0; i < 10; i++) {
		memset(buf, 0, EAGER);
		kedge_channel_recv(ch, buf, EAGER, (uint64_t)i, UINT64_MAX, 2,
				   NULL);
		assert_int_equal(wait_one().status, 0);
		assert_memory_equal(buf, data, EAGER);
	}
	/* Memory was asked for both ways, and not needed. */
	assert_true(malloc_failed >= 2);
	no_long_malloc = false;
	free(got);
}

/* ---- sending ---- */

static struct op_name asked;

static void answer_with(uint32_t id, uint64_t len)
{
	struct packet_rts rts;
	struct packet_cts cts = { .receiver = { 9, 1 },
				  .way = KEDGE_WAY_DIRECT, .desc_len = 16 };

	assert_int_equal(hear_packet(&rts, sizeof(rts)).type, PACKET_RTS);
	cts.sender = rts.sender;
	asked = rts.sender;
	memcpy(cts.desc, &id, 4);
	memcpy(cts.desc + 8, &len, 8);
	say_packet(PACKET_CTS, 0, &cts,
		   offsetof(struct packet_cts, desc) + 16);
}

/* So much of the frame has left as the socket takes. */
static void say_it_has_come(void)
{
	struct packet_op op = { .op = asked, .from = { 9, 1 },
				.flags = PACKET_OP_TO_SENDER };

	say_packet(PACKET_REFUSE, 0, &op, sizeof(op));
}

/* A send is complete when its receiver says so. */
static void say_all_is_there(void)
{
	struct kedge_completion c;
	int i;

	for (i = 0; i < 100; i++)
		assert_int_equal(kedge_channel_poll(ch, &c, 1), 0);
	say_it_has_come();
}

static void a_cancelled_send_waits_for_nobody(void **state)
{
	char *got = malloc(FRAME_MIN);
	struct kedge_completion c;
	struct packet_op op;
	struct tcp_head h;
	struct tcp_tail t;
	uint64_t name;
	size_t i;

	assert_int_equal(kedge_channel_send(ch, data, LEN, 1, 3, &name), 0);
	answer_with(77, LEN);
	for (i = 0; i < 1000; i++)
		assert_int_equal(kedge_channel_poll(ch, &c, 1), 0);
	assert_int_equal(kedge_channel_cancel(ch, name), 0);
	assert_int_equal(kedge_channel_poll(ch, &c, 1), 1);
	assert_int_equal(c.status, -ECANCELED);
	/* The buffer is ours again. */
	memset(data, 'x', LEN);
	wire_hear(&h, sizeof(h));
	assert_int_equal(h.id, 77);
	assert_int_equal(h.len, FRAME_MIN);
	wire_hear(got, h.len);
	for (i = 0; i < 4096; i++)
		assert_int_equal(got[i], byte_at(i));
	assert_int_equal(got[h.len - 1], 0);
	wire_hear(&t, sizeof(t));
	assert_int_equal(t.whole, 0);
	assert_int_equal(hear_packet(&op, sizeof(op)).type, PACKET_ABORT);
	free(got);
}

static void a_packet_waits_for_one_frame_at_most(void **state)
{
	char *got = malloc(FRAME_MIN), text[8];
	struct packet_head p;
	struct tcp_head h;
	struct tcp_tail t;
	int i;

	assert_int_equal(kedge_channel_send(ch, data, LEN, 1, 3, NULL), 0);
	answer_with(5, LEN);
	for (i = 0; i < 100; i++)
		kedge_channel_poll(ch, NULL, 0);
	assert_int_equal(kedge_channel_send(ch, "now", 3, 2, 4, NULL), 1);
	wire_hear(&h, sizeof(h));
	wire_hear(got, h.len);
	assert_memory_equal(got, data, h.len);
	wire_hear(&t, sizeof(t));
	assert_int_equal(t.whole, TAIL_WHOLE);
	p = hear_packet(text, sizeof(text));
	assert_int_equal(p.type, PACKET_EAGER);
	assert_memory_equal(text, "now", 3);
	free(got);
}

/* The length of the next frame of @from, which is all right. */
static uint32_t hear_frame(const char *from, char *got)
{
	struct tcp_head h;
	struct tcp_tail t;

	wire_hear(&h, sizeof(h));
	assert_true(h.len <= FRAME_MAX);
	wire_hear(got, h.len);
	assert_memory_equal(got, from, h.len);
	wire_hear(&t, sizeof(t));
	assert_int_equal(t.whole, TAIL_WHOLE);
	return h.len;
}

/* The receiver may see the end before the sender has seen that all is sent. */
static void an_answer_may_come_first(void **state)
{
	char *got = malloc(FRAME_MAX);
	size_t at = 0;

	assert_int_equal(kedge_channel_send(ch, data, LEN, 1, 3, NULL), 0);
	answer_with(5, LEN);
	say_it_has_come();
	while (at < LEN)
		at += hear_frame(data + at, got);
	assert_int_equal(wait_one().status, 0);
	free(got);
}

static void frames_are_as_long_as_the_socket_takes_at_once(void **state)
{
	const size_t len = 5 * FRAME_MAX;
	char *from = malloc(len), *got = malloc(FRAME_MAX);
	char *room = malloc(2 * len);
	uint32_t want = FRAME_MIN;
	size_t i, at = 0;

	for (i = 0; i < len; i++)
		from[i] = byte_at(i);
	assert_int_equal(kedge_channel_send(ch, from, len, 1, 3, NULL), 0);
	answer_with(5, len);
	stash = room;
	stash_at = stash_end = 0;
	/* Each is twice as long as the one before. */
	while (want < FRAME_MAX) {
		assert_int_equal(hear_frame(from + at, got), want);
		at += want;
		want *= 2;
	}
	assert_int_equal(hear_frame(from + at, got), FRAME_MAX);
	at += FRAME_MAX;
	while (stash_at < stash_end)
		at += hear_frame(from + at, got);
	/* From now on it is full in each: they get shorter. */
	stash = NULL;
	while (want > FRAME_MIN) {
		assert_int_equal(hear_frame(from + at, got), want);
		at += want;
		want /= 2;
	}
	while (at < len)
		at += hear_frame(from + at, got);
	say_all_is_there();
	assert_int_equal(wait_one().status, 0);
	free(room);
	free(got);
	free(from);
}

static void frames_stay_short_where_the_kernel_paces(void **state)
{
	char *got = malloc(FRAME_MAX), *room = malloc(2 * LEN);
	size_t at = 0;

	wire_teardown(state);
	congestion = "bbr";
	wire_setup(state);
	congestion = NULL;
	assert_int_equal(kedge_channel_send(ch, data, LEN, 1, 3, NULL), 0);
	answer_with(5, LEN);
	stash = room;
	stash_at = stash_end = 0;
	assert_int_equal(hear_frame(data, got), FRAME_MIN);
	assert_int_equal(hear_frame(data + FRAME_MIN, got), FRAME_MIN);
	for (at = 2 * FRAME_MIN; at < LEN;)
		at += hear_frame(data + at, got);
	stash = NULL;
	say_all_is_there();
	assert_int_equal(wait_one().status, 0);
	free(room);
	free(got);
}

static void a_source_that_cannot_be_read_is_an_errno(void **state)
{
	char *bad = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);

	assert_int_equal(kedge_channel_send(ch, bad, LEN, 1, 3, NULL), 0);
	answer_with(5, LEN);
	assert_int_equal(wait_one().status, -EFAULT);
	munmap(bad, LEN);
}

/* ---- nonsense ---- */

static void absurd_lengths_end_the_channel(void **state)
{
	static const struct tcp_head bad[] = {
		{ 0, 0 }, { 23, 0 }, { PACKET_MAX + 1, 0 }, { UINT32_MAX, 0 },
		{ 8, 1 }, { 8, UINT32_MAX }, { 0, UINT32_MAX },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		if (i)
			again(state);
		wire_say(&bad[i], sizeof(bad[i]));
		assert_int_equal(wire_ends(), -EPROTO);
	}
}

static void data_that_was_not_asked_for_ends_it(void **state)
{
	uint32_t id;
	char *big;

	/* Beyond the end. */
	wire_receive(10000);
	id = wire_agreed(10000);
	say_head(10001, id);
	assert_int_equal(wire_ends(), -EPROTO);
	/* A frame of nothing, and one that is too long. */
	again(state);
	wire_receive(LEN);
	say_head(0, wire_agreed(LEN));
	assert_int_equal(wire_ends(), -EPROTO);
	again(state);
	big = malloc(2 * FRAME_MAX);
	kedge_channel_recv(ch, big, 2 * FRAME_MAX, 1, UINT64_MAX, 5, NULL);
	say_head(FRAME_MAX + 1, wire_agreed(2 * FRAME_MAX));
	assert_int_equal(wire_ends(), -EPROTO);
	/* A tail of something else. */
	wire_teardown(state);
	free(big);
	wire_setup(state);
	wire_receive(LEN);
	id = wire_agreed(LEN);
	say_head(8, id);
	wire_say(data, 8);
	say_tail(TAIL_WHOLE, id + 1);
	assert_int_equal(wire_ends(), -EPROTO);
	/* More data after giving up. */
	again(state);
	wire_receive(LEN);
	id = wire_agreed(LEN);
	say_head(8, id);
	wire_say(data, 8);
	say_tail(0, 0);
	say_head(8, id);
	assert_int_equal(wire_ends(), -EPROTO);
	/* With its announcement, before it can know where to. */
	again(state);
	wire_receive(LEN);
	say_rts(LEN);
	say_head(8, 1);
	wire_say(data, 8);
	say_tail(TAIL_WHOLE, 1);
	assert_int_equal(wire_ends(), -EPROTO);
}

static void half_a_packet_holds_nothing_up(void **state)
{
	const struct packet_head p = { .type = PACKET_EAGER, .len = 8 };
	struct kedge_completion c;
	uint64_t op = wire_receive(8);

	say_head(sizeof(p) + 8, 0);
	wire_say(&p, sizeof(p));
	assert_int_equal(kedge_channel_poll(ch, &c, 1), 0);
	assert_int_equal(kedge_channel_cancel(ch, op), 0);
	assert_int_equal(kedge_channel_poll(ch, &c, 1), 1);
	assert_int_equal(c.status, -ECANCELED);
	close(wire);
	wire = -1;
	assert_int_equal(wire_ends(), -ECONNRESET);
}

/* A complete message is received, though its sender has gone. */
static void a_peer_that_leaves_is_heard_out(void **state)
{
	char text[8];

	say_packet(PACKET_EAGER, 1, "last", 4);
	close(wire);
	wire = -1;
	kedge_channel_recv(ch, text, 8, 1, UINT64_MAX, 0, NULL);
	assert_int_equal(wait_one().status, 0);
	assert_int_equal(wire_ends(), -ECONNRESET);
}

static void a_flood_ends_a_poll(void **state)
{
	const struct packet_head p = { .type = PACKET_CREDIT };
	struct {
		struct tcp_head h;
		struct packet_head p;
	} one[64];
	size_t i;

	for (i = 0; i < 64; i++) {
		one[i].h = (struct tcp_head){ sizeof(p), 0 };
		one[i].p = p;
	}
	for (i = 0; i < 1000; i++) {
		while (send(wire, one, sizeof(one), MSG_DONTWAIT) > 0)
			;
		assert_int_equal(kedge_channel_poll(ch, NULL, 0), 0);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, wire_setup, wire_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_message_lands),
		TEST(a_message_lands_without_memory_for_long_buffers),
		TEST(packets_get_through_without_memory_for_long_buffers),
		TEST(a_cancelled_receive_waits_for_nobody),
		TEST(what_its_sender_gave_up_is_not_whole),
		TEST(a_buffer_that_cannot_be_written_is_an_errno),
		TEST(a_cancelled_send_waits_for_nobody),
		TEST(a_packet_waits_for_one_frame_at_most),
		TEST(an_answer_may_come_first),
		TEST(frames_are_as_long_as_the_socket_takes_at_once),
		TEST(frames_stay_short_where_the_kernel_paces),
		TEST(a_source_that_cannot_be_read_is_an_errno),
		TEST(absurd_lengths_end_the_channel),
		TEST(data_that_was_not_asked_for_ends_it),
		TEST(half_a_packet_holds_nothing_up),
		TEST(a_peer_that_leaves_is_heard_out),
		TEST(a_flood_ends_a_poll),
	};
	int rc;

	buf = malloc(LEN);
	data = malloc(LEN);
	if (!buf || !data)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	free(buf);
	free(data);
	return rc;
}
