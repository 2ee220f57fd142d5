// SPDX-License-Identifier: BSD-2-Clause
/* Packets over libfabric: order, fullness, waiting, and the ends. */
#include "ofi_pair.h"

static struct pair p;

static int setup(void **state)
{
	return pair_open(&p);
}

static int teardown(void **state)
{
	pair_close(&p);
	return 0;
}

static bool send_one(struct ofi *o, size_t len, uint64_t seed)
{
	void *packet = T.reserve(o, len);

	if (!packet)
		return false;
	assert_int_equal((uintptr_t)packet % 8, 0);
	fill_bytes(packet, len, seed);
	T.commit(o, packet, len);
	return true;
}

static bool recv_one(struct ofi *o, size_t want, uint64_t seed)
{
	const void *packet, *again;
	size_t len = 0;

	packet = T.next(o, &len);
	if (!packet)
		return false;
	again = T.next(o, &len);
	assert_ptr_equal(packet, again);
	assert_int_equal(len, want);
	assert_true(same_bytes(packet, len, seed));
	T.release(o, packet);
	return true;
}

static size_t len_of(uint64_t n)
{
	static const size_t lens[] = { 1, 8, 24, 119, 120, 121, 128, 4096, 1000,
				       RDMA_PACKET_MAX - 1, RDMA_PACKET_MAX, 7 };

	return lens[n % ARRAY_SIZE(lens)];
}

static void packets_of_all_sizes_come_in_order(void **state)
{
	uint64_t to_b = 0, at_b = 0, to_a = 0, at_a = 0;
	uint64_t end = clock_ns() + 20000000000ull;

	while (at_b < 3000 || at_a < 1000) {
		if (to_b < 3000 && send_one(p.a, len_of(to_b), to_b))
			to_b++;
		if (to_a < 1000 && send_one(p.b, len_of(to_a + 5), to_a))
			to_a++;
		if (recv_one(p.b, len_of(at_b), at_b))
			at_b++;
		if (recv_one(p.a, len_of(at_a + 5), at_a))
			at_a++;
		assert_true(clock_ns() < end);
	}
}

/* A receiver that takes nothing: the sender runs full and loses nothing. */
static void a_full_queue_waits(void **state)
{
	uint64_t sent = 0, got = 0, i;

	for (i = 0; i < 100000; i++)
		if (send_one(p.a, len_of(sent), sent))
			sent++;
		else
			kedge__rdma_progress(&p.b->r);
	assert_true(sent >= RX_CNT);
	/* The buffers that the peer has posted, and those that we send from. */
	assert_true(sent <= (RX_CNT + TX_CNT) * (BATCH_LEN / 16));
	assert_int_equal(p.a->r.credit, 0);
	PAIR_UNTIL(&p, !recv_one(p.b, len_of(got), got) || ++got == sent);
	while (got < sent) {
		if (recv_one(p.b, len_of(got), got))
			got++;
		kedge__rdma_progress(&p.a->r);
	}
	assert_true(send_one(p.a, 1, 1));
}

/* Credit comes back though the receiver has nothing to say. */
static void one_way_needs_no_answer(void **state)
{
	uint64_t sent = 0, got = 0;
	uint64_t end = clock_ns() + 20000000000ull;

	while (got < 20 * RX_CNT) {
		if (send_one(p.a, 100, sent))
			sent++;
		if (recv_one(p.b, 100, got))
			got++;
		assert_true(clock_ns() < end);
	}
	assert_int_equal(p.a->r.credit_max, RX_CNT);
}

static void what_is_not_committed_is_forgotten(void **state)
{
	void *one = T.reserve(p.a, 100);
	unsigned int i;

	assert_null(T.reserve(p.a, RDMA_PACKET_MAX + 1));
	for (i = 0; i < 1000; i++)
		assert_ptr_equal(T.reserve(p.a, 10), one);
	assert_true(send_one(p.a, 10, 3));
	PAIR_UNTIL(&p, recv_one(p.b, 10, 3));
}

static int readable(struct ofi *o, int ms)
{
	struct pollfd pfd = { .fd = T.fd(o), .events = POLLIN };

	return poll(&pfd, 1, ms);
}

static unsigned int pause_us; /* between two polls of the peer that is left */

static void *drive_b(void *arg)
{
	const bool *stop = arg;

	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		usleep(pause_us);
		kedge__rdma_progress(&p.b->r);
	}
	return NULL;
}

/*
 * The other end hears of it later: nobody drives it meanwhile. Except where what
 * was sent is in nobody's hands before it is received.
 */
static void close_alone(void)
{
	bool stop = !p.a->rdm;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, drive_b, &stop), 0);
	T.close(p.a);
	p.a = NULL;
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
}

/* All that was committed comes, then the end. */
static void close_loses_nothing(void **state)
{
	uint64_t n, got = 0;

	for (n = 0; n < 40; n++)
		assert_true(send_one(p.a, len_of(n), n));
	close_alone();
	PAIR_UNTIL(&p, !recv_one(p.b, len_of(got), got) || ++got == 40);
	while (got < 40)
		if (recv_one(p.b, len_of(got), got))
			got++;
		else
			assert_int_equal(T.check(p.b), 0);
	PAIR_UNTIL(&p, T.check(p.b));
	assert_int_equal(T.check(p.b), -ECONNRESET);
	assert_int_equal(T.arm(p.b), 0);
}

/* One that takes some of it now and then is waited for. */
static void a_slow_peer_loses_nothing(void **state)
{
	pause_us = 300000;
	close_loses_nothing(state);
	pause_us = 0;
}

/* The peer had sent us what nobody has read. */
static void close_with_unread_packets_loses_nothing(void **state)
{
	uint64_t n, got = 0;

	for (n = 0; n < 40; n++) {
		assert_true(send_one(p.b, len_of(n), n));
		assert_true(send_one(p.a, len_of(n), n));
	}
	close_alone();
	PAIR_UNTIL(&p, recv_one(p.b, len_of(got), got) ? ++got == 40
						      : T.check(p.b));
	assert_int_equal(got, 40);
}

static void the_end_is_noticed_by_waiting(void **state)
{
	PAIR_UNTIL(&p, !T.arm(p.b));
	kedge__rdma_free(&p.a->r); /* no goodbye, as if killed */
	p.a = NULL;
	assert_int_equal(readable(p.b, 60000), 1);
	while (!T.check(p.b))
		usleep(1000);
	assert_int_equal(T.check(p.b), -ECONNRESET);
	assert_null(T.reserve(p.b, 10));
}

static void limits_are_told(void **state)
{
	assert_int_equal(p.at_a.eager_max, 8192);
	assert_int_equal(p.at_b.unexpected_cnt, 1u << 20);
	assert_int_equal(p.at_b.unexpected_bytes, 4 << 20);
	assert_string_equal(T.explain(p.a), p.a->r.pins ? T.explain(p.b) : "");
}

/* ---- a peer that lies ---- */

static void raw(struct ofi *o, const void *data, size_t len)
{
	struct rdma_buf *b = &o->r.bufs[o->r.buf_cnt - 1];
	const struct iovec iov = { b->data, len };
	const struct fi_msg msg = { .msg_iov = &iov, .desc = &o->r.slab_desc,
				    .iov_count = 1, .addr = o->peer,
				    .context = &b->op };
	ssize_t rc;

	memcpy(b->data, data, len);
	list_remove(&b->node);
	o->r.free_cnt--;
	o->r.sent_cnt++;
	PAIR_TRY(&p, rc = fi_sendmsg(o->ep, &msg, FI_COMPLETION));
	assert_int_equal(rc, 0);
}

static void expect_broken(const void *data, size_t len)
{
	raw(p.a, data, len);
	PAIR_UNTIL(&p, T.check(p.b));
	assert_int_equal(T.check(p.b), -EPROTO);
	assert_null(p.b->ep);
	/* The hostile peer is cut off. */
	PAIR_UNTIL(&p, T.check(p.a));
}

/* A connection for each lie but the first, which the setup has made. */
static void next_lie(size_t i)
{
	if (!i)
		return;
	pair_close(&p);
	pair_open(&p);
}

static void a_head_that_lies_is_refused(void **state)
{
	static const struct rdma_head lies[] = {
		{ .kind = 77 },				   /* unknown */
		{ .kind = HEAD_CREDIT, .credit = 1 },	   /* too much credit */
		{ .kind = HEAD_STOPPED, .id = 1 },	   /* to no question */
		{ .kind = HEAD_FILLED, .cnt = 1, .id = 1 }, /* slots of no flow */
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lies); i++) {
		next_lie(i);
		expect_broken(&lies[i], sizeof(lies[i]));
	}
}

static void a_short_packet_is_refused(void **state)
{
	expect_broken("abc", 3);
}

static void a_long_packet_is_refused(void **state)
{
	static char data[BUF_LEN] = { HEAD_PACKET };

	expect_broken(data, sizeof(struct rdma_head) + RDMA_PACKET_MAX + 1);
}

/* Several in a buffer: the second one is looked at as the first one is. */
static void a_second_head_that_lies_is_refused(void **state)
{
	static const struct {
		struct rdma_head head;
		size_t len;
	} lies[] = {
		{ { .kind = HEAD_STOP, .id = 8 }, 4 },	  /* half a head */
		{ { .kind = HEAD_PACKET, .id = 9 }, 16 }, /* more than came */
		{ { .kind = HEAD_PACKET }, 8 },		  /* an empty packet */
		{ { .kind = HEAD_BYE }, 8 },		  /* an end behind a packet */
		{ { .kind = HEAD_PACKET, .id = 8, .credit = 1 }, 16 }, /* late credit */
	};
	struct {
		struct rdma_head first;
		uint64_t word;
		struct rdma_head second;
		char rest[64];
	} both = { .first = { .kind = HEAD_PACKET, .id = 8 } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lies); i++) {
		next_lie(i);
		both.second = lies[i].head;
		expect_broken(&both, 16 + lies[i].len);
	}
}

/* Packets of a poll share buffers, and are taken one by one. */
static void packets_of_a_poll_go_together(void **state)
{
	uint64_t n, got = 0;
	size_t len;

	assert_null(T.next(p.a, &len));
	for (n = 0; n < 200; n++)
		assert_true(send_one(p.a, 24, n));
	assert_int_equal(p.a->r.sent_cnt, 0);
	T.flush(p.a);
	PAIR_UNTIL(&p, p.a->r.credit != p.a->r.credit_max);
	assert_in_range(p.a->r.credit_max - p.a->r.credit, 1, 200 * 32 / 1024);
	PAIR_UNTIL(&p, !recv_one(p.b, 24, got) || ++got == 200);
	while (got < 200)
		got += recv_one(p.b, 24, got);
	/* Outside of a poll nothing waits. */
	n = p.a->r.credit;
	assert_true(send_one(p.a, 24, 1));
	assert_true(p.a->r.credit < n || p.a->rdm);
}

/* Questions for answers that are never fetched. */
static void stops_without_end_are_refused(void **state)
{
	const struct rdma_head h = { .kind = HEAD_STOP, .id = 5 };
	unsigned int i;

	/* Without credit, whatever it costs. */
	p.b->r.credit = 0;
	p.a->r.credit_max = 1u << 20;
	for (i = 0; i < STOPPED_CNT + 8 && !p.b->r.err; i++) {
		raw(p.a, &h, sizeof(h));
		PAIR_UNTIL(&p, !p.a->r.sent_cnt || p.b->r.err);
	}
	PAIR_UNTIL(&p, T.check(p.b));
	assert_int_equal(T.check(p.b), -EPROTO);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(packets_of_all_sizes_come_in_order),
		TEST(a_full_queue_waits),
		TEST(one_way_needs_no_answer),
		TEST(what_is_not_committed_is_forgotten),
		TEST(close_loses_nothing),
		TEST(a_slow_peer_loses_nothing),
		TEST(close_with_unread_packets_loses_nothing),
		TEST(the_end_is_noticed_by_waiting),
		TEST(limits_are_told),
		TEST(a_head_that_lies_is_refused),
		TEST(a_short_packet_is_refused),
		TEST(a_long_packet_is_refused),
		TEST(a_second_head_that_lies_is_refused),
		TEST(packets_of_a_poll_go_together),
		TEST(stops_without_end_are_refused),
	};

	if (ofi_missing())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
