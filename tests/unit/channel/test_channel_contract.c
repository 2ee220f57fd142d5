// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a user of a channel relies on, whatever carries it: the same cases over each
 * transport, most of them taken from the families of cases.h.
 */
#include "cases.h"

static void many_in_both_directions_at_once(void **state)
{
	enum { CNT = 3000, LEN = 700, WINDOW = 24 };
	static char out[2][WINDOW][LEN], in[2][WINDOW][LEN];
	struct end *const ends[2] = { &a, &b };
	size_t sent[2] = { 0 }, got[2] = { 0 }, posted[2] = { 0 }, i, k;
	const uint64_t end = now_ns() + HANG_S * 1000000000ull;

	open_pair(NULL, NULL);
	while (got[0] < CNT || got[1] < CNT) {
		assert_true(now_ns() < end);
		for (i = 0; i < 2; i++) {
			for (; posted[i] < CNT && posted[i] < got[i] + WINDOW; posted[i]++)
				post(ends[i], in[i][posted[i] % WINDOW], LEN,
				     TAG(posted[i]), 0);
			/* What the other has received has left its buffer. */
			for (; sent[i] < CNT && sent[i] < got[!i] + WINDOW; sent[i]++) {
				fill(out[i][sent[i] % WINDOW], LEN,
				     (unsigned int)(sent[i] + i));
				put(ends[i], out[i][sent[i] % WINDOW], LEN, sent[i]);
			}
			turn(ends[i]);
			for (k = 0; k < ends[i]->cnt; k++) {
				assert_int_equal(ends[i]->done[k].status, 0);
				if (!(ends[i]->done[k].flags & KEDGE_COMPLETION_RECV))
					continue;
				assert_int_equal(ends[i]->done[k].tag, got[i]);
				assert_true(is_filled(in[i][got[i] % WINDOW], LEN,
						      (unsigned int)(got[i] + !i)));
				got[i]++;
			}
			ends[i]->cnt = 0;
		}
	}
	close_pair();
}

static int readable(struct end *e, int ms)
{
	struct pollfd p = { .fd = kedge_channel_fd(e->ch), .events = POLLIN };

	return poll(&p, 1, ms);
}

/* After arm() the descriptor tells of what comes, and arm() of what is there. */
static void the_descriptor_tells(void **state)
{
	static const size_t lens[] = { 0, 1, 120, 4096, 8000 };
	static char out[8192], in[8192];
	const uint64_t end = now_ns() + HANG_S * 1000000000ull;
	size_t n, len;

	open_pair(NULL, NULL);
	for (n = 0; n < 100; n++) {
		len = lens[n % ARRAY_SIZE(lens)];
		fill(out, len, (unsigned int)n);
		do {
			turn(&a);
			turn(&b);
			assert_true(now_ns() < end);
		} while (kedge_channel_arm(b.ch) || readable(&b, n ? 0 : 20));
		post(&b, in, sizeof(in), TAG(n), 0);
		put(&a, out, len, n);
		/* Some say that it is sent only when it has come. */
		while (!readable(&b, 1)) {
			turn(&a);
			assert_true(now_ns() < end);
		}
		b.cnt = 0;
		WAIT_FOR((turn(&a), turn(&b), b.cnt));
		assert_true(is_filled(in, len, (unsigned int)n));
		a.cnt = 0;
	}
	b.cnt = 0;
	put(&a, out, 8, 1);
	WAIT_FOR((turn(&a), kedge_channel_arm(b.ch) == 1));
	post(&b, in, 8, ANY, 0);
	WAIT_FOR((turn(&b), b.cnt));
	close_pair();
}

#define DOOMED 20

static void send_and_wait_for_death(struct kedge_channel *ch)
{
	struct kedge_completion c;
	uint64_t i;

	for (i = 0; i < DOOMED; i++)
		CHILD_CHECK(kedge_channel_send(ch, &i, sizeof(i), 1, 0, NULL) >= 0);
	for (;;)
		kedge_channel_poll(ch, &c, 1);
}

/* And what it had sent is received first. */
static void a_killed_peer_is_noticed(void **state)
{
	pid_t pid = open_child(send_and_wait_for_death);
	struct kedge_channel_stats st = { .size = sizeof(st) };
	const uint64_t end = now_ns() + HANG_S * 1000000000ull;
	uint64_t in, i;
	ssize_t n = 0;
	int status;

	WAIT_FOR((turn(&b), !kedge_channel_stats(b.ch, &st) && st.unexpected == DOOMED));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	while (n >= 0 && now_ns() < end)
		n = turn(&b);
	assert_int_equal(n, -ECONNRESET);
	for (i = 0; i < DOOMED; i++) {
		b.cnt = 0;
		post(&b, &in, sizeof(in), ANY, 0);
		turn(&b);
		assert_int_equal(b.cnt, 1);
		assert_int_equal(b.done[0].status, 0);
		assert_int_equal(in, i);
	}
	assert_int_equal(kedge_channel_recv(b.ch, &in, sizeof(in), ANY, 0, NULL),
			 -ECONNRESET);
	close_pair();
}

static void statistics_count(void **state)
{
	struct kedge_channel_stats sa = { .size = sizeof(sa) }, sb = { .size = sizeof(sb) };
	char *out = calloc(1, MIB), *in = malloc(MIB), small[8];

	open_pair(NULL, NULL);
	post(&b, in, MIB, TAG(1), 0);
	post(&b, small, 8, TAG(2), 0);
	assert_int_equal(put(&a, out, MIB, 1), 0);
	turns(1 + (size_t)!put(&a, "one", 4, 2), 2);
	assert_int_equal(kedge_channel_stats(a.ch, &sa), 0);
	assert_int_equal(kedge_channel_stats(b.ch, &sb), 0);
	assert_int_equal(sa.sent, 2);
	assert_int_equal(sb.received, 2);
	assert_int_equal(sa.bytes_sent, MIB + 4);
	assert_int_equal(sb.bytes_received, MIB + 4);
	assert_int_equal(sa.received + sb.sent + sa.failed + sb.failed, 0);
	assert_int_equal(sb.ways[KEDGE_WAY_EAGER], 1);
	close_pair();
	free(out);
	free(in);
}

/* ---- the table ---- */

#define WITH(room, f) cmocka_unit_test_setup_teardown(f, room##_setup, room##_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_messages_arrive),
		cmocka_unit_test(all_sizes_wrap_the_ring),
		cmocka_unit_test(large_messages_arrive),
		cmocka_unit_test(many_at_once),
		WITH(pieces, pieces_go_through_in_order),
		cmocka_unit_test(the_order_is_kept),
		cmocka_unit_test(unexpected_messages_wait),
		cmocka_unit_test(too_long_is_an_error),
		cmocka_unit_test(unexpected_messages_are_bounded),
		cmocka_unit_test(many_in_both_directions_at_once),
		cmocka_unit_test(a_probe_finds_what_a_receive_would_get),
		cmocka_unit_test(cancel_ends_a_posted_receive),
		WITH(pieces, pieces_are_given_up),
		cmocka_unit_test(time_runs_out),
		cmocka_unit_test(the_descriptor_tells),
		cmocka_unit_test(a_message_ends_a_wait),
		WITH(access, a_bad_buffer_fails_one_eager_message),
		cmocka_unit_test(statistics_count),
		cmocka_unit_test(an_announced_message_ends_with_the_peer),
		cmocka_unit_test(a_closed_peer_is_seen),
		cmocka_unit_test(that_the_peer_is_gone_is_told),
		cmocka_unit_test(a_killed_peer_is_noticed),
		cmocka_unit_test(a_child_has_no_part),
		cmocka_unit_test(each_refusal_has_its_own_reason),
	};
	int rc = pair_begin();

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
