// SPDX-License-Identifier: BSD-2-Clause
/*
 * Channels when things go wrong: no room for an answer, a peer that leaves, two
 * who give up at once, a fork. Both ends are of this process, so that a case
 * decides who moves when.
 */
#include "channel/internal.h"
#include "channel/shm/internal.h"
#include "channel_pair.h"
#include "clock.h"

#define BIG  (1u << 20)
#define ENDS 60 /* seconds, after which a case that hangs has failed */

struct pair {
	struct kedge_channel *a, *b;
};

static struct pair pair_with(struct kedge_channel_opts *opts)
{
	if (opts)
		opts->size = sizeof(*opts);
	open_pair(opts, opts);
	return (struct pair){ a.ch, b.ch };
}

static void pair_close(struct pair *p)
{
	kedge_channel_close(p->a);
	kedge_channel_close(p->b);
}

static ssize_t poll_one(struct kedge_channel *ch, struct kedge_completion *c)
{
	return kedge_channel_poll(ch, c, 1);
}

/* Both move until @ch has a completion. */
static struct kedge_completion next_of(struct pair *p, struct kedge_channel *ch)
{
	struct kedge_channel *other = ch == p->a ? p->b : p->a;
	struct kedge_completion c;
	ssize_t n;

	while (!(n = poll_one(ch, &c)))
		kedge_channel_poll(other, NULL, 0);
	assert_int_equal(n, 1);
	return c;
}

/* Nothing more fits into the ring from @ch. Returns the messages in it, of no
 * bytes and tag 1, and those that wait for room. */
static int fill_ring(struct kedge_channel *ch, int *waiting)
{
	int n, rc;

	for (n = 0; (rc = kedge_channel_send(ch, NULL, 0, 1, 0, NULL)); n++)
		assert_int_equal(rc, 1);
	*waiting = 1;
	return n;
}

/* @to takes what fill_ring() sent. */
static void drain(struct pair *p, struct kedge_channel *to, int n)
{
	struct kedge_completion c;
	int i;

	for (i = 0; i < n; i++) {
		assert_int_equal(kedge_channel_recv(to, NULL, 0, 1, UINT64_MAX,
						    7, NULL), 0);
		do
			c = next_of(p, to);
		while (c.user != 7);
		assert_int_equal(c.status, 0);
	}
}

/* More answers than one that find no room once made poll() go round for ever. */
static void several_cts_wait_for_room(void **state)
{
	struct pair p = pair_with(NULL);
	char *src = malloc(BIG), *dst[3];
	int i, n, waiting;

	memset(src, 5, BIG);
	for (i = 0; i < 3; i++) {
		dst[i] = calloc(1, BIG);
		assert_int_equal(kedge_channel_send(p.a, src, BIG, 2, 3, NULL),
				 0);
		assert_int_equal(kedge_channel_recv(p.b, dst[i], BIG, 2,
						    UINT64_MAX, 4, NULL), 0);
	}
	n = fill_ring(p.b, &waiting);
	for (i = 0; i < 10; i++)
		assert_int_equal(kedge_channel_poll(p.b, NULL, 0), 0);
	drain(&p, p.a, n + waiting);
	for (i = 0; i < 3; i++) {
		struct kedge_completion c = next_of(&p, p.b);

		while (c.user != 4)
			c = next_of(&p, p.b);
		assert_int_equal(c.status, 0);
		assert_memory_equal(dst[i], src, BIG);
	}
	pair_close(&p);
	for (i = 0; i < 3; i++)
		free(dst[i]);
	free(src);
}

static void until_sent(struct pair *p)
{
	struct kedge_completion c = next_of(p, p->a);

	assert_int_equal(c.user, 3);
	assert_int_equal(c.status, 0);
}

static void last_message(uint32_t way)
{
	struct kedge_channel_opts opts = { .way = way };
	struct pair p = pair_with(&opts);
	char *src = malloc(BIG), *dst = calloc(1, BIG);
	struct kedge_completion c;

	memset(src, 5, BIG);
	assert_int_equal(kedge_channel_recv(p.b, dst, BIG, 2, UINT64_MAX, 4,
					    NULL), 0);
	assert_int_equal(kedge_channel_send(p.a, src, BIG, 2, 3, NULL), 0);
	until_sent(&p);
	kedge_channel_close(p.a);
	assert_int_equal(poll_one(p.b, &c), 1);
	assert_int_equal(c.status, 0);
	assert_memory_equal(dst, src, BIG);
	assert_int_equal(poll_one(p.b, &c), -ECONNRESET);
	kedge_channel_close(p.b);
	free(src);
	free(dst);
}

/* A FIN and the BYE behind it, seen in one poll. */
static void what_was_sent_whole_arrives_though_the_sender_leaves(void **state)
{
	last_message(KEDGE_WAY_COPY);
	last_message(KEDGE_WAY_DIRECT);
}

/* Without the BYE, too: the socket alone shows that the peer is gone. */
static void what_was_sent_whole_arrives_though_the_sender_dies(void **state)
{
	struct pair p = pair_with(NULL);
	char *src = malloc(BIG), *dst = calloc(1, BIG);
	struct kedge_completion c;

	memset(src, 5, BIG);
	assert_int_equal(kedge_channel_recv(p.b, dst, BIG, 2, UINT64_MAX, 4,
					    NULL), 0);
	assert_int_equal(kedge_channel_send(p.a, src, BIG, 2, 3, NULL), 0);
	until_sent(&p);
	shutdown(p.a->ring->sock, SHUT_RDWR);
	assert_int_equal(kedge_channel_arm(p.b), 1);
	assert_int_equal(poll_one(p.b, &c), 1);
	assert_int_equal(c.status, 0);
	assert_memory_equal(dst, src, BIG);
	pair_close(&p);
	free(src);
	free(dst);
}

/* And more than one poll takes: the end is seen when some are still to be read. */
static void all_that_a_dead_sender_sent_arrives(void **state)
{
	struct pair p = pair_with(NULL);
	struct kedge_completion c;
	uint32_t i, cnt = 3000, in;
	ssize_t n;

	for (i = 0; i < cnt; i++)
		assert_int_equal(kedge_channel_recv(p.b, &in, 4, 1, UINT64_MAX,
						    i, NULL), 0);
	for (i = 0; i < cnt; i++)
		assert_int_equal(kedge_channel_send(p.a, &i, 4, 1, 3, NULL), 1);
	shutdown(p.a->ring->sock, SHUT_RDWR);
	assert_int_equal(kedge_channel_arm(p.b), 1);
	for (i = 0; (n = poll_one(p.b, &c)) >= 0; i += (uint32_t)n)
		if (n) {
			assert_int_equal(c.status, 0);
			assert_int_equal(c.user, i);
			assert_int_equal(in, i);
		}
	assert_int_equal(n, -ECONNRESET);
	assert_int_equal(i, cnt);
	pair_close(&p);
}

/* Credit that found no room was never told: the peer waited for ever. */
static void credit_is_told_when_there_is_room_again(void **state)
{
	struct kedge_channel_opts opts = { .unexpected_cnt = 65536 };
	struct pair p = pair_with(&opts);
	struct kedge_completion c;
	int i, n = 0;

	/* B has no credit left, */
	p.b->credit_cnt = p.b->sent_cnt - p.b->peer.unexpected_cnt + 8;
	p.a->received_cnt = 0;
	p.a->opts.unexpected_cnt = 8;
	p.b->peer.unexpected_cnt = 8;
	p.b->credit_cnt = 0;
	for (i = 0; i < 8; i++)
		assert_int_equal(kedge_channel_send(p.b, NULL, 0, 1, 0, NULL),
				 1);
	assert_int_equal(kedge_channel_send(p.b, NULL, 0, 1, 9, NULL), 0);
	/* and A takes what came while its own ring is full. */
	while (p.a->t->reserve(p.a->ctx, sizeof(struct packet_head))) {
		assert_int_equal(kedge_channel_send(p.a, NULL, 0, 1, 0, NULL),
				 1);
		n++;
	}
	for (i = 0; i < 8; i++) {
		assert_int_equal(kedge_channel_recv(p.a, NULL, 0, 1,
						    UINT64_MAX, 7, NULL), 0);
		while (!poll_one(p.a, &c))
			;
		assert_int_equal(c.status, 0);
	}
	while (p.b->unexpected_cnt < (uint32_t)n)
		kedge_channel_poll(p.b, NULL, 0);
	for (i = 0; i < 100 && !poll_one(p.b, &c); i++)
		kedge_channel_poll(p.a, NULL, 0);
	assert_true(i < 100);
	assert_int_equal(c.user, 9);
	pair_close(&p);
}

/* A peer that takes everything and answers nothing is not waited for with ever
 * more operations. */
static void a_peer_that_never_answers_is_given_up(void **state)
{
	struct kedge_channel_opts opts = { .unexpected_cnt = 16,
					   .peer_timeout_ms = UINT32_MAX };
	struct pair p = pair_with(&opts);
	char *buf = calloc(1, BIG);
	struct kedge_completion c;
	const void *packet;
	ssize_t rc = 0;
	uint64_t op;
	size_t len;
	int i;

	for (i = 0; i < 40000; i++) {
		rc = kedge_channel_send(p.a, buf, BIG, 1, 0, &op);
		if (rc)
			break;
		while ((packet = p.b->t->next(p.b->ctx, &len)))
			p.b->t->release(p.b->ctx, packet);
		/* As if it had matched that message. */
		p.a->credit_cnt = p.a->sent_cnt;
		kedge_channel_cancel(p.a, op);
		while (poll_one(p.a, &c) > 0)
			;
	}
	assert_int_equal(rc, -ETIMEDOUT);
	assert_in_range(i, 16384, 16384 + 32);
	assert_int_equal(p.a->live_ops, 0);
	pair_close(&p);
	free(buf);
}

#ifdef __SANITIZE_THREAD__ /* fifteen times slower */
#define MANY 3000
#else
#define MANY 12000
#endif

/* All is given up on both sides before either looks: no protocol is broken. */
static void many_are_given_up_on_both_sides(void **state)
{
	struct kedge_channel_opts opts = { .unexpected_cnt = 16,
					   .way = KEDGE_WAY_COPY };
	struct pair p = pair_with(&opts);
	uint64_t *sends = calloc(MANY, sizeof(*sends));
	uint64_t *recvs = calloc(MANY, sizeof(*recvs));
	char *buf = malloc(BIG);
	struct kedge_completion c;
	int i, rc, ends = 0, round;

	for (i = 0; i < MANY; i++)
		assert_int_equal(kedge_channel_recv(p.b, buf, BIG, 1,
						    UINT64_MAX, 4, &recvs[i]),
				 0);
	for (i = 0; i < MANY; i++) {
		assert_int_equal(kedge_channel_send(p.a, buf, BIG, 1, 3,
						    &sends[i]), 0);
		kedge_channel_poll(p.b, NULL, 0);
	}
	for (i = 0; i < 1000; i++) {
		kedge_channel_poll(p.a, NULL, 0);
		kedge_channel_poll(p.b, NULL, 0);
	}
	for (i = 0; i < MANY; i++) {
		rc = kedge_channel_cancel(p.b, recvs[i]);
		assert_true(!rc || rc == -ENOENT);
		rc = kedge_channel_cancel(p.a, sends[i]);
		assert_true(!rc || rc == -ENOENT);
	}
	/* One of the two is slow. */
	for (round = 0; ends < 2 * MANY; round++) {
		while ((rc = (int)poll_one(p.b, &c)) == 1)
			ends++;
		assert_int_equal(rc, 0);
		if (round % 512)
			continue;
		while ((rc = (int)poll_one(p.a, &c)) == 1)
			ends++;
		assert_int_equal(rc, 0);
	}
	for (i = 0; i < 1000000 && (p.a->live_ops || p.b->live_ops); i++) {
		assert_int_equal(kedge_channel_poll(p.a, NULL, 0), 0);
		assert_int_equal(kedge_channel_poll(p.b, NULL, 0), 0);
	}
	assert_int_equal(p.a->live_ops + p.b->live_ops, 0);
	pair_close(&p);
	free(buf);
	free(sends);
	free(recvs);
}

static void wait_until_late(struct kedge_channel *ch,
			    struct kedge_completion *c)
{
	MOVE_UNTIL(100, poll_one(ch, c));
}

/* A receive whose buffer is too short, and no room to say so. */
static void a_refusal_is_known_at_once(void **state)
{
	struct pair p = pair_with(NULL);
	char *buf = malloc(BIG);
	struct kedge_completion c;
	int waiting;

	assert_int_equal(kedge_channel_send(p.a, buf, BIG, 2, 3, NULL), 0);
	fill_ring(p.b, &waiting);
	assert_int_equal(kedge_channel_recv(p.b, buf, 10, 2, UINT64_MAX, 4,
					    NULL), 0);
	wait_until_late(p.b, &c);
	assert_int_equal(c.user, 4);
	assert_int_equal(c.status, -EMSGSIZE);
	assert_int_equal(c.len, BIG);
	pair_close(&p);
	free(buf);
}

/* All has landed, the peer stands still, and there is no room for the FIN. */
static void a_send_without_room_for_its_fin_times_out(void **state)
{
	struct kedge_channel_opts opts = { .timeout_ms = 300,
					   .way = KEDGE_WAY_COPY };
	struct pair p = pair_with(&opts);
	char *src = calloc(1, 600000), *dst = calloc(1, 600000);
	struct ring_head *head = p.b->ring->my_head;
	struct kedge_completion c;
	bool filled = false;
	uint32_t told = 0;
	int i, waiting, seen = 0;

	assert_int_equal(kedge_channel_recv(p.b, dst, 600000, 2, UINT64_MAX, 4,
					    NULL), 0);
	assert_int_equal(kedge_channel_send(p.a, src, 600000, 2, 3, NULL), 0);
	/* A polls once more than it has to: its CTS is in. */
	kedge_channel_poll(p.b, NULL, 0);
	kedge_channel_poll(p.a, NULL, 0);
	for (i = 0; i < 20; i++) {
		if (!filled) {
			fill_ring(p.a, &waiting);
			told = atomic_load(&head->head);
		}
		filled = true;
		kedge_channel_poll(p.b, NULL, 0);
		/* The ring's reader has told nothing of what it has read. */
		atomic_store(&head->head, told);
		kedge_channel_poll(p.a, NULL, 0);
		if (!list_empty(&p.a->active) &&
		    list_entry(p.a->active.next, struct op, node)->state ==
			    OP_FIN)
			break;
	}
	while (p.a->live_ops && !seen) {
		wait_until_late(p.a, &c);
		seen = c.user == 3;
	}
	assert_true(seen);
	pair_close(&p);
	free(src);
	free(dst);
}

/* A name's generation 0 means "no name": it is never an operation's. */
static void generations_begin_again(void **state)
{
	struct pair p = pair_with(NULL);
	struct kedge_completion c;
	char *buf = malloc(BIG);
	uint64_t op;

	/* An operation makes the table; the next one has its place. */
	assert_int_equal(kedge_channel_recv(p.a, buf, 1, 9, UINT64_MAX, 1, &op),
			 0);
	assert_int_equal(kedge_channel_cancel(p.a, op), 0);
	p.a->slab[0][(uint32_t)op].gen = UINT32_MAX;
	assert_int_equal(kedge_channel_send(p.a, buf, BIG, 1, 3, NULL), 0);
	assert_int_equal(kedge_channel_recv(p.b, buf, BIG, 1, UINT64_MAX, 4,
					    &op), 0);
	kedge_channel_poll(p.b, NULL, 0);
	assert_int_equal(kedge_channel_cancel(p.b, op), 0);
	c = next_of(&p, p.b);
	assert_int_equal(c.status, -ECANCELED);
	c = next_of(&p, p.a);
	c = c.user == 1 ? next_of(&p, p.a) : c;
	assert_int_equal(c.user, 3);
	assert_int_equal(c.status, -ECANCELED);
	pair_close(&p);
	free(buf);
}

struct child {
	struct pair *p;
	char *heap;
};

/* The parent's mapping there is not in the child, but one of the child's own may be. */
static int close_in_child(void *arg)
{
	struct child *c = arg;
	char *at = mmap(c->heap, 4096, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			0);

	CHILD_CHECK(at == c->heap);
	memset(at, 3, 4096);
	kedge_channel_close(c->p->a);
	kedge_channel_close(c->p->b);
	CHILD_CHECK(at[0] == 3 && at[4095] == 3);
	return 0;
}

static void a_child_that_closes_unmaps_nothing_of_its_own(void **state)
{
	struct kedge_channel_opts opts = { .timeout_ms = 60000 };
	struct pair p = pair_with(&opts);
	struct child c = { &p, kedge_channel_alloc(p.a, 4096) };
	struct kedge_completion done;

	assert_non_null(c.heap);
	assert_int_equal(in_child(close_in_child, &c), 0);
	/* The parent's goes on. */
	assert_int_equal(kedge_channel_recv(p.b, c.heap, 4, 1, UINT64_MAX, 4,
					    NULL), 0);
	assert_int_equal(kedge_channel_send(p.a, "abc", 4, 1, 3, NULL), 1);
	done = next_of(&p, p.b);
	assert_int_equal(done.status, 0);
	pair_close(&p);
}

/* A child has the socket, and the ring has no room for the BYE. */
static void the_end_shows_though_a_child_keeps_the_socket(void **state)
{
	struct pair p = pair_with(NULL);
	struct kedge_completion c;
	uint64_t end;
	int waiting, rc = 0;
	pid_t pid;

	fill_ring(p.a, &waiting);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		pause();
		_exit(0);
	}
	kedge_channel_close(p.a);
	end = now_ns() + HANG_S * 1000000000ull;
	while (rc >= 0 && now_ns() < end)
		rc = (int)poll_one(p.b, &c);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(rc, -ECONNRESET);
	kedge_channel_close(p.b);
}

/* Each case has its time. */
static int begin(void **state)
{
	if (!kedge__clock)
		test_clock_begin();
	alarm(ENDS);
	return 0;
}

#define CASE(fn) cmocka_unit_test_setup(fn, begin)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(several_cts_wait_for_room),
		CASE(what_was_sent_whole_arrives_though_the_sender_leaves),
		CASE(what_was_sent_whole_arrives_though_the_sender_dies),
		CASE(all_that_a_dead_sender_sent_arrives),
		CASE(credit_is_told_when_there_is_room_again),
		CASE(many_are_given_up_on_both_sides),
		CASE(a_peer_that_never_answers_is_given_up),
		CASE(a_refusal_is_known_at_once),
		CASE(a_send_without_room_for_its_fin_times_out),
		CASE(generations_begin_again),
		CASE(a_child_that_closes_unmaps_nothing_of_its_own),
		CASE(the_end_shows_though_a_child_keeps_the_socket),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
