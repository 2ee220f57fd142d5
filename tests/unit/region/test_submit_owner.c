// SPDX-License-Identifier: BSD-2-Clause
/*
 * Operations by a connection to an owner that is the test's: how many requests are under way before
 * it answers, and what becomes of them when it answers badly, late, or not at all.
 */
#include "clock.h"
#include "region/peer/later/later.h"
#include "region/peer/state.h"
#include "by_hand.h"
#include "submit.h"

#define MANY 64

extern int __real_poll(struct pollfd *fd, nfds_t n, int ms);
extern int __wrap_poll(struct pollfd *fd, nfds_t n, int ms);

/* A thread that waits for the owner, and for more operations, is woken by these alone. */
static bool patient;

int __wrap_poll(struct pollfd *fd, nfds_t n, int ms)
{
	return __real_poll(fd, n, patient && n == 2 ? -1 : ms);
}

static int listener;
static int peer; /* the connection, at the owner's end */
static pthread_t thread;

static void hear(void *to, size_t len)
{
	if (recv(peer, to, len, MSG_WAITALL) != (ssize_t)len)
		memset(to, 0, len);
}

static void *greet(void *unused)
{
	const struct stream_hello h = { .magic = STREAM_MAGIC, .version = STREAM_VERSION };
	struct stream_welcome welcome = { .magic = STREAM_MAGIC, .access = 7, .max_len = 1 << 20,
					  .len = 1 << 20 };
	const int one = 1;
	struct handle_words w;
	struct stream_ask q;

	peer = accept(listener, NULL, NULL);
	handle_read(&handle, &w);
	setsockopt(peer, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
	send(peer, &h, sizeof(h), MSG_NOSIGNAL);
	hear(&q, sizeof(q));
	stream_welcome_tag(w.key, &h, &q, &welcome, welcome.tag);
	send(peer, &welcome, sizeof(welcome), MSG_NOSIGNAL);
	return unused;
}

static int begin_owner(void **state)
{
	listener = make_owner();
	assert_int_equal(pthread_create(&thread, NULL, greet, NULL), 0);
	remote = open_it();
	pthread_join(thread, NULL);
	queue = make_queue(0);
	return 0;
}

static int end_owner(void **state)
{
	kedge_remote_close(remote);
	kedge_queue_close(queue);
	close(peer);
	close(listener);
	return 0;
}

#define RANGES 4

static struct stream_range asked_for[RANGES];

/* Of a request its number, once all of it is there. */
static struct stream_req hear_request(void)
{
	static char data[1 << 20];
	struct stream_req q;

	hear(&q, sizeof(q));
	stream_req_swap(&q);
	if ((q.op == STREAM_PUT || q.op == STREAM_PUT_PARTS || q.op == STREAM_GET_PARTS) &&
	    q.len <= sizeof(data))
		hear(data, q.len);
	memcpy(asked_for, data, sizeof(asked_for));
	return q;
}

/* Of the last request, if it has several ranges. */
static uint64_t table_sum(const struct stream_req *q)
{
	uint64_t i, sum = 0;

	for (i = 0; i < q->value && i < RANGES; i++)
		sum += asked_for[i].len;
	return sum;
}

static struct stream_reply reply_to(const struct stream_req *q)
{
	return (struct stream_reply){ .seq = q->seq, .has = 1 << 20, .value = q->seq,
				      .len = q->op == STREAM_GET ? q->len
					     : q->op == STREAM_GET_PARTS ? table_sum(q) : 0 };
}

static void say(struct stream_reply a)
{
	stream_reply_swap(&a);
	assert_int_equal(send(peer, &a, sizeof(a), MSG_NOSIGNAL), sizeof(a));
}

static void submit_adds(int cnt)
{
	struct kedge_remote_op o[MANY];
	int i;

	for (i = 0; i < cnt; i++)
		o[i] = add_of(8, 1, (uint64_t)i);
	submit(remote, o, cnt);
}

/* ---- how many ---- */

/* Answered one after the other they would never all be there. */
static void many_are_under_way_before_the_first_answer(void **state)
{
	struct kedge_remote_op o[MANY];
	struct stream_req q[MANY];
	char c[MANY];
	int i;

	for (i = 0; i < MANY; i++)
		o[i] = put_of((uint64_t)i, &c[i], 1, (uint64_t)i);
	submit(remote, o, MANY);
	for (i = 0; i < MANY; i++) {
		q[i] = hear_request();
		assert_int_equal(q[i].op, STREAM_PUT);
		assert_int_equal(q[i].offset, i);
	}
	assert_int_equal(read_now(), 0);
	for (i = 0; i < MANY; i++)
		say(reply_to(&q[i]));
	for (i = 0; i < MANY; i++)
		ends((uint64_t)i, 0);
	/* The next one that need not wait is done by its own thread. */
	WAIT_FOR(!atomic_load(&atomic_load(&remote->later)->cnt));
}

/* One that comes while others are under way is sent, too; and no more than these. */
static void later_ones_do_not_wait_for_answers(void **state)
{
	struct kedge_remote_op more = add_of(8, 1, MANY);
	struct stream_req q[MANY + 1];
	char c;
	int i;

	patient = true;
	for (i = 0; i < MANY; i++) {
		struct kedge_remote_op o = add_of(8, 1, (uint64_t)i);

		submit(remote, &o, 1);
		q[i] = hear_request();
	}
	submit(remote, &more, 1);
	usleep(20000);
	assert_int_equal(recv(peer, &c, 1, MSG_PEEK | MSG_DONTWAIT), -1);
	say(reply_to(&q[0]));
	ends(0, 0);
	q[MANY] = hear_request();
	for (i = 1; i <= MANY; i++) {
		say(reply_to(&q[i]));
		assert_int_equal(ends((uint64_t)i, 0).old, q[i].seq);
	}
	patient = false;
}

/* ---- how they are answered ---- */

static void answers_come_byte_by_byte(void **state)
{
	char got[3][5], c = 1;
	struct kedge_remote_part part[] = { { 9, got[1], 3 }, { 0, NULL, 0 }, { 4, got[2], 5 } };
	struct kedge_remote_op o[] = {
		get_of(0, got[0], 5, 0), put_of(0, &c, 1, 1), get_of(0, NULL, 0, 2),
		add_of(8, 1, 3),
	};
	struct stream_reply a;
	struct stream_req q;
	int requests;
	size_t i;

	o[2].parts = part;
	o[2].part_cnt = 3;
	submit(remote, o, 4);
	for (requests = 0; requests < 4; requests++) {
		q = hear_request();
		a = reply_to(&q);
		stream_reply_swap(&a);
		for (i = 0; i < sizeof(a); i++)
			send(peer, (char *)&a + i, 1, MSG_NOSIGNAL);
		for (i = 0; q.op == STREAM_GET && i < q.len; i++)
			send(peer, &"abcdefghijklmn"[q.offset + i], 1, MSG_NOSIGNAL);
		if (q.op != STREAM_GET_PARTS)
			continue;
		assert_int_equal(q.value, 2);
		assert_int_equal(q.end, 12);
		for (i = 0; i < 8; i++)
			send(peer, &"jklefghi"[i], 1, MSG_NOSIGNAL);
	}
	ends(0, 0);
	ends(1, 0);
	assert_int_equal(ends(2, 0).len, 8);
	ends(3, 0);
	assert_memory_equal(got[0], "abcde", 5);
	assert_memory_equal(got[1], "jkl", 3);
	assert_memory_equal(got[2], "efghi", 5);
}

static void what_is_refused_fails_alone(void **state)
{
	static const int says[] = { 0, -EFAULT, 0, -ETIMEDOUT, -EACCES, 0 };
	struct stream_reply a;
	struct stream_req q;
	uint64_t i;

	submit_adds(6);
	for (i = 0; i < 6; i++) {
		q = hear_request();
		a = reply_to(&q);
		a.rc = says[i];
		say(a);
	}
	for (i = 0; i < 6; i++)
		ends(i, says[i]);
}

/* Pieces of one access have its number, and those of another have not. */
static void pieces_are_of_one_access(void **state)
{
	static char data[600 << 10];
	struct kedge_remote_op o[2] = { put_of(0, data, sizeof(data), 0), put_of(0, data, 1, 1) };
	struct stream_req q[4];
	struct stream_reply a;
	int i;

	submit(remote, o, 2);
	for (i = 0; i < 4; i++)
		q[i] = hear_request();
	for (i = 0; i < 3; i++) {
		assert_int_equal(q[i].first, q[0].seq);
		assert_int_equal(q[i].end, sizeof(data));
	}
	assert_int_equal(q[3].first, q[3].seq);
	for (i = 0; i < 4; i++) {
		a = reply_to(&q[i]);
		a.rc = i == 1 || i == 2 ? -ENOMEM : 0;
		say(a);
	}
	assert_int_equal(ends(0, -ENOMEM).len, 0);
	ends(1, 0);
}

static void each_is_told_that_the_owner_has_ended(void **state)
{
	struct stream_req q;
	uint64_t i;

	submit_adds(MANY);
	for (i = 0; i < 10; i++) {
		q = hear_request();
		say(reply_to(&q));
	}
	shutdown(peer, SHUT_RDWR);
	for (i = 0; i < MANY; i++)
		ends(i, i < 10 ? 0 : -ECONNRESET);
	submit_adds(1);
	ends(0, -ECONNRESET);
	assert_int_equal(read_now(), 0);
}

/* The owner has closed the region: its last word is behind the answers. */
static void the_last_word_is_for_all(void **state)
{
	struct stream_req q;
	uint64_t i;

	submit_adds(6);
	for (i = 0; i < 2; i++) {
		q = hear_request();
		say(reply_to(&q));
	}
	say((struct stream_reply){ .rc = -EKEYREVOKED });
	for (i = 0; i < 6; i++)
		ends(i, i < 2 ? 0 : -EKEYREVOKED);
}

static void what_is_no_answer_ends_all(void **state)
{
	static const struct stream_reply bad[] = {
		{ .seq = 1 },		 /* of the next one */
		{ .seq = MANY },	 /* of one that was not asked */
		{ .seq = UINT64_MAX },	 /* of one before */
		{ .rc = 5 }, { .len = 8 }, { .rc = REGION_MOVED, .len = 8 },
	};
	struct stream_reply a;
	struct stream_req q;
	uint64_t n, i;

	for (n = 0; n < sizeof(bad) / sizeof(bad[0]); n++) {
		begin_owner(state);
		submit_adds(4);
		q = hear_request();
		say(reply_to(&q));
		ends(0, 0);
		q = hear_request();
		a = reply_to(&q);
		a.seq += bad[n].seq;
		a.rc = bad[n].rc;
		a.len = bad[n].len;
		say(a);
		send(peer, "12345678", 8, MSG_NOSIGNAL);
		for (i = 1; i < 4; i++)
			ends(i, -EPROTO);
		end_owner(state);
	}
}

/* Its data is the program's again with the completion, so it is not there before all is sent. */
static void an_answer_before_all_is_sent_is_none(void **state)
{
	static char data[1 << 20];
	const struct kedge_remote_op o = put_of(0, data, sizeof(data), 0);
	const int few = 4096;
	struct stream_req q;

	/* More than both sockets have room for. */
	assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few)), 0);
	assert_int_equal(setsockopt(atomic_load(&remote->link)->sock.fd, SOL_SOCKET, SO_SNDBUF,
				    &few, sizeof(few)), 0);
	submit(remote, &o, 1);
	hear(&q, sizeof(q));
	stream_req_swap(&q);
	assert_int_equal(q.len, PIECE_LEN);
	say(reply_to(&q));
	ends(0, -EPROTO);
}

/* A question that was not answered in time, before. */
static void late_answers_are_passed_over(void **state)
{
	struct kedge_remote_info info = { .size = sizeof(info) };
	struct stream_req asked, q;
	uint64_t i;

	test_clock_hurry(100);
	assert_int_equal(kedge_remote_query(remote, &info), 0);
	test_clock_rest();
	asked = hear_request();
	assert_int_equal(asked.op, STREAM_QUERY);
	submit_adds(3);
	say(reply_to(&asked));
	for (i = 0; i < 3; i++) {
		q = hear_request();
		say(reply_to(&q));
		ends(i, 0);
	}
}

static void an_owner_that_is_silent_is_given_up(void **state)
{
	struct kedge_remote_op o[2] = { add_of(8, 1, 0), add_of(8, 1, 1) };

	o[0].timeout_ms = 0;
	submit(remote, o, 2);
	test_clock_hurry(500);
	ends(0, -ECONNRESET);
	ends(1, -ECONNRESET);
	test_clock_rest();
}

/* ---- beside synchronous calls ---- */

static void *put_one(void *rc)
{
	*(int *)rc = kedge_remote_put(remote, 1, "s", 1, SOON_MS);
	return NULL;
}

/* One waits for those that are under way, and not for those that come. */
static void a_synchronous_call_has_its_turn(void **state)
{
	struct kedge_remote_op o = add_of(8, 1, 0);
	struct stream_req q;
	pthread_t t;
	int rc = 1, n = 0;

	submit_adds(MANY);
	q = hear_request();
	assert_int_equal(pthread_create(&t, NULL, put_one, &rc), 0);
	/* There is always one more, up to where the call has had its turn. */
	do {
		submit(remote, &o, 1);
		say(reply_to(&q));
		next();
		q = hear_request();
		n++;
	} while (q.op != STREAM_PUT && n < 100000);
	assert_int_equal(q.op, STREAM_PUT);
	say(reply_to(&q));
	pthread_join(t, NULL);
	assert_int_equal(rc, 0);
}

#define owner_case(f) cmocka_unit_test_setup_teardown(f, begin_owner, end_owner)

static const struct CMUnitTest tests[] = {
	owner_case(many_are_under_way_before_the_first_answer),
	owner_case(later_ones_do_not_wait_for_answers),
	owner_case(answers_come_byte_by_byte),
	owner_case(what_is_refused_fails_alone),
	owner_case(pieces_are_of_one_access),
	owner_case(each_is_told_that_the_owner_has_ended),
	owner_case(the_last_word_is_for_all),
	cmocka_unit_test(what_is_no_answer_ends_all),
	owner_case(an_answer_before_all_is_sent_is_none),
	owner_case(late_answers_are_passed_over),
	owner_case(an_owner_that_is_silent_is_given_up),
	owner_case(a_synchronous_call_has_its_turn),
};

const struct suite suite = { "submit_owner", SUITE_OF(tests), .by = "mapped",
			     .first = test_clock_begin };
