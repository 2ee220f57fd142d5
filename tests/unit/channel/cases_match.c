// SPDX-License-Identifier: BSD-2-Clause
/*
 * MPI's rules for messages and receives: the order of both is kept, and a
 * message that waits for its receive holds up none that is matched.
 */
#include "cases.h"

#define A 1u
#define B 2u

static struct kedge_channel_opts with_envelopes(uint32_t cnt)
{
	return (struct kedge_channel_opts){
		.size = sizeof(struct kedge_channel_opts),
		.unexpected_cnt = cnt,
	};
}

/* Both move, until @b has something; what @a completed. */
static uint32_t until_b_has(void)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	uint32_t n, cnt = 0;

	a.cnt = 0;
	for (n = 1; !b.cnt; n++) {
		turn(&b);
		cnt += (uint32_t)turn(&a);
		a.cnt = 0;
		if (n % 4096 == 0 && now_ns() > end)
			fail_msg("the message does not come");
	}
	return cnt;
}

/* So many messages of @len bytes that nobody receives, then one that somebody
 * does; then all of them. */
static void one_gets_past(uint32_t cnt, size_t len)
{
	char *out = malloc(len), *in = malloc(len), got[8] = "";
	uint32_t i, waiting;

	open_pair(NULL, NULL);
	fill(out, len, 3);
	for (i = waiting = 0; i < cnt; i++) {
		waiting += !put(&a, out, len, A);
		if (i % 64 == 63)
			turn(&b);
	}
	post(&b, got, sizeof(got), TAG(B), 0);
	waiting += !put(&a, "past", 5, B);
	waiting -= until_b_has();
	assert_string_equal(got, "past");
	for (i = 0; i < cnt; i++) {
		memset(in, 0, len);
		b.cnt = 0;
		post(&b, in, len, TAG(A), 0);
		waiting -= until_b_has();
		assert_int_equal(b.done[0].status, 0);
		assert_int_equal(b.done[0].len, len);
		/* As is_filled(), which takes ten times as long. */
		assert_memory_equal(in, out, len);
	}
	while (waiting) {
		turn(&b);
		waiting -= (uint32_t)turn(&a);
		a.cnt = 0;
	}
	close_pair();
	free(out);
	free(in);
}

static void a_matched_message_passes_those_that_wait(void **state)
{
	one_gets_past(600, 8192);
	one_gets_past(5000, 1);
	one_gets_past(5000, 65536);
	one_gets_past(1000, 524289);
}

/* As many as the default allows, short of none. */
static void a_million_may_wait(void **state)
{
	const uint32_t cnt = by_circle(100000, 1000000);
	uint64_t out = 5, in, i;
	char got[8] = "";

	open_pair(NULL, NULL);
	for (i = 0; i < cnt; i++) {
		put(&a, &out, 8, A);
		if (i % 32 == 0)
			turn(&b);
	}
	post(&b, got, sizeof(got), TAG(B), 0);
	put(&a, "past", 5, B);
	until_b_has();
	assert_string_equal(got, "past");
	for (i = 0; i < cnt; i++) {
		b.cnt = 0;
		post(&b, &in, 8, TAG(A), i);
		until_b_has();
		assert_int_equal(b.done[0].user, i);
		assert_int_equal(b.done[0].status, 0);
	}
	close_pair();
}

/* Beyond the limit a message waits at the sender, or is refused. */
static void the_limit_of_those_that_wait_is_kept(void **state)
{
	struct kedge_channel_opts o = with_envelopes(16);
	uint64_t in[20];
	int i;

	open_pair(&o, &o);
	for (i = 0; i < 20; i++)
		assert_int_equal(put(&a, &i, 4, A), i < 16);
	close_pair();

	o.flags = KEDGE_CHANNEL_NO_WAIT;
	open_pair(&o, &o);
	for (i = 0; i < 16; i++)
		assert_int_equal(put(&a, &i, 4, A), 1);
	assert_int_equal(kedge_channel_send(a.ch, &i, 4, B, 0, NULL), -ENOBUFS);
	assert_non_null(strstr(kedge_strerror(-ENOBUFS), "16 messages"));
	assert_non_null(strstr(kedge_strerror(-ENOBUFS), "send again"));
	post(&b, in, 4, TAG(A), 0);
	turns(0, 1);
	for (i = 0; i < 9; i++)
		post(&b, in, 4, TAG(A), 0);
	turns(0, 10);
	/* Its credit has come back with that. */
	turn(&a);
	assert_int_equal(kedge_channel_send(a.ch, &i, 4, B, 0, NULL), 1);
	close_pair();
}

static void limits_out_of_range_are_refused(void **state)
{
	struct kedge_channel_opts o = with_envelopes((1u << 24) + 1);
	struct kedge_channel *ch;

	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	o.unexpected_cnt = 0;
	o.envelope_bytes = 65535;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	o.envelope_bytes = ((uint64_t)2 << 30) + 128;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch), -EINVAL);
	o.envelope_bytes = 65536;
	assert_int_equal(kedge_channel_open_shm("@x", &o, 0, &ch),
			 -ECONNREFUSED);
}

/* So many that the tables of those that wait grow, several times. */
static void equal_tags_come_in_order(void **state)
{
	enum { CNT = 5000 };
	static uint32_t out[CNT]; /* some wait at the sender */
	uint32_t in, i;

	open_pair(NULL, NULL);
	for (i = 0; i < CNT; i++) {
		out[i] = i;
		put(&a, &out[i], 4, i % 3);
		turn(&b);
	}
	for (i = 0; i < CNT; i++) {
		b.cnt = 0;
		post(&b, &in, 4, TAG(i % 3), 0);
		until_b_has();
		assert_int_equal(in, i);
	}
	close_pair();
}

/* ---- messages that were announced without their data ---- */

static const uint32_t short_len = 4096;

/* Their data find no room at @b: sent after this they are only announced. */
static struct kedge_channel_opts no_room(void)
{
	return (struct kedge_channel_opts){
		.size = sizeof(struct kedge_channel_opts),
		.eager_max = 4096,
		.unexpected_bytes = 8192,
	};
}

static void fill_room(const char *out)
{
	assert_int_equal(put(&a, out, short_len, A), 1);
	assert_int_equal(put(&a, out, short_len, A), 1);
}

static void cancel_announced_at(bool by_sender, int after)
{
	struct kedge_channel_opts o = no_room();
	char out[4096], in[4096];
	uint64_t sent, got;

	fill(out, sizeof(out), 8);
	open_pair(&o, &o);
	fill_room(out);
	assert_int_equal(kedge_channel_send(a.ch, out, short_len, B, 0, &sent),
			 0);
	if (after & 1)
		turn(&b);
	assert_int_equal(kedge_channel_recv(b.ch, in, sizeof(in), TAG(B), 0,
					    &got), 0);
	if (after & 2)
		turn(&b);
	if (after & 4)
		turn(&a);
	if (by_sender)
		kedge_channel_cancel(a.ch, sent);
	else
		kedge_channel_cancel(b.ch, got);
	many_turns();
	/* Its sender is not told that it is done unless it came. */
	if (a.cnt && !a.done[0].status) {
		assert_int_equal(b.cnt, 1);
		assert_int_equal(b.done[0].status, 0);
		assert_true(is_filled(in, sizeof(in), 8));
	}
	if (a.cnt && a.done[0].status)
		assert_true(!b.cnt || b.done[0].status);
	/* One that was not matched is still there for the other side. */
	if (!a.cnt)
		post(&b, in, sizeof(in), TAG(B), 0);
	if (!b.cnt)
		put(&a, out, short_len, B);
	many_turns();
	assert_in_range(a.cnt, 1, 2);
	assert_in_range(b.cnt, 1, 2);
	if (!b.done[b.cnt - 1].status)
		assert_true(is_filled(in, sizeof(in), 8));
	/* The channel goes on, and nothing of it is left. */
	a.cnt = b.cnt = 0;
	post(&b, in, sizeof(in), TAG(A), 0);
	post(&b, in, sizeof(in), TAG(A), 0);
	turns(0, 2);
	assert_int_equal(put(&a, out, short_len, A), 1);
	close_pair();
}

static void an_announced_message_is_cancelled_at_every_state(void **state)
{
	int after;

	for (after = 0; after < 8; after++) {
		cancel_announced_at(true, after);
		cancel_announced_at(false, after);
	}
}

static void an_announced_message_may_be_too_long(void **state)
{
	struct kedge_channel_opts o = no_room();
	char out[4096], in[8] = "1234567";

	fill(out, sizeof(out), 8);
	open_pair(&o, &o);
	fill_room(out);
	assert_int_equal(put(&a, out, short_len, B), 0);
	post(&b, in, 4, TAG(B), 0);
	turns(1, 1);
	assert_int_equal(b.done[0].status, -EMSGSIZE);
	assert_int_equal(b.done[0].len, short_len);
	assert_string_equal(in, "1234567");
	assert_int_equal(a.done[0].status, 0);
	close_pair();
}

void an_announced_message_ends_with_the_peer(void **state)
{
	struct kedge_channel_opts o = no_room();
	char out[4096], in[4096];

	fill(out, sizeof(out), 8);
	open_pair(&o, &o);
	fill_room(out);
	assert_int_equal(put(&a, out, short_len, B), 0);
	turn(&b);
	post(&b, in, sizeof(in), TAG(B), 0);
	close_unheard(&a);
	WAIT_FOR(turn(&b));
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, -ECONNRESET);
	kedge_channel_close(b.ch);
}

/* ---- a peer that does not answer ---- */

static void operations_that_a_peer_never_answers_end_the_channel(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .timeout_ms = 10,
					.peer_timeout_ms = 50 };
	char *out, *in;
	ssize_t rc = 0;

	need_shm("where the network has the data no answer is waited for");
	out = malloc(MIB);
	in = malloc(MIB);
	fill(out, MIB, 1);
	open_pair(NULL, &o);
	assert_int_equal(put(&a, out, MIB, 1), 0);
	post(&b, in, MIB, TAG(1), 0);
	WAIT_FOR(turn(&b));
	assert_int_equal(b.cnt, 1);
	assert_int_equal(b.done[0].status, -ETIMEDOUT);
	WAIT_FOR((rc = turn(&b)));
	assert_int_equal(rc, -ETIMEDOUT);
	assert_non_null(strstr(kedge_strerror(-ETIMEDOUT), "does not answer"));
	close_pair();
	free(out);
	free(in);
}

/* ---- looking at what waits ---- */

void a_probe_finds_what_a_receive_would_get(void **state)
{
	struct kedge_envelope e = { .size = sizeof(e) };
	char *big = calloc(1, MIB), in[8];

	open_pair(NULL, NULL);
	assert_int_equal(kedge_channel_probe(b.ch, ANY, &e), 0);
	put(&a, big, MIB, 7);
	put(&a, "two", 4, 8);
	WAIT_FOR((turn(&a), kedge_channel_probe(b.ch, TAG(8), &e)));
	assert_int_equal(kedge_channel_probe(b.ch, ANY, &e), 1);
	assert_int_equal(e.tag, 7);
	assert_int_equal(e.len, MIB);
	assert_int_equal(kedge_channel_probe(b.ch, TAG(8), &e), 1);
	assert_int_equal(e.len, 4);
	assert_int_equal(kedge_channel_probe(b.ch, TAG(9), &e), 0);
	post(&b, in, 8, TAG(8), 0);
	turns(0, 1);
	assert_int_equal(kedge_channel_probe(b.ch, TAG(8), &e), 0);
	e.size = 4;
	assert_int_equal(kedge_channel_probe(b.ch, ANY, &e), -EINVAL);
	e.size = sizeof(e);
	assert_int_equal(kedge_channel_probe(NULL, ANY, &e), -EINVAL);
	assert_int_equal(kedge_channel_probe(b.ch, ANY, NULL), -EINVAL);
	/* A message that had come whole is found when the peer is gone. */
	put(&a, "last", 5, 3);
	close_a();
	WAIT_FOR(turn(&b) < 0);
	assert_int_equal(kedge_channel_probe(b.ch, TAG(3), &e), 1);
	assert_int_equal(kedge_channel_probe(b.ch, TAG(9), &e), -ECONNRESET);
	kedge_channel_close(b.ch);
	free(big);
}

/* ---- an independent judge of many random messages ---- */

#define MSGS 400

struct message {
	uint64_t tag;
	size_t len;
	char *data;
	int receive; /* that got it, or -1 */
};

struct receive {
	uint64_t tag, mask;
	char *data;
	int message; /* that it got, or -1 */
	uint64_t op;
};

static struct message sent[MSGS];
static struct receive posted[MSGS];
static int sent_cnt, posted_cnt;

static bool matches(const struct receive *r, const struct message *m)
{
	return !((r->tag ^ m->tag) & r->mask);
}

static uint64_t rng_state;

static uint32_t below(uint32_t n)
{
	rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng_state >> 33) % n;
}

static const size_t lens[] = { 0, 1, 8, 100, 4096, 8192, 8193, 70000, 600000 };

static void random_send(void)
{
	struct message *m = &sent[sent_cnt];

	m->tag = below(6);
	m->len = lens[below(ARRAY_SIZE(lens))];
	m->data = malloc(m->len + 8);
	m->receive = -1;
	memset(m->data, sent_cnt, m->len + 8);
	/* The number of the message is at its end where it has the room. */
	if (m->len >= 8)
		memcpy(m->data + m->len - 4, &sent_cnt, 4);
	sent_cnt++;
	assert_in_range(kedge_channel_send(a.ch, m->data, m->len, m->tag, 0,
					   NULL), 0, 1);
}

static void random_post(void)
{
	static const uint64_t masks[] = { UINT64_MAX, UINT64_MAX, UINT64_MAX,
					  1, 3, 0 };
	struct receive *r = &posted[posted_cnt];

	r->mask = masks[below(ARRAY_SIZE(masks))];
	r->tag = below(6);
	r->data = malloc(600008);
	r->message = -1;
	assert_int_equal(kedge_channel_recv(b.ch, r->data, 600000, r->tag,
					    r->mask, (uint64_t)posted_cnt,
					    &r->op), 0);
	posted_cnt++;
}

/* Finds the message that a receive got: the earliest of that tag that none has got,
 * if messages of one tag are in order. Its length and content show it. */
static void note_received(const struct kedge_completion *c)
{
	struct receive *r = &posted[c->user];
	int i;

	assert_int_equal(c->status, 0);
	for (i = 0; i < sent_cnt; i++)
		if (sent[i].receive < 0 && sent[i].tag == c->tag &&
		    sent[i].len == c->len &&
		    !memcmp(r->data, sent[i].data, c->len))
			break;
	assert_in_range(i, 0, sent_cnt - 1);
	assert_true(matches(r, &sent[i]));
	sent[i].receive = (int)c->user;
	r->message = i;
}

static void take(void)
{
	size_t i;

	turn(&b);
	for (i = 0; i < b.cnt; i++)
		if (b.done[i].flags & KEDGE_COMPLETION_RECV)
			note_received(&b.done[i]);
	b.cnt = 0;
}

/* No message waits, or is on its way, for a receive that waits. */
static bool settled(void)
{
	int r, m;

	for (r = 0; r < posted_cnt; r++)
		for (m = 0; m < sent_cnt && posted[r].message < 0; m++)
			if (sent[m].receive < 0 && matches(&posted[r], &sent[m]))
				return false;
	return true;
}

/*
 * A receive that got a message has passed no earlier one that it matches, unless
 * a receive posted before it got that; and both rules of MPI are that.
 */
static void judge(void)
{
	int r, m;

	for (r = 0; r < posted_cnt; r++)
		for (m = 0; m < sent_cnt; m++) {
			if (!matches(&posted[r], &sent[m]))
				continue;
			if (posted[r].message < 0) /* none was left for it */
				assert_true(sent[m].receive >= 0 &&
					    sent[m].receive < posted_cnt);
			else if (m < posted[r].message)
				assert_in_range(sent[m].receive, 0, r - 1);
		}
}

static void random_round(uint64_t seed)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	int i;

	rng_state = seed * 2 + 1;
	sent_cnt = posted_cnt = 0;
	o.unexpected_bytes = (uint64_t)16384 << below(6);
	open_pair(&o, &o);
	while (sent_cnt < MSGS || posted_cnt < MSGS) {
		switch (below(6)) {
		case 0:
		case 1:
			if (sent_cnt < MSGS)
				random_send();
			break;
		case 2:
		case 3:
			if (posted_cnt < MSGS)
				random_post();
			break;
		case 4:
			turn(&a);
			a.cnt = 0;
			break;
		case 5:
			take();
		}
	}
	for (i = 0; i < 1000000 && (i % 32 || !settled()); i++) {
		turn(&a);
		a.cnt = 0;
		take();
	}
	judge();
	close_pair();
	for (i = 0; i < MSGS; i++) {
		free(sent[i].data);
		free(posted[i].data);
	}
}

static void random_messages_are_matched_as_mpi_would(void **state)
{
	uint64_t seed;

	for (seed = 1; seed <= by_circle(6, 60); seed++)
		random_round(seed);
}

int family_match(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_matched_message_passes_those_that_wait),
		cmocka_unit_test(a_million_may_wait),
		cmocka_unit_test(the_limit_of_those_that_wait_is_kept),
		cmocka_unit_test(limits_out_of_range_are_refused),
		cmocka_unit_test(equal_tags_come_in_order),
		cmocka_unit_test(an_announced_message_is_cancelled_at_every_state),
		cmocka_unit_test(an_announced_message_may_be_too_long),
		cmocka_unit_test(an_announced_message_ends_with_the_peer),
		cmocka_unit_test(
			operations_that_a_peer_never_answers_end_the_channel),
		cmocka_unit_test(a_probe_finds_what_a_receive_would_get),
		cmocka_unit_test(random_messages_are_matched_as_mpi_would),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
