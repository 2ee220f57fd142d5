// SPDX-License-Identifier: BSD-2-Clause
/* Peers and owners that speak the protocol of streams badly, or not at all. */
#include <pthread.h>
#include <sys/resource.h>

#include "base/base.h"
#include "by_hand.h"
#include "region/share/share.h"

#define SILENT 300

/* ---- peers ---- */

static bool is_cut_off(int fd)
{
	char c[64];
	ssize_t n;

	while ((n = recv(fd, c, sizeof(c), 0)) > 0)
		;
	close(fd);
	return !n || errno == ECONNRESET;
}

static void what_was_heard_opens_nothing(void **state)
{
	struct stream_hello h;
	struct stream_ask q, other;
	size_t i;
	int fd, rc;

	begin_remote(NULL);
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
	end_remote();
}

static void what_is_no_request_ends_it(void **state)
{
	static const struct stream_req bad[] = {
		{ .op = 0 },
		{ .op = STREAM_OPS },
		{ .op = UINT32_MAX },
		{ .op = STREAM_PUT, .len = PIECE_LEN + 1 },
		{ .op = STREAM_GET, .len = UINT64_MAX },
		{ .op = STREAM_ADD, .len = UINT64_MAX },
		{ .op = STREAM_PUT_PARTS, .len = PIECE_LEN + 1, .value = 1 },
		{ .op = STREAM_GET_PARTS, .len = UINT64_MAX, .value = UINT64_MAX / 16 + 1 },
	};
	/* Longer than a handshake. */
	static const char http[] = "GET / HTTP/1.1\r\nHost: kedge\r\nAccept: */*\r\n"
				   "User-Agent: a browser\r\nConnection: keep-alive\r\n\r\n";
	size_t i;
	int fd;

	assert_true(sizeof(http) > sizeof(struct stream_ask));
	begin_remote(NULL);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		fd = open_by_hand();
		assert_int_equal(ask(fd, bad[i]), -ECONNRESET);
		close(fd);
	}
	fd = dial();
	assert_int_equal(send(fd, http, sizeof(http) - 1, 0), sizeof(http) - 1);
	assert_true(is_cut_off(fd));
	handle_works();
	end_remote();
}

static void ranges_are_looked_at(void **state)
{
	static const struct stream_req bad[] = {
		{ .op = STREAM_GET, .offset = UINT64_MAX, .len = 1 },
		{ .op = STREAM_GET, .offset = UINT64_MAX - 7, .len = 8 },
		{ .op = STREAM_GET, .offset = LEN, .len = 1 },
		{ .op = STREAM_GET, .len = 1, .end = UINT64_MAX },
		{ .op = STREAM_ADD, .offset = LEN, .len = 8 },
	};
	struct stream_req q = { .op = STREAM_ADD, .offset = 4, .len = 8 };
	size_t i;
	int fd;

	begin_remote(NULL);
	fd = open_by_hand();
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(ask(fd, bad[i]), -EFAULT);
	assert_int_equal(ask(fd, q), -EINVAL);
	q = (struct stream_req){ .op = STREAM_SWAP, .len = 16 };
	assert_int_equal(ask(fd, q), -EINVAL);
	close(fd);
	handle_works();
	end_remote();
}

static void accesses_are_looked_at(void **state)
{
	const struct kedge_handle_opts read = { .size = sizeof(read),
						.access = KEDGE_HANDLE_READ };
	struct stream_req q = { .op = STREAM_ADD, .len = 8 };
	int fd;

	begin_remote(NULL);
	advertise(&read);
	fd = open_by_hand();
	assert_int_equal(ask(fd, q), -EACCES);
	q.op = STREAM_SWAP;
	assert_int_equal(ask(fd, q), -EACCES);
	q = (struct stream_req){ .op = STREAM_PUT };
	assert_int_equal(ask(fd, q), -EACCES);
	close(fd);
	end_remote();
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

	begin_remote(NULL);
	fd = open_by_hand();
	for (i = 0; i < sizeof(several) / sizeof(*several); i++)
		if (ask_several(fd, &several[i]) != several[i].says)
			fail_msg("request %zu is not answered with %d", i, several[i].says);
	assert_memory_equal(region_at(), zeros, LEN);
	assert_int_equal(ask_several(fd, &good), 0);
	assert_memory_equal(region_at() + 95, "\0xxxxxxxxxxxxxxxx\0", 18);
	close(fd);
	handle_works();
	end_remote();
}

/* One that ends in the middle of a table, and one that is turned away for its rights. */
static void half_a_table_is_none(void **state)
{
	const struct kedge_handle_opts read = { .size = sizeof(read),
						.access = KEDGE_HANDLE_READ };
	static const struct several put = { PUT(2, 33), { { 0, 1 }, { 9, 0 } }, -EACCES };
	struct stream_req q = { .op = STREAM_PUT_PARTS, .value = 2, .len = 48 };
	const struct stream_range row[2] = { { 0, 8 }, { 8, 8 } };
	int fd;

	begin_remote(NULL);
	fd = open_by_hand();
	assert_int_equal(send(fd, &q, sizeof(q), 0), sizeof(q));
	assert_int_equal(send(fd, row, sizeof(row), 0), sizeof(row));
	assert_int_equal(send(fd, "seven b", 7, 0), 7);
	handle_works();
	close(fd);
	assert_int_equal(region_at()[1], 0);
	advertise(&read);
	fd = open_by_hand();
	assert_int_equal(ask_several(fd, &put), -EACCES);
	close(fd);
	assert_int_equal(region_at()[1], 0);
	end_remote();
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

	begin_remote(NULL);
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
	end_remote();
}

static void the_silent_make_room(void **state)
{
	int fd[SILENT], i;

	begin_remote(NULL);
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
	end_remote();
}

static void few_descriptors_are_for_those_with_a_handle(void **state)
{
	struct kedge_remote *r[64] = { NULL };
	struct rlimit old, few;
	int fd[64], i, n, rc = 0;

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
	for (n = 0; n < 64 && !rc; n++)
		rc = kedge_remote_open(&handle, SOON_MS, &r[n]);
	assert_int_equal(rc, -EMFILE);
	assert_non_null(strstr(kedge_strerror(rc), "owner"));
	while (--n >= 0)
		kedge_remote_close(r[n]);
	/* Once the owner has heard of that. */
	while ((rc = kedge_remote_open(&handle, SOON_MS, &r[0])) == -EMFILE)
		usleep(1000);
	assert_int_equal(rc, 0);
	kedge_remote_close(r[0]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	handle_works();
	end_remote();
}

/* A peer that goes while its request waits is forgotten. */
static void those_that_wait_may_go(void **state)
{
	struct stream_req q = { .op = STREAM_GET, .len = 1, .timeout_ms = -1 };
	int fd[8], i;

	begin_remote(NULL);
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
	end_remote();
}

/* ---- owners ---- */

/* A handle of another host, whose owner the test is. */
static int make_owner(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct handle_words w = { .port = 1, .key = "the only key" };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 8) &&
		    !getsockname(fd, (struct sockaddr *)&a, &len));
	w.port = ntohs(a.sin_port);
	memset(w.place + 10, 0xff, 2);
	memcpy(w.place + 12, &a.sin_addr, 4);
	handle_write(&w, &handle);
	return fd;
}

static int owner_fd;

/* Its answers to the handshake, and to the first request. */
static struct {
	struct stream_hello hello;
	struct stream_welcome welcome;
	bool false_tag;
	struct stream_reply reply;
	size_t reply_len;
} says;

static void *answers(void *unused)
{
	struct handle_words w;
	struct stream_ask q;
	struct stream_req r;
	int fd = accept(owner_fd, NULL, NULL);

	(void)unused;
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
	memset(&says, 0, sizeof(says));
	return rc;
}

static void who_has_not_the_key_is_no_owner(void **state)
{
	says.false_tag = true;
	assert_int_equal(hears(), -EPROTO);
	says.hello.version = 1;
	assert_int_equal(hears(), -EPROTO);
	says.welcome.magic = 1;
	assert_int_equal(hears(), -EPROTO);
	says.welcome.rc = -EKEYEXPIRED;
	assert_int_equal(hears(), -EKEYEXPIRED);
	says.welcome.rc = 77;
	assert_int_equal(hears(), -EPROTO);
}

static void what_is_no_answer_ends_it(void **state)
{
	says.reply_len = sizeof(says.reply);
	says.reply.seq = 1;
	says.reply.len = 8;
	assert_int_equal(hears(), -EPROTO);
	says.reply_len = sizeof(says.reply);
	says.reply.len = 16;
	assert_int_equal(hears(), -EPROTO);
	says.reply_len = sizeof(says.reply);
	assert_int_equal(hears(), -EPROTO);
	says.reply_len = sizeof(says.reply);
	says.reply.rc = 5;
	assert_int_equal(hears(), -EPROTO);
	says.reply_len = sizeof(says.reply);
	says.reply.rc = -EFAULT;
	says.reply.len = 8;
	assert_int_equal(hears(), -EPROTO);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_was_heard_opens_nothing),
	cmocka_unit_test(what_is_no_request_ends_it),
	cmocka_unit_test(ranges_are_looked_at),
	cmocka_unit_test(accesses_are_looked_at),
	cmocka_unit_test(tables_are_looked_at),
	cmocka_unit_test(half_a_table_is_none),
	cmocka_unit_test(a_question_stores_nothing),
	cmocka_unit_test(the_silent_make_room),
	cmocka_unit_test(few_descriptors_are_for_those_with_a_handle),
	cmocka_unit_test(those_that_wait_may_go),
	cmocka_unit_test(who_has_not_the_key_is_no_owner),
	cmocka_unit_test(what_is_no_answer_ends_it),
};

int main(void)
{
	const struct suite s = { "streams_hostile", SUITE_OF(tests), .by = "stream" };

	return suite_run(&s, NULL);
}
