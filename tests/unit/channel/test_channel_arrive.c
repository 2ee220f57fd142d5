// SPDX-License-Identifier: BSD-2-Clause
/*
 * Long eager messages that are taken while they are being written. The case is
 * the sender, so it decides how much is there when.
 */
#include "channel_pair.h"

#include "channel/internal.h"
#include "channel/shm/internal.h"

#define LEN 40000u

static char out[LEN], in[LEN], other[LEN];

static struct packet_head *packet;

/* A message of @len bytes, of which none is there. */
static void show(size_t len, uint64_t tag)
{
	struct kedge_channel *ch = a.ch;

	packet = ch->t->reserve(ch->ctx, sizeof(*packet) + len);
	assert_non_null(packet);
	*packet = (struct packet_head){ .type = PACKET_EAGER,
					.len = (uint32_t)len,
					.tag = tag };
	ch->sent_cnt++;
	ch->sent_bytes += (uint32_t)len;
	ch->t->begin(ch->ctx, packet, sizeof(*packet) + len, sizeof(*packet));
}

static void write_to(size_t to)
{
	memcpy(packet + 1, out, to);
	a.ch->t->more(a.ch->ctx, sizeof(*packet) + to);
}

static void write_all(size_t len)
{
	memcpy(packet + 1, out, len);
	a.ch->t->commit(a.ch->ctx, packet, sizeof(*packet) + len);
}

static void open_with(uint32_t timeout_ms)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.timeout_ms = timeout_ms };

	open_pair(&o, &o);
	fill(out, LEN, 6);
	memset(in, 0, LEN);
}

static void assert_one(int status)
{
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, status);
	b.cnt = 0;
}

/* A later message is received. */
static void assert_goes_on(void)
{
	char small[8] = "";

	b.cnt = 0;
	post(&b, small, 8, TAG(77), 0);
	put(&a, "on", 3, 77);
	turns(0, 1);
	assert_string_equal(small, "on");
	close_pair();
}

static void it_is_taken_as_it_is_written(void **state)
{
	open_with(0);
	post(&b, in, LEN, TAG(1), 3);
	show(LEN, 1);
	assert_int_equal(turn(&b), 0);
	write_to(10000);
	assert_int_equal(turn(&b), 0);
	assert_true(is_filled(in, 10000, 6));
	assert_int_equal(in[10000], 0);
	assert_int_equal(kedge_channel_wait(b.ch, 0), 1);
	write_all(LEN);
	turns(0, 1);
	assert_int_equal(b.done[0].len, LEN);
	assert_int_equal(b.done[0].user, 3);
	assert_one(0);
	assert_true(is_filled(in, LEN, 6));
	assert_goes_on();
}

static void a_receive_takes_it_over(void **state)
{
	open_with(0);
	show(LEN, 1);
	write_to(10000);
	assert_int_equal(turn(&b), 0);
	/* One of another tag does not. */
	post(&b, in + LEN - 8, 8, TAG(2), 0);
	post(&b, in, LEN, TAG(1), 3);
	assert_true(is_filled(in, 10000, 6));
	write_to(20000);
	assert_int_equal(turn(&b), 0);
	write_all(LEN);
	turns(0, 1);
	assert_int_equal(b.done[0].user, 3);
	assert_one(0);
	assert_true(is_filled(in, LEN, 6));
	put(&a, "x", 2, 2);
	turns(0, 1);
	assert_goes_on();
}

static void it_waits_for_its_receive(void **state)
{
	open_with(0);
	show(LEN, 1);
	assert_int_equal(turn(&b), 0);
	write_all(LEN);
	assert_int_equal(turn(&b), 0);
	post(&b, in, LEN, TAG(1), 3);
	turns(0, 1);
	assert_one(0);
	assert_true(is_filled(in, LEN, 6));
	assert_goes_on();
}

static void a_receive_is_given_up_meanwhile(void **state)
{
	uint64_t op;

	open_with(0);
	assert_int_equal(kedge_channel_recv(b.ch, in, LEN, TAG(1), 0, &op), 0);
	show(LEN, 1);
	write_to(10000);
	assert_int_equal(turn(&b), 0);
	assert_int_equal(kedge_channel_cancel(b.ch, op), 0);
	memset(in, 0, LEN);
	write_to(20000);
	turns(0, 1);
	assert_one(-ECANCELED);
	assert_int_equal(in[0], 0);
	/* It is for the next, */
	assert_int_equal(kedge_channel_recv(b.ch, in, LEN, TAG(1), 5, &op), 0);
	assert_true(is_filled(in, 20000, 6));
	/* or another that was posted behind that. */
	post(&b, other, LEN, ANY, 6);
	assert_int_equal(kedge_channel_cancel(b.ch, op), 0);
	write_all(LEN);
	turns(0, 2);
	assert_int_equal(b.done[0].status, -ECANCELED);
	assert_int_equal(b.done[1].status, 0);
	assert_int_equal(b.done[1].user, 6);
	assert_true(is_filled(other, LEN, 6));
	assert_goes_on();
}

static void its_time_is_up_meanwhile(void **state)
{
	open_with(5);
	post(&b, in, LEN, TAG(1), 0);
	show(LEN, 1);
	assert_int_equal(turn(&b), 0);
	WAIT_FOR(turn(&b));
	assert_one(-ETIMEDOUT);
	write_all(LEN);
	turn(&b);
	assert_int_equal(b.cnt, 0);
	post(&b, in, LEN, TAG(1), 0);
	turns(0, 1);
	assert_one(0);
	assert_true(is_filled(in, LEN, 6));
	close_pair();
}

static void one_that_does_not_fit_is_dropped(void **state)
{
	open_with(0);
	post(&b, in, LEN - 1, TAG(1), 0);
	show(LEN, 1);
	turns(0, 1);
	assert_int_equal(b.done[0].len, LEN);
	assert_one(-EMSGSIZE);
	write_all(LEN);
	turn(&b);
	assert_int_equal(in[0], 0);
	/* Where it waited for its receive, too. */
	show(LEN, 1);
	write_to(10);
	assert_int_equal(turn(&b), 0);
	post(&b, in, LEN - 1, TAG(1), 0);
	turns(0, 1);
	assert_one(-EMSGSIZE);
	write_all(LEN);
	turn(&b);
	assert_int_equal(in[0], 0);
	assert_goes_on();
}

static void the_sender_is_gone_before_it_is_there(void **state)
{
	open_with(0);
	post(&b, in, LEN, TAG(1), 0);
	show(LEN, 1);
	write_to(10000);
	assert_int_equal(turn(&b), 0);
	a.ch->dead = -EPROTO; /* so that close() sends nothing */
	kedge_channel_close(a.ch);
	WAIT_FOR(turn(&b));
	assert_one(-ECONNRESET);
	kedge_channel_close(b.ch);

	open_with(0);
	show(LEN, 1);
	write_to(10000);
	assert_int_equal(turn(&b), 0);
	a.ch->dead = -EPROTO;
	kedge_channel_close(a.ch);
	WAIT_FOR(turn(&b) < 0);
	assert_int_equal(kedge_channel_recv(b.ch, in, LEN, TAG(1), 0, NULL),
			 -ECONNRESET);
	kedge_channel_close(b.ch);
}

/* A peer's claim of its progress reaches at most the packet's end. */
static void a_peer_lies_about_how_far_it_is(void **state)
{
	static const uint64_t lies[] = { 0, 1, 10000, UINT32_MAX, UINT64_MAX,
					 7, 1ull << 32 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lies); i++) {
		open_with(0);
		post(&b, in, LEN, TAG(1), 0);
		show(LEN, 1);
		write_to(20000);
		turn(&b);
		atomic_store(&a.ch->ring->peer_head->grown, lies[i]);
		turn(&b);
		write_all(LEN);
		while (!b.cnt)
			turn(&b);
		assert_one(0);
		close_pair();
	}
}

static void bytes_that_wait_are_bounded(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o),
					.unexpected_bytes = 2 * LEN };

	open_pair(&o, &o);
	fill(out, LEN, 6);
	show(LEN, 1);
	assert_int_equal(turn(&b), 0);
	write_all(LEN);
	show(LEN, 1);
	write_all(LEN);
	assert_int_equal(turn(&b), 0);
	show(LEN, 1);
	assert_int_equal(turn(&b), -EPROTO);
	write_all(LEN);
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_taken_as_it_is_written),
		cmocka_unit_test(a_receive_takes_it_over),
		cmocka_unit_test(it_waits_for_its_receive),
		cmocka_unit_test(a_receive_is_given_up_meanwhile),
		cmocka_unit_test(its_time_is_up_meanwhile),
		cmocka_unit_test(one_that_does_not_fit_is_dropped),
		cmocka_unit_test(the_sender_is_gone_before_it_is_there),
		cmocka_unit_test(a_peer_lies_about_how_far_it_is),
		cmocka_unit_test(bytes_that_wait_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
