// SPDX-License-Identifier: BSD-2-Clause
/*
 * Regions whose accesses the owner does: large ones, owners that do not answer, addresses that are
 * none, and peers that speak the protocol badly, or not at all.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/base.h"
#include "region/share/share.h"
#include "region/stream.h"
#include "region/peer/state.h"
#include "remote.h"

#define SILENT 300
#define LARGE  ((size_t)3 << 20)

/* ---- large accesses ---- */

static void a_large_access_is_made_in_pieces(void **state)
{
	unsigned char *data = malloc(LARGE), *got = malloc(LARGE);
	const size_t len = LARGE - 12345;
	size_t i;

	assert_true(data && got);
	for (i = 0; i < LARGE; i++)
		data[i] = (unsigned char)(i * 31 >> 7);
	make_region(LARGE, NULL);
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 777, data, len, SOON_MS), 0);
	assert_memory_equal(region_at() + 777, data, len);
	assert_int_equal(kedge_remote_get(remote, 777, got, len, SOON_MS), 0);
	assert_memory_equal(got, data, len);
	/* What is not all there is told with the first piece. */
	memset(data, 0xff, LARGE);
	assert_int_equal(kedge_remote_put(remote, 777, data, LARGE - 776, SOON_MS), -EFAULT);
	assert_memory_equal(region_at() + 777, got, len);
	assert_int_equal(kedge_remote_get(remote, 777, data, LARGE, SOON_MS), -EFAULT);
	assert_int_equal(data[0], 0xff);
	assert_int_equal(kedge_remote_get(remote, 777, data, 8, SOON_MS), 0);
	assert_memory_equal(data, got, 8);
	free(data);
	free(got);
	end();
}

/* It does not stand in the way of others, nor of a suspension. */
static void one_that_does_not_read_stops_nobody(void **state)
{
	struct kedge_remote *other;
	struct stream_req q = { .op = STREAM_GET, .len = PIECE_LEN, .end = PIECE_LEN };
	char c = 1;
	int i;

	begin(NULL);
	other = open_it();
	for (i = 0; i < 64; i++)
		assert_int_equal(send(remote->sock.fd, &q, sizeof(q), 0), sizeof(q));
	for (i = 0; i < 100; i++)
		assert_int_equal(kedge_remote_put(other, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(kedge_region_resume(region), 0);
	assert_int_equal(kedge_remote_put(other, 0, &c, 1, SOON_MS), 0);
	kedge_remote_close(other);
	end();
}

/* ---- owners that do not answer ---- */

static void *resumes(void *arg)
{
	usleep(20000);
	kedge_region_resume(region);
	return arg;
}

static void a_resumption_is_found(void **state)
{
	pthread_t t;
	char c = 1;

	begin(NULL);
	assert_int_equal(kedge_region_suspend(region, SOON_MS), 0);
	assert_int_equal(pthread_create(&t, NULL, resumes, NULL), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	pthread_join(t, NULL);
	end();
}

static void an_owner_that_is_stopped_is_given_up(void **state)
{
	int fd[2];
	char c = 1;
	pid_t pid;

	need_threads_after_fork();
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		make_region(LEN, NULL);
		CHILD_CHECK(write(fd[1], &handle, sizeof(handle)) == sizeof(handle));
		for (;;)
			pause();
	}
	assert_int_equal(read(fd[0], &handle, sizeof(handle)), sizeof(handle));
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, 10), -ECONNRESET);
	kill(pid, SIGCONT);
	/* That is for good: what was under way could come later otherwise. */
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), -ECONNRESET);
	kedge_remote_close(remote);
	kedge_remote_close(open_it());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd[0]);
	close(fd[1]);
}

static void a_program_may_close_the_socket(void **state)
{
	char c = 1;

	begin(NULL);
	close(remote->sock.fd);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), -ECONNRESET);
	kedge_remote_close(remote);
	remote = open_it();
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	end();
}

/* ---- addresses ---- */

static int at(const char *node, const char *service)
{
	const struct kedge_handle_opts o = { .size = sizeof(o), .node = node,
					     .service = service };

	return kedge_region_advertise(region, &o, &handle);
}

static void an_address_is_this_hosts(void **state)
{
	struct kedge_handle first;
	struct handle_words w;
	char port[8], node[16];
	int i;

	make_region(LEN, NULL);
	assert_int_equal(at("", NULL), -EINVAL);
	assert_int_equal(at("0.0.0.0", NULL), -EINVAL);
	assert_int_equal(at("::", NULL), -EINVAL);
	assert_int_equal(at("192.0.2.77", NULL), -EADDRNOTAVAIL);
	assert_int_equal(at("no host of this name", NULL), -EADDRNOTAVAIL);
	assert_int_equal(at("127.0.0.1", "port"), -EADDRNOTAVAIL);
	assert_int_equal(at("127.0.0.1", "65536"), -EADDRNOTAVAIL);
	assert_int_equal(at("127.0.0.1", NULL), 0);
	first = handle;
	assert_true(handle_read(&handle, &w) && w.port);
	/* The same port for each, by its number, too; and another one's is its own. */
	snprintf(port, sizeof(port), "%u", w.port);
	assert_int_equal(at("127.0.0.1", NULL), 0);
	assert_memory_equal(handle.bytes + 12, first.bytes + 12, 2);
	assert_int_equal(at("127.0.0.1", port), 0);
	assert_memory_equal(handle.bytes + 12, first.bytes + 12, 2);
	assert_int_equal(at("localhost", NULL), 0);
	for (i = 2; i < 40; i++) {
		snprintf(node, sizeof(node), "127.0.0.%d", i);
		if (at(node, NULL))
			break;
	}
	assert_in_range(i, 16, 17);
	assert_int_equal(at(node, NULL), -ENOSPC);
	assert_int_equal(at("127.0.0.1", NULL), 0);
	kedge_region_close(region);
	/* Those of the next thread are others. */
	make_region(LEN, NULL);
	assert_int_equal(at("127.0.0.77", NULL), 0);
	kedge_region_close(region);
}

static void a_port_of_others_is_in_use(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	char port[8];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 1) &&
		    !getsockname(fd, (struct sockaddr *)&a, &len));
	snprintf(port, sizeof(port), "%u", ntohs(a.sin_port));
	make_region(LEN, NULL);
	assert_int_equal(at("127.0.0.1", port), -EADDRINUSE);
	close(fd);
	kedge_region_close(region);
}

/* ---- peers that do not keep to it ---- */

static int dial(void)
{
	struct handle_words w;
	struct sockaddr_un a;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && handle_read(&handle, &w));
	len = handle_address(w.name, true, &a);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, len), 0);
	return fd;
}

static struct stream_hello greeted(int fd)
{
	struct stream_hello h;

	assert_int_equal(recv(fd, &h, sizeof(h), MSG_WAITALL), sizeof(h));
	assert_int_equal(h.magic, STREAM_MAGIC);
	return h;
}

static struct stream_ask question(const struct stream_hello *h)
{
	struct handle_words w;
	struct stream_ask q = { .magic = STREAM_MAGIC, .version = STREAM_VERSION };

	assert_true(handle_read(&handle, &w));
	q.slot = w.slot;
	q.generation = w.generation;
	stream_ask_tag(w.key, h, &q, q.tag);
	return q;
}

/* What the owner says to it, or that it ends. */
static int answer_to(int fd, const struct stream_ask *q)
{
	struct stream_welcome w;

	if (send(fd, q, sizeof(*q), MSG_NOSIGNAL) != sizeof(*q) ||
	    recv(fd, &w, sizeof(w), MSG_WAITALL) != sizeof(w))
		return -ECONNRESET;
	return w.rc;
}

static void works(void)
{
	struct kedge_remote *r = open_it();
	char c = 1;

	assert_int_equal(kedge_remote_put(r, 0, &c, 1, SOON_MS), 0);
	assert_int_equal(kedge_remote_put(remote, 0, &c, 1, SOON_MS), 0);
	kedge_remote_close(r);
}

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

	begin(NULL);
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
	works();
	end();
}

/* One that has opened it with what it likes to say. */
static int open_by_hand(void)
{
	int fd = dial();
	struct stream_hello h = greeted(fd);
	struct stream_ask q = question(&h);

	assert_int_equal(answer_to(fd, &q), 0);
	return fd;
}

static int ask(int fd, struct stream_req q)
{
	struct stream_reply a;

	stream_req_swap(&q);
	if (send(fd, &q, sizeof(q), MSG_NOSIGNAL) != sizeof(q) ||
	    recv(fd, &a, sizeof(a), MSG_WAITALL) != sizeof(a))
		return -ECONNRESET;
	return a.rc;
}

static void what_is_no_request_ends_it(void **state)
{
	static const struct stream_req bad[] = {
		{ .op = 0 },
		{ .op = STREAM_QUERY + 1 },
		{ .op = UINT32_MAX },
		{ .op = STREAM_PUT, .len = PIECE_LEN + 1 },
		{ .op = STREAM_GET, .len = UINT64_MAX },
		{ .op = STREAM_ADD, .len = UINT64_MAX },
	};
	/* Longer than a handshake. */
	static const char http[] = "GET / HTTP/1.1\r\nHost: kedge\r\nAccept: */*\r\n"
				   "User-Agent: none\r\nConnection: keep-alive\r\n\r\n";
	size_t i;
	int fd;

	assert_true(sizeof(http) > sizeof(struct stream_ask));
	begin(NULL);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		fd = open_by_hand();
		assert_int_equal(ask(fd, bad[i]), -ECONNRESET);
		close(fd);
	}
	fd = dial();
	assert_int_equal(send(fd, http, sizeof(http) - 1, 0), sizeof(http) - 1);
	assert_true(is_cut_off(fd));
	works();
	end();
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

	begin(NULL);
	fd = open_by_hand();
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(ask(fd, bad[i]), -EFAULT);
	assert_int_equal(ask(fd, q), -EINVAL);
	q = (struct stream_req){ .op = STREAM_SWAP, .len = 16 };
	assert_int_equal(ask(fd, q), -EINVAL);
	close(fd);
	works();
	end();
}

static void accesses_are_looked_at(void **state)
{
	const struct kedge_handle_opts read = { .size = sizeof(read),
						.access = KEDGE_HANDLE_READ };
	struct stream_req q = { .op = STREAM_ADD, .len = 8 };
	int fd;

	begin(NULL);
	advertise(&read);
	fd = open_by_hand();
	assert_int_equal(ask(fd, q), -EACCES);
	q.op = STREAM_SWAP;
	assert_int_equal(ask(fd, q), -EACCES);
	q = (struct stream_req){ .op = STREAM_PUT };
	assert_int_equal(ask(fd, q), -EACCES);
	close(fd);
	end();
}

static void the_silent_make_room(void **state)
{
	int fd[SILENT], i;

	begin(NULL);
	for (i = 0; i < SILENT; i++)
		fd[i] = dial();
	works();
	for (i = 0; i < SILENT; i++)
		close(fd[i]);
	/* Those that speak half, and those that have opened it, stay. */
	fd[0] = open_by_hand();
	fd[1] = open_by_hand();
	assert_int_equal(send(fd[0], "half", 4, 0), 4);
	for (i = 2; i < SILENT; i++)
		fd[i] = dial();
	works();
	assert_int_equal(ask(fd[1], (struct stream_req){ .op = STREAM_QUERY }), 0);
	assert_int_equal(recv(fd[0], &i, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	for (i = 0; i < SILENT; i++)
		close(fd[i]);
	works();
	end();
}

/* Who goes while its request waits is forgotten. */
static void those_that_wait_may_go(void **state)
{
	struct stream_req q = { .op = STREAM_GET, .len = 1, .timeout_ms = -1 };
	int fd[8], i;

	begin(NULL);
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
	works();
	end();
}

/* ---- owners that do not keep to it ---- */

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

/* What it answers to the handshake with, and to the first request. */
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

/* What the peer makes of it: of the handshake, and then of a get. */
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_access_is_made_in_pieces),
		cmocka_unit_test(one_that_does_not_read_stops_nobody),
		cmocka_unit_test(a_resumption_is_found),
		cmocka_unit_test(an_owner_that_is_stopped_is_given_up),
		cmocka_unit_test(a_program_may_close_the_socket),
		cmocka_unit_test(an_address_is_this_hosts),
		cmocka_unit_test(a_port_of_others_is_in_use),
		cmocka_unit_test(what_was_heard_opens_nothing),
		cmocka_unit_test(what_is_no_request_ends_it),
		cmocka_unit_test(ranges_are_looked_at),
		cmocka_unit_test(accesses_are_looked_at),
		cmocka_unit_test(the_silent_make_room),
		cmocka_unit_test(those_that_wait_may_go),
		cmocka_unit_test(who_has_not_the_key_is_no_owner),
		cmocka_unit_test(what_is_no_answer_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
