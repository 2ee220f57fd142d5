// SPDX-License-Identifier: BSD-2-Clause
/* Connecting over libfabric: who is let in, who is not, and how long it takes. */
#include <arpa/inet.h>

#include "ofi_pair.h"

/* ---- who is there ---- */

static void connecting_where_nobody_listens_is_econnrefused(void **state)
{
	struct ofi_listener *l;
	unsigned int before;
	char port[8];

	l = pair_listen(port);
	kedge__ofi_listener_close(l);
	assert_int_equal(connect_to(port, 5000), -ECONNREFUSED);
	before = open_fds();
	assert_int_equal(connect_to(port, 5000), -ECONNREFUSED);
	assert_int_equal(open_fds(), before);
	assert_non_null(strstr(kedge_strerror(-ECONNREFUSED), port));
}

static void a_port_is_taken_once(void **state)
{
	struct ofi_listener *l, *second = NULL;
	char port[8];

	l = pair_listen(port);
	assert_int_equal(kedge__ofi_listen(pair_provider(), "127.0.0.1", port,
					   &ofi_opts, &second), -EADDRINUSE);
	assert_null(second);
	kedge__ofi_listener_close(l);
}

static uint64_t took_ms(uint64_t since)
{
	return (clock_ns() - since) / 1000000u;
}

static void connecting_where_nobody_accepts_is_etimedout(void **state)
{
	struct ofi_listener *l;
	uint64_t since;
	char port[8];

	l = pair_listen(port);
	since = clock_ns();
	assert_int_equal(connect_to(port, 200), -ETIMEDOUT);
	assert_true(took_ms(since) >= 200);
	kedge__ofi_listener_close(l);
}

static void accepting_where_nobody_comes_is_etimedout(void **state)
{
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	uint64_t since = clock_ns();
	char port[8];

	l = pair_listen(port);
	assert_int_equal(kedge__ofi_accept(l, 0, &o, &peer), -ETIMEDOUT);
	assert_int_equal(kedge__ofi_accept(l, 100, &o, &peer), -ETIMEDOUT);
	assert_true(took_ms(since) >= 100);
	assert_null(o);
	kedge__ofi_listener_close(l);
}

/* ---- strangers ---- */

static void strangers_do_no_harm(void **state)
{
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	int silent, rude, gone;
	char port[8];

	l = pair_listen(port);
	silent = socket_to(port);
	rude = socket_to(port);
	gone = socket_to(port);
	assert_int_equal(write(rude, "GET / HTTP/1.0\r\n\r\n", 18), 18);
	close(gone);
	assert_int_equal(kedge__ofi_accept(l, 100, &o, &peer), -ETIMEDOUT);
	still_lets_in(l, port);
	close(silent);
	close(rude);
	kedge__ofi_listener_close(l);
}

/* A server of something else. */
static void *serve_rubbish(void *arg)
{
	int fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
	char buf[512];

	if (fd < 0)
		return NULL;
	if (read(fd, buf, sizeof(buf)) > 0 &&
	    write(fd, "220 mail.example ESMTP, hello and welcome\r\n", 43) < 0)
		fprintf(stderr, "write: %d\n", errno);
	/* The client hangs up when it has read that. */
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	close(fd);
	return NULL;
}

static void another_server_is_no_kedge(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);
	pthread_t thread;
	char port[8];

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(port, sizeof(port), "%u", ntohs(a.sin_port));
	assert_int_equal(pthread_create(&thread, NULL, serve_rubbish, &fd), 0);
	assert_int_equal(connect_to(port, 5000), -EPROTO);
	pthread_join(thread, NULL);
	close(fd);
}

/* ---- what a peer says of itself ---- */

static struct rdma_hello good(void)
{
	struct rdma_hello h;

	kedge__rdma_hello(&h, &ofi_opts);
	return h;
}

static void limits_are_checked(void **state)
{
	struct rdma_hello h = good();

	assert_int_equal(kedge__rdma_hello_check(&h, sizeof(h)), 0);
	assert_int_equal(kedge__rdma_hello_check(&h, sizeof(h) - 1), -EPROTO);
#define BAD(field, value)                                                      \
	do {                                                                   \
		h = good();                                                    \
		h.field = (value);                                             \
		assert_int_equal(kedge__rdma_hello_check(&h, sizeof(h)),        \
				 -EPROTO);                                     \
	} while (0)
	BAD(magic, __builtin_bswap64(HELLO_MAGIC));
	BAD(version, HELLO_VERSION + 1);
	BAD(rx_cnt, 7);
	BAD(rx_cnt, 4097);
	BAD(eager_max, 0);
	BAD(eager_max, 32 * 1024 + 1);
	BAD(unexpected_cnt, 0);
	BAD(unexpected_cnt, UNEXPECTED_CNT_MAX + 1);
	BAD(unexpected_bytes, h.eager_max - 1);
	BAD(unexpected_bytes, (1u << 30) + 1);
	BAD(status, 1);
	BAD(status, -5000);
	BAD(zero, 1);
	h = good();
	h.status = -ENOMEM;
	assert_int_equal(kedge__rdma_hello_check(&h, sizeof(h)), -ENOMEM);
}

/* By libfabric, but with the wrong words. */
static int call_wrongly(const char *port)
{
	struct rdma_hello h = good(), answer = { .status = 0 };
	struct ofi_fabric *fabric;
	struct fi_info *info;
	struct ofi *o;
	bool rdm;

	h.version++;
	assert_int_equal(kedge__ofi_getinfo_any(pair_provider(), "127.0.0.1",
						port, 0, &info, &rdm), 0);
	assert_int_equal(kedge__ofi_fabric_open(info, &fabric), 0);
	assert_int_equal(kedge__ofi_open(fabric, info, &o), 0);
	assert_int_equal(fi_connect(o->ep, info->dest_addr, &h, sizeof(h)), 0);
	kedge__ofi_connected(o, clock_ns() + 5000000000u, &answer);
	kedge__rdma_free(&o->r);
	kedge__ofi_fabric_put(fabric);
	fi_freeinfo(info);
	return answer.status;
}

/* Such a caller is told why, and others are let in. */
static void turned_away(int (*caller)(const char *port))
{
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	struct call c;
	char port[8];

	l = pair_listen(port);
	call_begin(&c, port, caller);
	assert_int_equal(kedge__ofi_accept(l, 5000, &o, &peer), -EPROTO);
	assert_null(o);
	assert_int_equal(call_end(&c), -EPROTO);
	still_lets_in(l, port);
	kedge__ofi_listener_close(l);
}

static void another_version_is_turned_away(void **state)
{
	/* The handshake of TCP does that: tests/unit/channel/test_tcp_handshake.c. */
	if (pair_is_rdm())
		return;
	turned_away(call_wrongly);
}

/* Both ends meet, and one of them wants to go on otherwise. */
static int call_shm(const char *port)
{
	struct transport_peer peer;
	struct ofi *o = NULL;

	return kedge__ofi_connect("shm", "127.0.0.1", port, &ofi_opts, 5000, &o,
				  &peer);
}

static void another_provider_is_turned_away(void **state)
{
	if (pair_is_rdm())
		turned_away(call_shm);
}

/* It would crash when one end is closed. */
static void shm_is_for_two_processes(void **state)
{
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	struct call c;
	char port[8];

	assert_int_equal(kedge__ofi_listen("shm", "127.0.0.1", "0", &ofi_opts,
					   &l), 0);
	snprintf(port, sizeof(port), "%u", kedge__ofi_listener_port(l));
	call_begin(&c, port, call_shm);
	assert_int_equal(kedge__ofi_accept(l, 5000, &o, &peer), -EOPNOTSUPP);
	assert_true(call_end(&c) < 0);
	assert_null(o);
	kedge__ofi_listener_close(l);
}

static void the_smaller_limit_holds(void **state)
{
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	struct call c;
	char port[8];

	l = pair_listen(port);
	ofi_opts.eager_max = 1000;
	ofi_opts.unexpected_cnt = 17;
	call_begin(&c, port, NULL);
	assert_int_equal(kedge__ofi_accept(l, 5000, &o, &peer), 0);
	assert_int_equal(peer.eager_max, 1000);
	assert_int_equal(peer.unexpected_cnt, 17);
	T.close(o);
	call_end(&c);
	kedge__ofi_listener_close(l);
}

/* ---- what is left ---- */

/* A fork takes nothing away from the parent. */
static void a_child_closes_nothing(void **state)
{
	struct pair p;
	int status;
	pid_t pid;
	void *packet;
	size_t len;

	pair_open(&p);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		T.close(p.a);
		T.close(p.b);
		kedge__ofi_listener_close(p.l);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	packet = T.reserve(p.a, 8);
	memset(packet, 0, 8);
	T.commit(p.a, packet, 8);
	PAIR_UNTIL(&p, T.next(p.b, &len));
	assert_int_equal(T.check(p.a), 0);
	pair_close(&p);
}

static void say_hello(struct pair *p)
{
	void *packet = T.reserve(p->a, 8);
	size_t len;

	memset(packet, 0, 8);
	T.commit(p->a, packet, 8);
	PAIR_UNTIL(p, T.next(p->b, &len));
	T.release(p->b, T.next(p->b, &len));
}

static void nothing_is_left(void **state)
{
	unsigned int before, i;
	struct pair p;

	pair_open(&p);
	pair_close(&p);
	before = open_fds();
	for (i = 0; i < 10; i++) {
		pair_open(&p);
		/* Not from both ends at once: rxm would keep a socket. */
		say_hello(&p);
		pair_close(&p);
	}
	assert_int_equal(open_fds(), before);
}

#define TEST(f) cmocka_unit_test_setup(f, ofi_defaults)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(connecting_where_nobody_listens_is_econnrefused),
		TEST(a_port_is_taken_once),
		TEST(connecting_where_nobody_accepts_is_etimedout),
		TEST(accepting_where_nobody_comes_is_etimedout),
		TEST(strangers_do_no_harm),
		TEST(another_server_is_no_kedge),
		TEST(limits_are_checked),
		TEST(another_version_is_turned_away),
		TEST(another_provider_is_turned_away),
		TEST(shm_is_for_two_processes),
		TEST(the_smaller_limit_holds),
		TEST(a_child_closes_nothing),
		TEST(nothing_is_left),
	};

	if (ofi_missing())
		return 77;
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
