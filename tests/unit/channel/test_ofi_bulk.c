// SPDX-License-Identifier: BSD-2-Clause
/*
 * Bulk data over libfabric: every byte lands where the receiver said and no
 * other changes, however it is cut up; and what is given up is let go.
 */
#include "ofi_pair.h"

#define MIB ((size_t)1 << 20)
#define MAX (64 * MIB)
#define EDGE 64 /* bytes around what is received that must not change */

static struct pair p;
static char *src, *dst;

struct message {
	struct bulk out, in;
	struct bulk_piece from;
	struct bulk_piece *to;
	char cts[DESC_MAX];
	size_t cts_len;
};

static int setup(void **state)
{
	return pair_open(&p);
}

static int teardown(void **state)
{
	pair_close(&p);
	return 0;
}

/* @cnt pieces with gaps between them, in @dst. */
static void cut(struct message *m, size_t len, uint32_t cnt)
{
	size_t at = EDGE, part;
	uint32_t i;

	m->to = calloc(cnt, sizeof(*m->to));
	assert_non_null(m->to);
	memset(dst, 0xee, len + (size_t)(cnt + 1) * EDGE);
	for (i = 0; i < cnt; i++) {
		part = i + 1 < cnt ? len / cnt : len - len / cnt * (cnt - 1);
		m->to[i] = (struct bulk_piece){ (uintptr_t)dst + at, part };
		at += part + EDGE;
	}
	m->in.piece = m->to;
	m->in.piece_cnt = cnt;
}

static void check_landed(const struct message *m, uint64_t seed)
{
	size_t done = 0, k;
	uint32_t i;

	for (i = 0; i < m->in.piece_cnt; i++) {
		const char *at = (const char *)(uintptr_t)m->to[i].addr;

		assert_memory_equal(at, src + done, m->to[i].len);
		for (k = 1; k <= EDGE; k++) {
			assert_int_equal((uint8_t)at[-(ptrdiff_t)k], 0xee);
			assert_int_equal((uint8_t)at[m->to[i].len + k - 1],
					 0xee);
		}
		done += m->to[i].len;
	}
	assert_int_equal(done, m->in.len);
	(void)seed;
}

static int offer(struct message *m, size_t len)
{
	char desc[DESC_MAX];
	size_t desc_len = 1;
	int rc;

	m->from = (struct bulk_piece){ (uintptr_t)src, len };
	m->out = (struct bulk){ .piece = &m->from, .piece_cnt = 1, .len = len };
	rc = T.offer(p.a, &m->out, desc, &desc_len);
	assert_int_equal(desc_len, rc ? 1 : 0);
	return rc;
}

static int begin(struct message *m, size_t len, uint32_t cnt, uint32_t flags)
{
	int rc;

	memset(m, 0, sizeof(*m));
	assert_int_equal(offer(m, len), 0);
	cut(m, len, cnt);
	m->in.len = len;
	m->in.flags = BULK_RECV | flags;
	rc = T.accept(p.b, &m->in, NULL, 0, m->cts, &m->cts_len);
	if (rc)
		return rc;
	assert_true(m->cts_len <= DESC_MAX);
	rc = T.start(p.a, &m->out, m->cts, m->cts_len);
	if (rc)
		fail_msg("start: %s", kedge_strerror(rc));
	return 0;
}

static bool tell(struct ofi *from, struct ofi *to)
{
	void *packet = T.reserve(from, 8);
	size_t len;

	assert_non_null(packet);
	memset(packet, 1, 8);
	T.commit(from, packet, 8);
	PAIR_UNTIL(&p, T.next(to, &len));
	T.release(to, T.next(to, &len));
	return true;
}

/* To the end, as the channel does it: FIN after the sender's last step, where
 * the transport does not say so itself. */
static void finish(struct message *m)
{
	uint64_t end = clock_ns() + 30000000000ull;
	int out = 0, in = 0;

	while (out != 1) {
		out = T.step(p.a, &m->out);
		in = T.step(p.b, &m->in);
		kedge__rdma_progress(&p.a->r);
		kedge__rdma_progress(&p.b->r);
		assert_true(out >= 0 || out == -EAGAIN);
		assert_true(clock_ns() < end);
	}
	T.end(p.a, &m->out);
	if (m->out.flags & BULK_ACKED) {
		PAIR_UNTIL(&p, m->in.flags & BULK_FIN);
	} else {
		tell(p.a, p.b);
		assert_false(m->in.flags & BULK_FIN);
		m->in.flags |= BULK_FIN;
	}
	while (in != 1) {
		in = T.step(p.b, &m->in);
		assert_true(in >= 0 || in == -EAGAIN);
		assert_true(clock_ns() < end);
	}
	check_landed(m, 0);
	T.end(p.b, &m->in);
	free(m->to);
}

static void transfer(size_t len, uint32_t cnt, uint32_t flags)
{
	struct message m;
	int rc;

	fill_bytes(src, len, len + cnt);
	rc = begin(&m, len, cnt, flags);
	assert_int_equal(rc, 0);
	finish(&m);
	assert_int_equal(T.check(p.a), 0);
	assert_int_equal(T.check(p.b), 0);
	assert_true(list_empty(&p.a->r.sending));
}

static const size_t lens[] = {
	1, 7, 4096, 65535, 65536, 65537, MIB - 1, MIB, MIB + 1, 4 * MIB + 3,
	16 * MIB,
};

static void every_length_lands(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		transfer(lens[i], 1, 0);
		transfer(lens[i], 1, BULK_STREAM);
	}
	assert_true(list_empty(&p.b->r.landing));
}

static void messages_in_pieces_land_at_every_length(void **state)
{
	static const uint32_t cnts[] = { 2, 3, 9, 10, 100, 1000 };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(cnts); i++)
		for (k = 3; k < ARRAY_SIZE(lens); k++) {
			transfer(lens[k], cnts[i], 0);
			transfer(lens[k], cnts[i], BULK_STREAM);
		}
	assert_true(list_empty(&p.b->r.landing));
}

static void the_largest_lands(void **state)
{
	transfer(MAX, 1, 0);
	transfer(MAX, 7, 0);
	transfer(MAX, 1, BULK_STREAM);
}

/* Several at once, in both ways. */
static void many_at_once_land(void **state)
{
	enum { N = 6, LEN = 3 * 1024 * 1024 + 5 };
	static struct message m[N];
	char *was = dst;
	int i, done;

	fill_bytes(src, LEN, 9);
	for (i = 0; i < N; i++) {
		dst = was + (size_t)i * (LEN + 1024);
		assert_int_equal(begin(&m[i], LEN, 1 + (uint32_t)i % 2,
				       i & 1 ? BULK_STREAM : 0), 0);
	}
	dst = was;
	for (done = 0; done < N; ) {
		for (i = done = 0; i < N; i++) {
			done += T.step(p.a, &m[i].out) == 1;
			T.step(p.b, &m[i].in);
		}
		pair_turn(&p);
	}
	for (i = 0; i < N; i++)
		finish(&m[i]);
}

static void memory_of_the_heap_lands(void **state)
{
	struct message m;
	char *was = dst, *mem;

	mem = T.heap_alloc(p.b, MIB + 4096);
	assert_non_null(mem);
	assert_true(T.ready(p.b, mem, 4096, NULL, 0) & READY_DIRECT);
	assert_int_equal(p.b->r.heap_used, MIB + 4096);
	dst = mem;
	fill_bytes(src, MIB, 1);
	assert_int_equal(begin(&m, MIB, 1, BULK_HEAP), 0);
	finish(&m);
	dst = was;
	T.heap_free(p.b, mem);
	assert_int_equal(p.b->r.heap_used, 0);
	assert_null(T.heap_alloc(p.b, p.b->r.heap_max + 1));
	assert_null(T.heap_alloc(p.b, 0));
}

/* ---- giving up ---- */

static void drop(struct message *m)
{
	T.end(p.a, &m->out);
	T.end(p.b, &m->in);
	free(m->to);
}

/* The receiver stops it: when stop() says so nothing lands any more. */
static void stopped_in_the_middle(uint32_t cnt, unsigned int turns)
{
	const size_t len = 16 * MIB;
	struct message m;
	unsigned int i;
	char *copy;

	fill_bytes(src, len, turns);
	assert_int_equal(begin(&m, len, cnt, 0), 0);
	for (i = 0; i < turns; i++) {
		T.step(p.a, &m.out);
		pair_turn(&p);
	}
	assert_int_equal(T.stop(p.b, &m.in), -EBUSY);
	while (T.stop(p.b, &m.in)) {
		T.step(p.a, &m.out);
		pair_turn(&p);
	}
	assert_int_equal(T.check(p.b), 0);
	/* Its key is void, whatever the sender would do. */
	copy = malloc(len);
	assert_non_null(copy);
	memcpy(copy, dst, len);
	for (i = 0; i < 1000; i++) {
		assert_int_equal(T.step(p.a, &m.out), -EAGAIN);
		pair_turn(&p);
	}
	assert_memory_equal(copy, dst, len);
	free(copy);
	assert_int_equal(T.stop(p.a, &m.out), 0);
	drop(&m);
	transfer(MIB, 2, 0);
}

static void the_receiver_stops_it(void **state)
{
	stopped_in_the_middle(1, 0);
	stopped_in_the_middle(1, 1);
	stopped_in_the_middle(1, 20);
	stopped_in_the_middle(50, 0);
	stopped_in_the_middle(50, 1);
	stopped_in_the_middle(50, 20);
}

static void the_sender_stops_it(void **state)
{
	struct message m;
	struct flow *f;
	uint64_t before;
	int i;

	fill_bytes(src, 16 * MIB, 3);
	assert_int_equal(begin(&m, 16 * MIB, 1, 0), 0);
	PAIR_UNTIL(&p, T.step(p.a, &m.out) != -EAGAIN);
	/* Until the network takes no more, as the other end does not look. */
	f = list_entry(p.a->r.sending.next, struct flow, node);
	for (i = 0; i < 1000; i++) {
		before = f->landed;
		kedge__ofi_poll(&p.a->r);
		T.step(p.a, &m.out);
		if (f->landed != before)
			i = 0;
	}
	assert_true(f->landed < f->len && f->in_flight);
	assert_int_equal(T.stop(p.a, &m.out), -EBUSY);
	PAIR_UNTIL(&p, !T.stop(p.a, &m.out));
	T.end(p.a, &m.out);
	/* It is over there already, which is an answer. */
	for (i = 0; i < 10000 && T.stop(p.b, &m.in); i++)
		pair_turn(&p);
	assert_int_equal(T.stop(p.b, &m.in), 0);
	assert_int_equal(T.check(p.b), 0);
	drop(&m);
	transfer(MIB, 1, 0);
}

/* The word comes before the sender has looked at the CTS. */
static void a_stop_before_the_start_holds(void **state)
{
	struct message m = { 0 };
	int i;

	assert_int_equal(offer(&m, MIB), 0);
	cut(&m, MIB, 1);
	m.in.len = MIB;
	m.in.flags = BULK_RECV;
	assert_int_equal(T.accept(p.b, &m.in, NULL, 0, m.cts, &m.cts_len), 0);
	assert_int_equal(T.stop(p.b, &m.in), -EBUSY);
	PAIR_UNTIL(&p, !T.stop(p.b, &m.in));
	T.end(p.b, &m.in);
	assert_int_equal(T.start(p.a, &m.out, m.cts, m.cts_len), 0);
	for (i = 0; i < 100; i++)
		assert_int_equal(T.step(p.a, &m.out), -EAGAIN);
	T.end(p.a, &m.out);
	free(m.to);
	transfer(MIB, 1, 0);
}

/* Nobody waits for a sender that is busy: the pieces are not in its reach. */
static void a_stream_is_given_up_at_once(void **state)
{
	struct message m;
	int i;

	fill_bytes(src, 16 * MIB, 3);
	assert_int_equal(begin(&m, 16 * MIB, 1, BULK_STREAM), 0);
	for (i = 0; i < 10; i++) {
		T.step(p.a, &m.out);
		pair_turn(&p);
	}
	assert_int_equal(T.stop(p.b, &m.in), 0);
	T.end(p.b, &m.in);
	assert_false(list_empty(&p.b->r.landing));
	PAIR_UNTIL(&p, !T.stop(p.a, &m.out));
	T.end(p.a, &m.out);
	PAIR_UNTIL(&p, list_empty(&p.b->r.landing));
	free(m.to);
	transfer(16 * MIB, 1, BULK_STREAM);
}

static ssize_t write_raw(size_t len, const struct rdma_target *to,
			 uint64_t flags, uint64_t id)
{
	struct iovec iov = { src, len };
	struct fi_rma_iov there = { to->addr, len, to->key };
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1,
				  .desc = &p.a->r.slab_desc,
				  .rma_iov = &there, .rma_iov_count = 1,
				  .addr = p.a->peer,
				  .data = id,
				  .context = &p.a->r.bufs[p.a->r.buf_cnt - 1].op };
	ssize_t rc;

	if (!p.a->r.ordered)
		flags |= FI_DELIVERY_COMPLETE;
	PAIR_TRY(&p, rc = fi_writemsg(p.a->ep, &msg, flags));
	return rc;
}

/* A write that was not offered ends the connection and changes nothing. */
static void a_key_that_is_over_opens_nothing(void **state)
{
	struct rdma_desc *d;
	struct message m;
	struct rdma_write *w = &p.a->r.writes[0];

	fill_bytes(src, 4096, 1);
	assert_int_equal(begin(&m, 4096, 1, 0), 0);
	finish(&m);
	d = (struct rdma_desc *)m.cts;
	memset(dst, 0x55, 8192);
	w->flow = NULL;
	assert_int_equal(write_raw(4096, &d->target[0], 0, 0), 0);
	PAIR_UNTIL(&p, T.check(p.b));
	while (T.check(p.a) == 0)
		pair_turn(&p);
	assert_int_equal((uint8_t)dst[EDGE], 0x55);
	assert_int_equal((uint8_t)dst[EDGE + 4095], 0x55);
}

static void a_byte_beyond_is_refused(void **state)
{
	struct rdma_desc *d;
	struct message m;

	fill_bytes(src, 8192, 1);
	assert_int_equal(begin(&m, 4096, 1, 0), 0);
	d = (struct rdma_desc *)m.cts;
	memset(dst, 0x55, 8192);
	assert_int_equal(write_raw(4097, &d->target[0], 0, 0), 0);
	PAIR_UNTIL(&p, T.check(p.b));
	assert_int_equal((uint8_t)dst[EDGE], 0x55);
	assert_int_equal((uint8_t)dst[EDGE + 4096], 0x55);
	assert_int_equal(T.stop(p.b, &m.in), 0);
	while (T.check(p.a) == 0)
		pair_turn(&p);
	drop(&m);
}

/* Tells of landed data that are of no message, or of one that does not end so. */
static void lies_of(uint32_t flags, uint64_t id)
{
	const struct rdma_desc *d;
	struct message m;

	fill_bytes(src, 4096, 1);
	assert_int_equal(begin(&m, 4096, 1, flags), 0);
	d = (const struct rdma_desc *)m.cts;
	assert_int_equal(write_raw(8, &d->target[0], FI_REMOTE_CQ_DATA,
				   id ? id : d->id), 0);
	PAIR_UNTIL(&p, T.check(p.b));
	assert_int_equal(T.check(p.b), -EPROTO);
	assert_false(m.in.flags & BULK_FIN);
	PAIR_UNTIL(&p, T.check(p.a));
	drop(&m);
	pair_close(&p);
	pair_open(&p);
}

static void what_nobody_waits_for_has_not_landed(void **state)
{
	if (!p.b->r.tells)
		skip();
	lies_of(0, 2);
	lies_of(0, UINT64_C(1) << 32 | 1);
	lies_of(0, UINT64_MAX);
	lies_of(BULK_STREAM, 0);
}

/* Stopped, and landed all the same: that is no reason to mistrust the peer. */
static void what_was_stopped_may_have_landed(void **state)
{
	struct message m;

	fill_bytes(src, 4096, 1);
	assert_int_equal(begin(&m, 4096, 1, 0), 0);
	assert_int_equal(T.stop(p.b, &m.in), -EBUSY);
	/* It does not look whether anything came, and writes. */
	assert_int_equal(T.step(p.a, &m.out), 0);
	PAIR_UNTIL(&p, !T.stop(p.b, &m.in));
	assert_true(!p.b->r.tells || m.in.flags & BULK_FIN);
	PAIR_UNTIL(&p, !p.b->r.stops_cnt);
	assert_int_equal(T.check(p.b), 0);
	PAIR_UNTIL(&p, !T.stop(p.a, &m.out));
	drop(&m);
	transfer(MIB, 1, 0);
}

static void memory_that_is_not_there_is_refused(void **state)
{
	struct message m = { 0 };
	char desc[DESC_MAX];
	size_t len;

	m.from = (struct bulk_piece){ 4096, 4096 };
	m.out = (struct bulk){ .piece = &m.from, .piece_cnt = 1, .len = 4096 };
	assert_int_equal(T.offer(p.a, &m.out, desc, &len), -EFAULT);
	m.out.flags = BULK_RECV;
	assert_int_equal(T.accept(p.b, &m.out, NULL, 0, desc, &len), -EFAULT);
	m.from.addr = UINT64_MAX - 100;
	assert_int_equal(T.accept(p.b, &m.out, NULL, 0, desc, &len), -EFAULT);
	m.from = (struct bulk_piece){ (uintptr_t)dst, 4095 };
	assert_int_equal(T.accept(p.b, &m.out, NULL, 0, desc, &len), -EINVAL);
	assert_int_equal(T.accept(p.b, &m.out, desc, 1, desc, &len), -EPROTO);
	assert_int_equal(T.start(p.a, &m.out, desc, 1), -EPROTO);
	assert_true(list_empty(&p.b->r.landing));
}

/* The peer is gone at some stage: everything can be ended at once. */
static void gone_at(unsigned int turns, uint32_t flags, bool sender)
{
	struct ofi **who = sender ? &p.a : &p.b;
	struct message m;
	unsigned int i;

	fill_bytes(src, 16 * MIB, turns);
	assert_int_equal(begin(&m, 16 * MIB, 20, flags), 0);
	for (i = 0; i < turns; i++) {
		T.step(p.a, &m.out);
		T.step(p.b, &m.in);
		pair_turn(&p);
	}
	kedge__rdma_free(&(*who)->r);
	*who = NULL;
	who = sender ? &p.b : &p.a;
	PAIR_UNTIL(&p, T.check(*who));
	assert_int_equal(T.check(*who), -ECONNRESET);
	assert_int_equal(T.stop(*who, sender ? &m.in : &m.out), 0);
	T.end(*who, sender ? &m.in : &m.out);
	free(m.to);
	pair_close(&p);
	pair_open(&p);
}

static void a_peer_goes_at_any_stage(void **state)
{
	static const unsigned int turns[] = { 0, 1, 2, 5, 20 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(turns); i++) {
		gone_at(turns[i], 0, true);
		gone_at(turns[i], 0, false);
		gone_at(turns[i], BULK_STREAM, true);
		gone_at(turns[i], BULK_STREAM, false);
	}
}

/* Left to the end without a stop: the connection goes, nothing else. */
static void an_end_without_a_stop_cuts_off(void **state)
{
	struct message m;

	fill_bytes(src, 4 * MIB, 1);
	assert_int_equal(begin(&m, 4 * MIB, 1, 0), 0);
	T.end(p.b, &m.in);
	assert_int_equal(T.check(p.b), -ECONNRESET);
	PAIR_UNTIL(&p, T.check(p.a));
	T.end(p.a, &m.out);
	free(m.to);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_length_lands),
		TEST(messages_in_pieces_land_at_every_length),
		TEST(the_largest_lands),
		TEST(many_at_once_land),
		TEST(memory_of_the_heap_lands),
		TEST(the_receiver_stops_it),
		TEST(the_sender_stops_it),
		TEST(a_stop_before_the_start_holds),
		TEST(a_stream_is_given_up_at_once),
		TEST(a_key_that_is_over_opens_nothing),
		TEST(a_byte_beyond_is_refused),
		TEST(what_nobody_waits_for_has_not_landed),
		TEST(what_was_stopped_may_have_landed),
		TEST(memory_that_is_not_there_is_refused),
		TEST(a_peer_goes_at_any_stage),
		TEST(an_end_without_a_stop_cuts_off),
	};
	size_t len = MAX + 2 * MIB;
	int rc;

	if (ofi_missing())
		return 77;
	src = mmap(NULL, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	dst = mmap(NULL, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (src == MAP_FAILED || dst == MAP_FAILED)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	munmap(src, len);
	munmap(dst, len);
	return rc ? 1 : 0;
}
