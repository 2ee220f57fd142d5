// SPDX-License-Identifier: BSD-2-Clause
/*
 * A send whose data have all gone: the peer alone knows whether it has them, and
 * both ends are told the same, if either gives up, at any time.
 */
#include "channel/internal.h"
#include "cases.h"

#define LEN 600000

static char out[LEN], *in;
static uint64_t sending, receiving;

static struct op *op_of(struct end *e, uint64_t name)
{
	const struct op_name n = { (uint32_t)name, (uint32_t)(name >> 32) };

	return op_find(e->ch, n);
}

static bool is_in(struct end *e, uint64_t name, enum op_state state)
{
	const struct op *op = op_of(e, name);

	assert_non_null(op);
	return op->state == state;
}

/* The receiver has said where it may land, and has not looked since. */
static void begin(const struct kedge_channel_opts *oa)
{
	open_pair(oa, NULL);
	in = kedge_channel_alloc(b.ch, LEN);
	assert_non_null(in);
	fill(out, LEN, 1);
	assert_int_equal(kedge_channel_recv(b.ch, in, LEN, TAG(1), 0,
					    &receiving), 0);
	assert_int_equal(kedge_channel_send(a.ch, out, LEN, 1, 0, &sending), 0);
	while (!is_in(&b, receiving, OP_LAND)) {
		turn(&a);
		turn(&b);
	}
}

static void send_all(const struct kedge_channel_opts *oa)
{
	begin(oa);
	while (!is_in(&a, sending, OP_SENT))
		turn(&a);
}

static void both_are_told(int status)
{
	turns(1, 1);
	assert_int_equal(a.done[0].status, status);
	assert_int_equal(b.done[0].status, status);
	assert_true(status || is_filled(in, LEN, 1));
}

static void one_that_is_cancelled_is_received(void **state)
{
	send_all(NULL);
	assert_int_equal(kedge_channel_cancel(a.ch, sending), 0);
	assert_int_equal(kedge_channel_cancel(a.ch, sending), 0);
	assert_int_equal(turn(&a), 0);
	both_are_told(0);
	close_pair();
}

static void one_that_both_cancel_is_not(void **state)
{
	send_all(NULL);
	assert_int_equal(kedge_channel_cancel(a.ch, sending), 0);
	assert_int_equal(kedge_channel_cancel(b.ch, receiving), 0);
	both_are_told(-ECANCELED);
	close_pair();
}

static void one_whose_receive_is_cancelled_is_not(void **state)
{
	send_all(NULL);
	assert_int_equal(kedge_channel_cancel(b.ch, receiving), 0);
	both_are_told(-ECANCELED);
	close_pair();
}

static void one_whose_time_is_up_is_received(void **state)
{
	const struct kedge_channel_opts o = { .size = sizeof(o),
					      .timeout_ms = 50 };

	begin(&o);
	/* On a slow machine its time is up before. */
	while (!a.cnt && !(is_in(&a, sending, OP_SENT) &&
			   op_of(&a, sending)->lingers))
		turn(&a);
	if (a.cnt)
		print_message("its time was up before all had gone\n");
	else
		both_are_told(0);
	close_pair();
}

static void a_peer_that_says_nothing_is_given_up(void **state)
{
	const struct kedge_channel_opts o = { .size = sizeof(o),
					      .peer_timeout_ms = 50 };

	send_all(&o);
	assert_int_equal(kedge_channel_cancel(a.ch, sending), 0);
	while (turn(&a) >= 0 && !a.cnt)
		;
	assert_int_equal(a.cnt, 1);
	assert_int_equal(a.done[0].status, -ETIMEDOUT);
	close_pair();
}

/* It says what it has received before it closes: this was not. */
static void a_receiver_that_closes_has_not_received_it(void **state)
{
	send_all(NULL);
	kedge_channel_close(b.ch);
	b.ch = NULL;
	while (!a.cnt)
		turn(&a);
	assert_int_equal(a.done[0].status, -ECONNRESET);
	close_pair();
}

static void need_ring(void)
{
	if (pair_over() == OVER_SHM)
		return;
	print_message("skipped: over TCP there is no ring that is full\n");
	skip();
}

static void fill_ring(struct end *e)
{
	while (kedge_channel_send(e->ch, out, 8, 2, 0, NULL) == 1)
		;
}

static void what_has_landed_and_was_not_said_is_not_received(void **state)
{
	need_ring();
	begin(NULL);
	fill_ring(&a);
	while (!is_in(&a, sending, OP_FIN))
		turn(&a);
	assert_int_equal(kedge_channel_cancel(b.ch, receiving), 0);
	while (!a.cnt || !b.cnt) {
		turn(&b);
		turn(&a);
	}
	assert_int_equal(a.done[0].tag, 1);
	assert_int_equal(a.done[0].status, -ECANCELED);
	assert_int_equal(b.done[0].status, -ECANCELED);
	close_pair();
}

static void *close_it(void *arg)
{
	kedge_channel_close(b.ch);
	return NULL;
}

/* There is no room to say it until the sender looks, which is after the close. */
static void a_close_says_what_was_received(void **state)
{
	pthread_t closing;

	need_ring();
	send_all(NULL);
	fill_ring(&b);
	while (!b.cnt)
		turn(&b);
	assert_int_equal(b.done[0].status, 0);
	assert_true(is_in(&b, receiving, OP_REFUSE));
	assert_int_equal(pthread_create(&closing, NULL, close_it, NULL), 0);
	while (!a.cnt)
		turn(&a);
	assert_int_equal(a.done[0].status, 0);
	pthread_join(closing, NULL);
	b.ch = NULL;
	close_pair();
}

int family_word(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_is_cancelled_is_received),
		cmocka_unit_test(one_that_both_cancel_is_not),
		cmocka_unit_test(one_whose_receive_is_cancelled_is_not),
		cmocka_unit_test(one_whose_time_is_up_is_received),
		cmocka_unit_test(a_peer_that_says_nothing_is_given_up),
		cmocka_unit_test(a_receiver_that_closes_has_not_received_it),
		cmocka_unit_test(what_has_landed_and_was_not_said_is_not_received),
		cmocka_unit_test(a_close_says_what_was_received),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
