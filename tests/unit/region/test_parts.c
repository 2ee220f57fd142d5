// SPDX-License-Identifier: BSD-2-Clause
/*
 * Accesses to several ranges: all of them are done, or none is, whatever the owner does meanwhile;
 * and how many requests they are.
 */
#include "base/base.h"
#include "leased.h"
#include "listed.h"
#include "look.h"
#include "region/peer/state.h"
#include "region/peer/turn.h"
#include "submit.h"

#define ROUNDS 100
#define PARTS  12
#define LARGE  ((size_t)3 << 20)

/* Puts, or gets, by the call or by an operation. */
static int access_parts(uint32_t op, struct kedge_remote_part *part, size_t cnt)
{
	struct kedge_remote_op o = op_of(op, 0, NULL, 0, 0);
	struct kedge_remote_completion c = { .size = sizeof(c) };

	if (!region_with("operation"))
		return op == KEDGE_REMOTE_PUT
			       ? kedge_remote_put_parts(remote, part, cnt, SOON_MS)
			       : kedge_remote_get_parts(remote, part, cnt, SOON_MS);
	o.parts = part;
	o.part_cnt = cnt;
	if (kedge_remote_submit(remote, queue, &o, 1) != 1 ||
	    kedge_queue_read(queue, &c, 1, SOON_MS) != 1)
		return -EBADE;
	return c.status;
}

static void begin_parts(size_t len)
{
	begin_remote_of(len, NULL);
	queue = make_queue(0);
}

static void end_parts(void)
{
	kedge_queue_close(queue);
	end_remote();
}

/* ---- an owner that trims ---- */

/* An access by an adapter may fail in the middle, where the owner has waited for it in vain. */
static unsigned int cuts(void)
{
	return atomic_load(&fake_fabric()->cut);
}

static struct {
	_Atomic bool stop;
	_Atomic unsigned int done;
	_Atomic unsigned int refused;
	_Atomic unsigned int torn;
	_Atomic int rc;
} race;

/* Of ranges that all are there again and again, and of one that is not. */
static void lay_out(struct kedge_remote_part part[PARTS], uint64_t *number, size_t step)
{
	size_t i;

	for (i = 0; i < PARTS; i++)
		part[i] = (struct kedge_remote_part){ i * 512, number + step * i, 8 };
	part[PARTS / 2].offset = LEN - 8;
}

/* True: each word is @n, but for one in a range that was taken away in between. */
static bool is_all(uint64_t n)
{
	uint64_t got[PARTS];
	size_t i;

	for (i = 0; i < PARTS; i++)
		if (i != PARTS / 2 && (kedge_remote_get(remote, i * 512, &got[i], 8, SOON_MS) ||
				       got[i] != n))
			return false;
	return true;
}

static int put_one(uint64_t n, uint64_t *was)
{
	struct kedge_remote_part part[PARTS];
	const unsigned int before = cuts();
	int rc;

	lay_out(part, &n, 0);
	rc = access_parts(KEDGE_REMOTE_PUT, part, PARTS);
	if (rc && rc != -EFAULT)
		return rc;
	if (cuts() == before && !is_all(rc ? *was : n))
		atomic_fetch_add(&race.torn, 1);
	if (!rc || cuts() != before)
		*was = n;
	atomic_fetch_add(rc ? &race.refused : &race.done, 1);
	/* After such a failure it is not known which ranges have it. */
	return cuts() != before && rc ? 1 : 0;
}

static int get_one(void)
{
	struct kedge_remote_part part[PARTS];
	const unsigned int before = cuts();
	uint64_t got[PARTS];
	size_t i;
	int rc;

	for (i = 0; i < PARTS; i++)
		got[i] = UINT64_MAX;
	lay_out(part, got, 1);
	rc = access_parts(KEDGE_REMOTE_GET, part, PARTS);
	for (i = 0; rc == -EFAULT && cuts() == before && i < PARTS; i++)
		if (got[i] != UINT64_MAX)
			atomic_fetch_add(&race.torn, 1);
	return rc == -EFAULT ? 0 : rc;
}

static void *puts_numbers(void *unused)
{
	uint64_t n = 0, was = 0;
	int rc = 0;

	while (rc >= 0 && !atomic_load(&race.stop)) {
		rc = put_one(++n, &was);
		/* All are the same again with the next that is done. */
		while (rc == 1 && !atomic_load(&race.stop)) {
			struct kedge_remote_part part[PARTS];

			was = ++n;
			lay_out(part, &n, 0);
			rc = access_parts(KEDGE_REMOTE_PUT, part, PARTS) ? 1 : 0;
		}
		if (rc >= 0 && n % 2)
			rc = get_one();
	}
	atomic_store(&race.rc, rc);
	return unused;
}

static void all_or_none_while_the_owner_trims(void **state)
{
	unsigned int i, seen;
	pthread_t t;

	begin_parts(LEN);
	memset(&race, 0, sizeof(race));
	assert_int_equal(pthread_create(&t, NULL, puts_numbers, NULL), 0);
	for (i = 0; i < ROUNDS && !atomic_load(&race.rc); i++) {
		seen = atomic_load(&race.done);
		WAIT_FOR(atomic_load(&race.done) > seen || atomic_load(&race.rc));
		if (way->leased && i % 4 == 3)
			wait_for_lease(remote);
		seen = atomic_load(&race.refused);
		assert_int_equal(kedge_region_trim(region, LEN / 2), 0);
		WAIT_FOR(atomic_load(&race.refused) > seen || atomic_load(&race.rc));
		grow_to(LEN);
	}
	atomic_store(&race.stop, true);
	pthread_join(t, NULL);
	print_message("# %u done, %u refused\n", race.done, race.refused);
	assert_true(atomic_load(&race.rc) >= 0);
	assert_int_equal(race.torn, 0);
	end_parts();
}

/* ---- an owner that suspends ---- */

static struct kedge_remote_part two[2];

static _Atomic pid_t putting;

static void *puts_two(void *rc)
{
	atomic_store(&putting, gettid());
	*(int *)rc = access_parts(KEDGE_REMOTE_PUT, two, 2);
	return NULL;
}

static void a_resumption_has_them_all_stored(void **state)
{
	struct kedge_remote_part again[2];
	char a = 'a', b = 'b', c[2];
	pthread_t t;
	int rc = 1;

	begin_parts(LEN);
	two[0] = (struct kedge_remote_part){ 7, &a, 1 };
	two[1] = (struct kedge_remote_part){ LEN - 1, &b, 1 };
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_remote_put_parts(remote, two, 2, 10), -ETIMEDOUT);
	assert_int_equal(kedge_remote_get_parts(remote, two, 2, 0), -ETIMEDOUT);
	assert_int_equal(a, 'a');
	assert_int_equal(pthread_create(&t, NULL, puts_two, &rc), 0);
	look_asleep(&putting);
	assert_int_equal(region_at()[7], 0);
	assert_int_equal(region_at()[LEN - 1], 0);
	assert_int_equal(kedge_region_resume(region), 0);
	pthread_join(t, NULL);
	assert_int_equal(rc, 0);
	again[0] = (struct kedge_remote_part){ LEN - 1, &c[0], 1 };
	again[1] = (struct kedge_remote_part){ 7, &c[1], 1 };
	assert_int_equal(access_parts(KEDGE_REMOTE_GET, again, 2), 0);
	assert_memory_equal(c, "ba", 2);
	end_parts();
}

/* ---- how many ---- */

static unsigned char from[LARGE], to[LARGE];

/* Requests up to now. */
static uint64_t requests(void)
{
	const struct link *l = atomic_load(&remote->link);

	return l->stream ? l->stream->seq : 0;
}

/* They are put, and got, in so many requests where the owner does it, which is one access. */
static void take(const struct kedge_remote_part *like, size_t cnt, uint64_t want)
{
	struct kedge_remote_part *part = malloc(cnt * sizeof(*part));
	struct kedge_region_entry before = only(), after;
	uint64_t seq = requests(), sum = 0;
	size_t i, at = 0;
	uint32_t op;

	assert_non_null(part);
	for (op = KEDGE_REMOTE_PUT; op <= KEDGE_REMOTE_GET; op++) {
		for (at = i = 0; i < cnt; at += like[i++].len) {
			part[i] = like[i];
			part[i].data = (op == KEDGE_REMOTE_PUT ? from : to) + at;
		}
		memset(to, 0, sizeof(to));
		sum += at;
		assert_int_equal(access_parts(op, part, cnt), 0);
	}
	for (at = i = 0; i < cnt; at += like[i++].len)
		assert_memory_equal(region_at() + like[i].offset, from + at, like[i].len);
	assert_memory_equal(to, from, at);
	free(part);
	if (!way->served || way->leased)
		want = 0;
	/* The owner does an access that takes libfabric two seconds. */
	if (way->provider)
		return;
	assert_int_equal(requests() - seq, 2 * want);
	after = only();
	assert_int_equal(after.served - before.served, want ? 2 : 0);
	assert_int_equal(after.served_bytes - before.served_bytes, want ? sum : 0);
}

static void as_few_requests_as_can_be(void **state)
{
	static struct kedge_remote_part part[40000];
	const size_t piece = (size_t)256 << 10, row = 16;
	size_t i;

	for (i = 0; i < LARGE; i++)
		from[i] = (unsigned char)(i * 31 >> 5) | 1;
	begin_parts(LARGE);
	for (i = 0; i < 40000; i++)
		part[i] = (struct kedge_remote_part){ 9 + 64 * (39999 - i), NULL, 8 };
	take(part, 1, 1);
	take(part, 2, 1);
	take(part, 127, 1);
	take(part, 128, 1);
	take(part, 300, 1);
	/* Of 24 bytes each with its row in the table. */
	take(part, piece / 24, 1);
	take(part, piece / 24 + 1, 2);
	take(part, 40000, 4);
	/* All of it, and a byte more. */
	part[0] = (struct kedge_remote_part){ 0, NULL, piece - 2 * row - 5 };
	part[1] = (struct kedge_remote_part){ piece, NULL, 0 };
	part[2] = (struct kedge_remote_part){ 2 * piece, NULL, 5 };
	take(part, 3, 1);
	part[2].len = 6;
	take(part, 3, 2);
	/* One that goes alone has no table; one of more is in pieces. */
	part[0].len = piece;
	take(part, 3, 2);
	part[0] = (struct kedge_remote_part){ 3 * piece, NULL, 2 * piece + 1 };
	take(part, 3, 4);
	part[3] = (struct kedge_remote_part){ 1, NULL, 1 };
	take(part, 4, 4);
	take(part + 1, 3, 1);
	end_parts();
}

static void empty_ones_are_passed_over(void **state)
{
	char c[4] = "abc";
	struct kedge_remote_part part[] = {
		{ UINT64_MAX, NULL, 0 }, { 5, c, 1 }, { LEN + 7, c, 0 }, { 0, NULL, 0 },
		{ 6, c + 1, 2 }, { UINT64_MAX, NULL, 0 },
	};

	begin_parts(LEN);
	assert_int_equal(access_parts(KEDGE_REMOTE_PUT, part, 6), 0);
	assert_memory_equal(region_at() + 4, "\0abc\0", 5);
	assert_int_equal(access_parts(KEDGE_REMOTE_PUT, part + 2, 2), 0);
	assert_int_equal(access_parts(KEDGE_REMOTE_GET, part, 1), 0);
	assert_int_equal(access_parts(KEDGE_REMOTE_GET, NULL, 0), 0);
	memset(c, 0, sizeof(c));
	assert_int_equal(access_parts(KEDGE_REMOTE_GET, part, 6), 0);
	assert_string_equal(c, "abc");
	end_parts();
}

/* The end of all is told with the first request. */
static void many_requests_are_refused_by_the_first(void **state)
{
	struct kedge_remote_part part[4] = {
		{ 0, from, LARGE / 4 }, { LARGE / 2, from, 100 }, { 9, from, 3 },
		{ LARGE - 7, from, 8 },
	};

	begin_parts(LARGE);
	memset(from, 1, sizeof(from));
	memset(to, 0, sizeof(to));
	assert_int_equal(access_parts(KEDGE_REMOTE_PUT, part, 4), -EFAULT);
	assert_memory_equal(region_at(), to, LARGE);
	assert_int_equal(access_parts(KEDGE_REMOTE_GET, part, 4), -EFAULT);
	assert_int_equal(from[0], 1);
	part[3].len = 7;
	assert_int_equal(access_parts(KEDGE_REMOTE_PUT, part, 4), 0);
	assert_memory_equal(region_at(), from, LARGE / 4);
	end_parts();
}

/* The system says so, also in the middle of a message. */
static void data_that_is_none_is_told(void **state)
{
	struct kedge_remote_part part[2] = { { 0, from, 9 }, { 100, (void *)16, 9 } };
	uint32_t op;

	for (op = KEDGE_REMOTE_PUT; op <= KEDGE_REMOTE_GET; op++) {
		begin_parts(LEN);
		assert_int_equal(access_parts(op, part, 2), -ECONNRESET);
		assert_int_equal(access_parts(op, part, 1), -ECONNRESET);
		end_parts();
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(as_few_requests_as_can_be),
	cmocka_unit_test(empty_ones_are_passed_over),
	cmocka_unit_test(many_requests_are_refused_by_the_first),
	cmocka_unit_test(a_resumption_has_them_all_stored),
	cmocka_unit_test(all_or_none_while_the_owner_trims),
	case_for(FOR_SERVED, data_that_is_none_is_told),
};

const struct suite suite = { "parts", SUITE_OF(tests), .by = "tcp" };
