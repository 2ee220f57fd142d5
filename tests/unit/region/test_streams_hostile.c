// SPDX-License-Identifier: BSD-2-Clause
/* Peers and owners that speak the protocol of streams badly, or not at all. */
#include <sys/resource.h>

#include "base/base.h"
#include "by_hand.h"
#include "region/share/share.h"

#define SILENT 300

/* ---- peers ---- */

static void what_was_heard_opens_nothing(void **state)
{
	struct stream_hello h;
	struct stream_ask q, other;
	size_t i;
	int fd, rc;

	fd = dial();
	h = greeted(fd);
	q = question(&h);
	assert_int_equal(answer_to(fd, &q), 0);
	close(fd);
	/* The same once more, and each bit of it. */
	fd = dial();
	greeted(fd);
	assert_int_equal(answer_to(fd, &q), -EKEYREJECTED);
	assert_true(is_cut_off(fd));
	for (i = 8; i < sizeof(q); i++) {
		fd = dial();
		h = greeted(fd);
		other = question(&h);
		((unsigned char *)&other)[i] ^= 1;
		rc = answer_to(fd, &other);
		/* Of a handle that was there before, that is no secret. */
		assert_true(rc == -EKEYREJECTED || rc == -EKEYREVOKED);
		assert_true(is_cut_off(fd));
	}
	handle_works();
}

static void what_is_another_protocol_ends_it(void **state)
{
	/* Longer than a handshake. */
	static const char http[] = "GET / HTTP/1.1\r\nHost: kedge\r\nAccept: */*\r\n"
				   "User-Agent: a browser\r\nConnection: keep-alive\r\n\r\n";
	int fd = dial();

	assert_true(sizeof(http) > sizeof(struct stream_ask));
	assert_int_equal(send(fd, http, sizeof(http) - 1, 0), sizeof(http) - 1);
	assert_true(is_cut_off(fd));
	handle_works();
}

/* What the owner says, to a peer whose handle is to read only from some request on. */
static const struct {
	struct stream_req q;
	int says;
	bool reads;
} requests[] = {
	{ { .op = 0 }, -ECONNRESET },
	{ { .op = STREAM_OPS }, -ECONNRESET },
	{ { .op = UINT32_MAX }, -ECONNRESET },
	{ { .op = STREAM_PUT, .len = PIECE_LEN + 1 }, -ECONNRESET },
	{ { .op = STREAM_GET, .len = UINT64_MAX }, -ECONNRESET },
	{ { .op = STREAM_ADD, .len = UINT64_MAX }, -ECONNRESET },
	{ { .op = STREAM_PUT_PARTS, .len = PIECE_LEN + 1, .value = 1 }, -ECONNRESET },
	{ { .op = STREAM_GET_PARTS, .len = UINT64_MAX, .value = UINT64_MAX / 16 + 1 },
	  -ECONNRESET },
	{ { .op = STREAM_GET, .offset = UINT64_MAX, .len = 1 }, -EFAULT },
	{ { .op = STREAM_GET, .offset = UINT64_MAX - 7, .len = 8 }, -EFAULT },
	{ { .op = STREAM_GET, .offset = LEN, .len = 1 }, -EFAULT },
	{ { .op = STREAM_GET, .len = 1, .end = UINT64_MAX }, -EFAULT },
	{ { .op = STREAM_ADD, .offset = LEN, .len = 8 }, -EFAULT },
	{ { .op = STREAM_ADD, .offset = 4, .len = 8 }, -EINVAL },
	{ { .op = STREAM_SWAP, .len = 16 }, -EINVAL },
	{ { .op = STREAM_ADD, .len = 8 }, -EACCES, true },
	{ { .op = STREAM_SWAP, .len = 8 }, -EACCES, true },
	{ { .op = STREAM_PUT }, -EACCES, true },
};

static const struct kedge_handle_opts to_read = { .size = sizeof(to_read),
						  .access = KEDGE_HANDLE_READ };

static void requests_are_looked_at(void **state)
{
	bool reads = false;
	size_t i;
	int fd = open_by_hand(), rc;

	for (i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		if (requests[i].reads && !reads)
			advertise(&to_read);
		/* A connection goes on but where it was ended. */
		if (requests[i].reads != reads || (i && requests[i - 1].says == -ECONNRESET)) {
			close(fd);
			fd = open_by_hand();
		}
		reads = requests[i].reads;
		rc = ask(fd, requests[i].q);
		if (rc != requests[i].says)
			fail_msg("request %zu is answered with %d", i, rc);
	}
	close(fd);
	advertise(NULL);
	handle_works();
}

/* ---- several ranges ---- */

#define ROWS 3

/* Some rows of a table, @q.len bytes with what is behind them, maybe @zeros; and what the owner
 * says. */
struct several {
	struct stream_req q;
	struct stream_range row[ROWS];
	int says;
	bool zeros;
};

static int ask_several(int fd, const struct several *t)
{
	static char data[PIECE_LEN];
	struct stream_req q = t->q;
	struct stream_reply a;

	memset(data, t->zeros ? 0 : 'x', sizeof(data));
	memcpy(data, t->row, sizeof(t->row));
	stream_req_swap(&q);
	if (send(fd, &q, sizeof(q), MSG_NOSIGNAL) != sizeof(q) ||
	    send(fd, data, t->q.len, MSG_NOSIGNAL) != (ssize_t)t->q.len ||
	    recv(fd, &a, sizeof(a), MSG_WAITALL) != sizeof(a))
		return -ECONNRESET;
	if (a.len > sizeof(data) ||
	    (a.len && recv(fd, data, a.len, MSG_WAITALL) != (ssize_t)a.len))
		return -ECONNRESET;
	return a.rc;
}

#define PUT(rows, bytes) .q = { .op = STREAM_PUT_PARTS, .value = (rows), .len = (bytes) }
#define GET(rows, bytes) .q = { .op = STREAM_GET_PARTS, .value = (rows), .len = (bytes) }

static const struct several several[] = {
	/* No table, or one of another length. */
	{ PUT(0, 0), { { 0 } }, -EINVAL },
	{ PUT(0, 48), { { 0, 8 } }, -EINVAL },
	{ GET(0, 0), { { 0 } }, -EINVAL },
	{ GET(1, 0), { { 0 } }, -EINVAL },
	{ PUT(1, 15), { { 0 } }, -EINVAL },
	{ PUT(3, 47), { { 0 } }, -EINVAL },
	{ PUT(UINT64_MAX, 48), { { 0 } }, -EINVAL },
	{ GET(UINT64_MAX / 16 + 1, 0), { { 0 } }, -EINVAL },
	{ GET(UINT64_MAX / 16 + 2, 16), { { 0, 8 } }, -EINVAL },
	{ GET(PIECE_LEN / 16 + 1, PIECE_LEN), { { 0 } }, -EINVAL },
	/* The first has the owner's memory full of empty rows, and the second has one that came. */
	{ GET(PIECE_LEN / 16, PIECE_LEN), { { 0 } }, 0, .zeros = true },
	{ GET(UINT64_MAX / 16 + 2, 16), { { 0 } }, -EINVAL, .zeros = true },
	/* Lengths are not those of what came, and sums that overflow. */
	{ PUT(1, 24), { { 0, 9 } }, -EINVAL },
	{ PUT(1, 25), { { 0, 8 } }, -EINVAL },
	{ PUT(2, 40), { { 0, 9 }, { 0, UINT64_MAX } }, -EINVAL },
	{ PUT(2, 32), { { 0, UINT64_MAX / 2 + 1 }, { 0, UINT64_MAX / 2 + 1 } }, -EINVAL },
	{ PUT(1, PIECE_LEN), { { 0, PIECE_LEN } }, -EINVAL },
	{ GET(1, 24), { { 0, 8 } }, -EINVAL },
	/* An answer that is longer than its place. */
	{ GET(1, 16), { { 0, PIECE_LEN } }, -EINVAL },
	{ GET(1, 16), { { 0, PIECE_LEN - 15 } }, -EINVAL },
	{ GET(2, 32), { { 0, PIECE_LEN - 40 }, { 0, 9 } }, -EINVAL },
	{ GET(3, 48), { { 0, 8 }, { 0, UINT64_MAX }, { 0, 8 } }, -EINVAL },
	/* Places that are not there. */
	{ PUT(2, 48), { { 0, 8 }, { LEN, 8 } }, -EFAULT },
	{ PUT(2, 48), { { 0, 8 }, { UINT64_MAX - 3, 8 } }, -EFAULT },
	{ PUT(2, 40), { { 0, 8 }, { LEN + 1, 0 } }, -EFAULT },
	{ PUT(2, 40), { { 0, 8 }, { UINT64_MAX, 0 } }, -EFAULT },
	{ GET(2, 32), { { 0, 8 }, { LEN - 7, 8 } }, -EFAULT },
	{ .q = { .op = STREAM_PUT_PARTS, .value = 1, .len = 24, .end = LEN + 1 }, { { 0, 8 } },
	  -EFAULT },
	/* And what may be: one, the longest, empty ones, some that overlap. */
	{ GET(1, 16), { { 0, 8 } }, 0 },
	{ GET(1, 16), { { 0, PIECE_LEN - 16 } }, 0 },
	{ GET(2, 32), { { LEN, 0 }, { 0, 0 } }, 0 },
	{ GET(3, 48), { { 0, 8 }, { 4, 8 }, { 0, 8 } }, 0 },
	{ PUT(2, 32), { { LEN, 0 }, { 0, 0 } }, 0 },
};

static void tables_are_looked_at(void **state)
{
	static const struct several good = { PUT(3, 68), { { 100, 8 }, { 104, 8 }, { 96, 4 } }, 0 };
	static const char zeros[LEN];
	size_t i;
	int fd;

	fd = open_by_hand();
	for (i = 0; i < sizeof(several) / sizeof(*several); i++)
		if (ask_several(fd, &several[i]) != several[i].says)
			fail_msg("request %zu is not answered with %d", i, several[i].says);
	assert_memory_equal(region_at(), zeros, LEN);
	assert_int_equal(ask_several(fd, &good), 0);
	assert_memory_equal(region_at() + 95, "\0xxxxxxxxxxxxxxxx\0", 18);
	close(fd);
	handle_works();
}

/* One that ends in the middle of a table, and one that is turned away for its rights. */
static void half_a_table_is_none(void **state)
{
	static const struct several put = { PUT(2, 33), { { 0, 1 }, { 9, 0 } }, -EACCES };
	struct stream_req q = { .op = STREAM_PUT_PARTS, .value = 2, .len = 48 };
	const struct stream_range row[2] = { { 0, 8 }, { 8, 8 } };
	int fd;

	fd = open_by_hand();
	assert_int_equal(send(fd, &q, sizeof(q), 0), sizeof(q));
	assert_int_equal(send(fd, row, sizeof(row), 0), sizeof(row));
	assert_int_equal(send(fd, "seven b", 7, 0), 7);
	handle_works();
	close(fd);
	assert_int_equal(region_at()[1], 0);
	advertise(&to_read);
	fd = open_by_hand();
	assert_int_equal(ask_several(fd, &put), -EACCES);
	close(fd);
	assert_int_equal(region_at()[1], 0);
}

/* A question has no range, whatever it says: while a region migrates there are bits of its pages
 * for what is stored. */
static void a_question_stores_nothing(void **state)
{
	struct stream_req q = { .op = STREAM_QUERY, .offset = UINT64_MAX / 2, .len = PIECE_LEN };
	static const struct several get = { GET(2, 32), { { 0, 8 }, { 8192, 8 } }, 0 };
	static const struct several put = {
		PUT(3, 58), { { 2 * 4096, 8 }, { 6 * 4096 - 1, 2 }, { 9 * 4096, 0 } }, 0
	};
	uint64_t bits[LEN / 4096 / 64 + 1] = { 0 };
	int fd;

	sig_lock(&shares_lock);
	region->dirty = bits;
	sig_unlock(&shares_lock);
	fd = open_by_hand();
	assert_int_equal(ask(fd, q), 0);
	q.offset = 0;
	q.len = 1;
	assert_int_equal(ask(fd, q), 0);
	assert_int_equal(ask_several(fd, &get), 0);
	/* And these are of what was stored. */
	assert_int_equal(ask_several(fd, &put), 0);
	close(fd);
	sig_lock(&shares_lock);
	region->dirty = NULL;
	sig_unlock(&shares_lock);
	assert_int_equal(bits[0], 1u << 2 | 1u << 5 | 1u << 6);
	handle_works();
}

static void the_silent_make_room(void **state)
{
	int fd[SILENT], i;

	for (i = 0; i < SILENT; i++)
		fd[i] = dial();
	handle_works();
	for (i = 0; i < SILENT; i++)
		close(fd[i]);
	/* Those that speak half, and those that have opened it, stay. */
	fd[0] = open_by_hand();
	fd[1] = open_by_hand();
	assert_int_equal(send(fd[0], "half", 4, 0), 4);
	for (i = 2; i < SILENT; i++)
		fd[i] = dial();
	handle_works();
	assert_int_equal(ask(fd[1], (struct stream_req){ .op = STREAM_QUERY }), 0);
	assert_int_equal(recv(fd[0], &i, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	for (i = 0; i < SILENT; i++)
		close(fd[i]);
	handle_works();
}

static void few_descriptors_are_for_those_with_a_handle(void **state)
{
	struct rlimit old, few;
	int fd[30], i;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	begin_remote(NULL);
	few = (struct rlimit){ 36, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (i = 0; i < 30; i++)
		fd[i] = dial();
	handle_works();
	while (i)
		close(fd[--i]);
	/* Those that are with one are told. */
	open_as_many_as_can_be();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	handle_works();
	end_remote();
}

/* A peer that goes while its request waits is forgotten. */
static void those_that_wait_may_go(void **state)
{
	struct stream_req q = { .op = STREAM_GET, .len = 1, .timeout_ms = -1 };
	int fd[8], i;

	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	for (i = 0; i < 8; i++) {
		fd[i] = open_by_hand();
		assert_int_equal(send(fd[i], &q, sizeof(q), 0), sizeof(q));
	}
	for (i = 0; i < 4; i++)
		close(fd[i]);
	assert_int_equal(kedge_region_revoke(region, &handle), 0);
	for (i = 4; i < 8; i++) {
		struct stream_reply a;

		assert_int_equal(recv(fd[i], &a, sizeof(a), MSG_WAITALL), sizeof(a));
		assert_int_equal(a.rc, -EKEYREVOKED);
		close(fd[i]);
	}
	assert_int_equal(kedge_region_resume(region), 0);
	advertise(NULL);
	kedge_remote_close(remote);
	remote = open_it();
	handle_works();
}

/* ---- owners ---- */

static int owner_fd;

/* Its answers to the handshake, and to the first request: what is added to the right ones. */
struct saying {
	struct stream_hello hello;
	struct stream_welcome welcome;
	bool false_tag;
	struct stream_reply reply;
	size_t reply_len;
	int rc; /* of the peer's call */
};

static struct saying says;

static void *answers(void *unused)
{
	struct handle_words w;
	struct stream_ask q;
	struct stream_req r;
	int fd = accept(owner_fd, NULL, NULL);

	assert_true(fd >= 0 && handle_read(&handle, &w));
	send(fd, &says.hello, sizeof(says.hello), MSG_NOSIGNAL);
	if (recv(fd, &q, sizeof(q), MSG_WAITALL) == sizeof(q)) {
		stream_welcome_tag(w.key, &says.hello, &q, &says.welcome, says.welcome.tag);
		says.welcome.tag[7] ^= says.false_tag;
		send(fd, &says.welcome, sizeof(says.welcome), MSG_NOSIGNAL);
	}
	if (recv(fd, &r, sizeof(r), MSG_WAITALL) == sizeof(r)) {
		stream_req_swap(&r);
		says.reply.seq += r.seq;
		stream_reply_swap(&says.reply);
		send(fd, &says.reply, says.reply_len, MSG_NOSIGNAL);
	}
	while (recv(fd, &r, sizeof(r), 0) > 0)
		;
	close(fd);
	return NULL;
}

/* The peer's result: of the handshake, and then of a get. */
static int hears(void)
{
	uint64_t got = 0;
	pthread_t t;
	int rc;

	says.hello.magic = STREAM_MAGIC;
	says.hello.version += STREAM_VERSION;
	says.welcome.magic += STREAM_MAGIC;
	says.welcome.access = KEDGE_HANDLE_READ;
	says.welcome.max_len = 4096;
	owner_fd = make_owner();
	assert_int_equal(pthread_create(&t, NULL, answers, NULL), 0);
	rc = kedge_remote_open(&handle, SOON_MS, &remote);
	if (!rc) {
		rc = kedge_remote_get(remote, 0, &got, sizeof(got), SOON_MS);
		/* And again: what is wrong once is wrong for good. */
		assert_int_equal(kedge_remote_get(remote, 0, &got, sizeof(got), SOON_MS), rc);
		kedge_remote_close(remote);
	}
	pthread_join(t, NULL);
	close(owner_fd);
	return rc;
}

#define REPLY(...) .reply = { __VA_ARGS__ }, .reply_len = sizeof(struct stream_reply)

static const struct saying bad[] = {
	{ .false_tag = true, .rc = -EPROTO }, /* it has not the key */
	{ .hello.version = 1, .rc = -EPROTO },
	{ .welcome.magic = 1, .rc = -EPROTO },
	{ .welcome.rc = -EKEYEXPIRED, .rc = -EKEYEXPIRED },
	{ .welcome.rc = 77, .rc = -EPROTO },
	{ REPLY(.seq = 1, .len = 8), .rc = -EPROTO },
	{ REPLY(.len = 16), .rc = -EPROTO },
	{ REPLY(.len = 0), .rc = -EPROTO },
	{ REPLY(.rc = 5), .rc = -EPROTO },
	{ REPLY(.rc = -EFAULT, .len = 8), .rc = -EPROTO },
};

static void what_is_no_answer_ends_it(void **state)
{
	size_t i;
	int rc;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		says = bad[i];
		rc = hears();
		if (rc != bad[i].rc)
			fail_msg("answer %zu is heard with %d", i, rc);
	}
}

static const struct CMUnitTest tests[] = {
	remote_case(what_was_heard_opens_nothing),
	remote_case(what_is_another_protocol_ends_it),
	remote_case(requests_are_looked_at),
	remote_case(tables_are_looked_at),
	remote_case(half_a_table_is_none),
	remote_case(a_question_stores_nothing),
	remote_case(the_silent_make_room),
	cmocka_unit_test(few_descriptors_are_for_those_with_a_handle),
	remote_case(those_that_wait_may_go),
	cmocka_unit_test(what_is_no_answer_ends_it),
};

const struct suite suite = { "streams_hostile", SUITE_OF(tests), .by = "stream" };
