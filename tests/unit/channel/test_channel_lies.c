// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer that says what no peer says, word by word: one end is a channel, at the
 * other the test writes packets.
 */
#include "channel/internal.h"
#include "channel/shm/bulk.h"
#include "channel_pair.h"

#define LEN 100u

static char in[LEN + 8];

static void say(uint8_t type, const void *body, size_t len)
{
	struct packet_head h = { .type = type, .len = (uint32_t)len };
	char *p = a.ch->t->reserve(a.ch->ctx, sizeof(h) + len);

	assert_non_null(p);
	memcpy(p, &h, sizeof(h));
	if (len)
		memcpy(p + sizeof(h), body, len);
	a.ch->t->commit(a.ch->ctx, p, sizeof(h) + len);
	if (a.ch->t->flush)
		a.ch->t->flush(a.ch->ctx);
}

/* The channel's answer of a type; other packets are passed over. */
static struct packet heard(uint8_t type)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	struct packet p = { 0 };
	const void *raw;
	size_t len;

	while (p.head.type != type && now_ns() < end) {
		turn(&b);
		raw = a.ch->t->next(a.ch->ctx, &len);
		if (!raw)
			continue;
		assert_int_equal(packet_parse_head(raw, len, &p.head), 0);
		if (p.head.type != PACKET_EAGER)
			assert_int_equal(packet_parse_body(raw, &p), 0);
		a.ch->t->release(a.ch->ctx, raw);
	}
	assert_int_equal(p.head.type, type);
	return p;
}

/* A short message is announced, and its receive has asked for it. */
static struct op_name asked_for(uint64_t *name)
{
	const struct packet_rts rts = { .len = LEN, .sender = { 3, 1 } };

	open_pair(NULL, NULL);
	memset(in, 'i', sizeof(in));
	assert_int_equal(kedge_channel_recv(b.ch, in, LEN, 0, 0, 1, name), 0);
	say(PACKET_RTS, &rts, offsetof(struct packet_rts, desc));
	return heard(PACKET_CTS).cts.receiver;
}

static void say_data(struct op_name to, size_t len)
{
	char body[sizeof(to) + 2 * LEN];

	memset(body, 'd', sizeof(body));
	memcpy(body, &to, sizeof(to));
	say(PACKET_DATA, body, sizeof(to) + len);
}

static void many_turns_of_b(void)
{
	int i;

	for (i = 0; i < 1000; i++)
		turn(&b);
}

static ssize_t end_of_channel(void)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	ssize_t rc = 0;

	while (rc >= 0 && now_ns() < end)
		rc = turn(&b);
	return rc;
}

static void data_is_what_was_announced(void **state)
{
	static const size_t wrong[] = { 1, LEN - 1, LEN + 1 };
	struct op_name to = asked_for(NULL);
	size_t i;

	say_data(to, LEN);
	turns(0, 1);
	assert_int_equal(b.done[0].status, 0);
	assert_int_equal(in[LEN - 1], 'd');
	assert_int_equal(in[LEN], 'i');
	/* Once more: nobody asks for it now. */
	memset(in, 'i', sizeof(in));
	say_data(to, LEN);
	many_turns();
	assert_int_equal(in[0], 'i');
	assert_int_equal(b.cnt, 1);
	close_pair();
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		to = asked_for(NULL);
		say_data(to, wrong[i]);
		assert_int_equal(end_of_channel(), -EPROTO);
		assert_int_equal(in[0], 'i');
		close_pair();
	}
}

static void data_for_what_was_given_up_is_dropped(void **state)
{
	uint64_t name;
	struct op_name to = asked_for(&name);

	assert_int_equal(kedge_channel_cancel(b.ch, name), 0);
	heard(PACKET_ABORT);
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, -ECANCELED);
	say_data(to, LEN);
	many_turns();
	assert_int_equal(in[0], 'i');
	assert_int_equal(b.cnt, 1);
	close_pair();
}

/* A long message is not sent in a packet, whatever is asked for: not if the same
 * word says where else it may land, either. */
static void a_long_message_goes_by_no_packet(void **state)
{
	const size_t one_piece = offsetof(struct cts_desc, piece[1]);
	struct packet_cts cts = { .receiver = { 1, 1 }, .way = KEDGE_WAY_EAGER };
	char *out = calloc(2, MIB);
	struct cts_desc d = { .mode = 2, .push = 1, .piece_cnt = 1,
			      .chunk = 128u << 10,
			      .piece = { { (uintptr_t)out + MIB, MIB } } };
	int i;

	memcpy(cts.desc, &d, one_piece);
	for (i = 0; i < 2; i++) {
		cts.desc_len = i ? (uint32_t)one_piece : 0;
		open_pair(NULL, NULL);
		assert_int_equal(put(&b, out, MIB, 1), 0);
		cts.sender = heard(PACKET_RTS).rts.sender;
		say(PACKET_CTS, &cts,
		    offsetof(struct packet_cts, desc) + cts.desc_len);
		assert_int_equal(end_of_channel(), -EPROTO);
		close_pair();
	}
	free(out);
}

/* The place in a segment that such a word has takes a piece, and one. */
static void a_segment_is_named_with_one_piece(void **state)
{
	static const struct {
		uint8_t mode, push;
		uint16_t pieces;
		uint32_t len; /* behind the fixed part */
	} lie[] = {
		{ 2, 2, 1, 16 }, { 2, 2, 1, 48 }, { 2, 2, 0, 40 }, { 2, 2, 2, 40 },
		{ 1, 2, 1, 40 }, { 3, 2, 1, 40 }, { 2, 3, 1, 16 }, { 2, 3, 1, 40 },
		{ 2, 2, 0, 0 },
	};
	const size_t fixed = offsetof(struct cts_desc, piece);
	struct packet_cts cts = { .receiver = { 1, 1 }, .way = KEDGE_WAY_DIRECT };
	char *out = calloc(2, MIB);
	struct cts_desc d = { .chunk = 128u << 10, .slot_cnt = 1,
			      .piece = { { (uintptr_t)out + MIB, MIB } } };
	size_t i;

	for (i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
		d.mode = lie[i].mode;
		d.push = lie[i].push;
		d.piece_cnt = lie[i].pieces;
		memset(cts.desc, 0, sizeof(cts.desc));
		memcpy(cts.desc, &d, sizeof(d));
		cts.desc_len = (uint32_t)fixed + lie[i].len;
		open_pair(NULL, NULL);
		assert_int_equal(put(&b, out, MIB, 1), 0);
		cts.sender = heard(PACKET_RTS).rts.sender;
		say(PACKET_CTS, &cts, offsetof(struct packet_cts, desc) + cts.desc_len);
		assert_int_equal(end_of_channel(), -EPROTO);
		close_pair();
	}
	free(out);
}

/* ---- what is given up ---- */

/* So many may wait; what its sender gives up does so no more. */
static void what_is_given_up_early_makes_room(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .unexpected_cnt = 4 };
	char *out = calloc(1, MIB);
	uint64_t name[4], end;
	int i, round;

	open_pair(&o, &o);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 4; i++)
			assert_int_equal(kedge_channel_send(a.ch, out, MIB, 1, 0,
							    &name[i]), 0);
		end = now_ns() + HANG_S * 1000000000ull;
		while (b.ch->unexpected_cnt < 4 && now_ns() < end) {
			turn(&a);
			turn(&b);
		}
		assert_int_equal(b.ch->unexpected_cnt, 4);
		for (i = 0; i < 4; i++)
			assert_int_equal(kedge_channel_cancel(a.ch, name[i]), 0);
		turns(4, 0);
		while (b.ch->unexpected_cnt && now_ns() < end)
			turn(&b);
		assert_int_equal(b.ch->unexpected_cnt, 0);
		a.cnt = 0;
	}
	close_pair();
	free(out);
}

/* The way of this CTS would be refused for a send that is not given up. */
static void a_send_that_is_given_up_is_asked_for_in_vain(void **state)
{
	struct packet_cts cts = { .receiver = { 1, 1 }, .way = KEDGE_WAY_EAGER };
	char *out = calloc(1, MIB);
	uint64_t name;

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_send(b.ch, out, MIB, 1, 0, &name), 0);
	cts.sender = heard(PACKET_RTS).rts.sender;
	assert_int_equal(kedge_channel_cancel(b.ch, name), 0);
	heard(PACKET_ABORT);
	say(PACKET_CTS, &cts, offsetof(struct packet_cts, desc));
	many_turns_of_b();
	assert_int_equal(turn(&b), 0);
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, -ECANCELED);
	close_pair();
	free(out);
}

/* A name is an index, and the number of its use: the message of another use stays. */
static void what_is_given_up_is_of_one_use(void **state)
{
	const struct packet_rts rts = { .len = LEN, .sender = { 3, 1 } };
	struct packet_op op = { .from = { 3, 2 } };

	open_pair(NULL, NULL);
	say(PACKET_RTS, &rts, offsetof(struct packet_rts, desc));
	many_turns_of_b();
	assert_int_equal(b.ch->unexpected_cnt, 1);
	say(PACKET_ABORT, &op, sizeof(op));
	many_turns_of_b();
	assert_int_equal(b.ch->unexpected_cnt, 1);
	op.from.gen = 1;
	say(PACKET_ABORT, &op, sizeof(op));
	many_turns_of_b();
	assert_int_equal(b.ch->unexpected_cnt, 0);
	close_pair();
}

/* The answer waits where the ring is full, and comes when it is not. */
static void an_answer_waits_for_room(void **state)
{
	/* More than the ring holds. */
	struct kedge_channel_opts o = { .size = sizeof(o),
					.unexpected_cnt = 2 * RING_CELLS };
	struct packet_op op = { .from = { 9, 9 } };
	char out[8] = "";
	struct packet p;

	open_pair(&o, &o);
	/* To its last cell. */
	while (put(&b, out, sizeof(out), 1))
		;
	say(PACKET_ABORT, &op, sizeof(op));
	while (list_empty(&b.ch->replies))
		turn(&b);
	do
		p = heard(PACKET_ABORTED);
	while (p.op.op.index != 9);
	assert_int_equal(p.op.op.gen, 9);
	assert_true(list_empty(&b.ch->replies));
	close_pair();
}

static void add_to_records(bool done)
{
	struct shm *s = b.ch->ctx;
	size_t i;

	for (i = 0; i < RECORDS; i++)
		if (done)
			s->my_records[i].sender_done++;
		else
			s->my_records[i].claim++;
}

/* The peer writes to the buffer: it is not the caller's before that is over. */
static void a_buffer_is_not_told_free_while_the_peer_writes(void **state)
{
	const size_t len = 16 * MIB;
	char *out = calloc(1, len), *heap;
	uint64_t name;

	open_pair(NULL, NULL);
	heap = kedge_channel_alloc(b.ch, len);
	assert_non_null(heap);
	assert_int_equal(kedge_channel_recv(b.ch, heap, len, 1, UINT64_MAX, 0,
					    &name), 0);
	assert_int_equal(put(&a, out, len, 1), 0);
	while (list_empty(&b.ch->active) && list_empty(&b.ch->idle))
		turn(&b);
	add_to_records(false);
	assert_int_equal(kedge_channel_cancel(b.ch, name), 0);
	many_turns_of_b();
	assert_int_equal(b.cnt, 0);
	add_to_records(true);
	many_turns_of_b();
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, -ECANCELED);
	kedge_channel_free(b.ch, heap);
	close_pair();
	free(out);
}

/* All of a message has landed, and the peer says in one breath so and that it leaves. */
static void what_has_landed_is_received_though_the_peer_leaves(void **state)
{
	const struct kedge_channel_opts o = { .size = sizeof(o), .way = KEDGE_WAY_DIRECT };
	char *out = malloc(MIB), *into = calloc(1, MIB);
	const struct op *op;
	uint64_t name;

	open_pair(&o, &o);
	memset(out, 'o', MIB);
	assert_int_equal(kedge_channel_recv(b.ch, into, MIB, TAG(1), 1, NULL), 0);
	assert_int_equal(kedge_channel_send(a.ch, out, MIB, 1, 0, &name), 0);
	turn(&a);
	turn(&b);
	op = op_find(a.ch, (struct op_name){ (uint32_t)name, (uint32_t)(name >> 32) });
	assert_non_null(op);
	while (op->state != OP_SENT)
		assert_int_equal(turn(&a), 0);
	say(PACKET_BYE, NULL, 0);
	turn(&b);
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, 0);
	assert_memory_equal(into, out, MIB);
	close_pair();
	free(into);
	free(out);
}

/* Names of operations that are none, are of the other kind, or are over. */
static void words_to_nobody_change_nothing(void **state)
{
	struct packet_op op = { .op = { 77, 9 }, .from = { 5, 5 } };
	struct packet_cts cts = { .sender = { 77, 9 }, .receiver = { 1, 1 },
				  .way = KEDGE_WAY_COPY };
	uint64_t name;

	open_pair(NULL, NULL);
	memset(in, 'i', sizeof(in));
	assert_int_equal(kedge_channel_recv(b.ch, in, LEN, TAG(1), 1, &name),
			 0);
	say(PACKET_FIN, &op, sizeof(op));
	say(PACKET_REFUSE, &op, sizeof(op));
	say(PACKET_ABORT, &op, sizeof(op));
	say(PACKET_CTS, &cts, offsetof(struct packet_cts, desc));
	say_data(op.op, LEN);
	/* To the receive, but as if it were a send; it was announced nothing. */
	op.op = (struct op_name){ (uint32_t)name, (uint32_t)(name >> 32) };
	cts.sender = op.op;
	say(PACKET_REFUSE, &op, sizeof(op));
	say(PACKET_FIN, &op, sizeof(op));
	say(PACKET_CTS, &cts, offsetof(struct packet_cts, desc));
	say_data(op.op, LEN);
	many_turns();
	assert_int_equal(in[0], 'i');
	assert_int_equal(b.cnt, 0);
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_is_what_was_announced),
		cmocka_unit_test(data_for_what_was_given_up_is_dropped),
		cmocka_unit_test(a_long_message_goes_by_no_packet),
		cmocka_unit_test(a_segment_is_named_with_one_piece),
		cmocka_unit_test(what_is_given_up_early_makes_room),
		cmocka_unit_test(a_send_that_is_given_up_is_asked_for_in_vain),
		cmocka_unit_test(what_is_given_up_is_of_one_use),
		cmocka_unit_test(an_answer_waits_for_room),
		cmocka_unit_test(a_buffer_is_not_told_free_while_the_peer_writes),
		cmocka_unit_test(what_has_landed_is_received_though_the_peer_leaves),
		cmocka_unit_test(words_to_nobody_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
