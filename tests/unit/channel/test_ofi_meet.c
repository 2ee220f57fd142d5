// SPDX-License-Identifier: BSD-2-Clause
/*
 * Where endpoints without connections meet: by the handshake of a channel over TCP,
 * which strangers do not get behind.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kedge/ofi.h>
#include <kedge/tcp.h>

#include "ofi_pair.h"

static struct kedge_channel_opts opts;

static int setup(void **state)
{
	opts = pair_opts();
	return 0;
}

static int connect_to(const char *port, int timeout_ms)
{
	struct transport_peer peer;
	struct ofi *o = NULL;
	int rc;

	rc = kedge__ofi_connect(pair_provider(), "127.0.0.1", port, &opts,
				timeout_ms, &o, &peer);
	if (!rc)
		T.close(o);
	else
		assert_null(o);
	return rc;
}

static int socket_to(const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_port = htons((uint16_t)atoi(port));
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* @rc is 1 until it is over. */
struct call {
	const char *port;
	int rc;
};

static void *call(void *arg)
{
	struct call *c = arg;

	__atomic_store_n(&c->rc, connect_to(c->port, 10000), __ATOMIC_RELAXED);
	return NULL;
}

/* A listener outlives each caller; then one of ours gets in. */
static void still_lets_in(struct ofi_listener *l, const char *port)
{
	struct call c = { .port = port, .rc = 1 };
	struct transport_peer peer;
	struct ofi *o = NULL;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, call, &c), 0);
	assert_int_equal(kedge__ofi_accept(l, 10000, &o, &peer), 0);
	T.close(o);
	pthread_join(thread, NULL);
	assert_int_equal(c.rc, 0);
}

/* A channel over TCP knocks where endpoints meet. */
static void *call_plainly(void *arg)
{
	struct kedge_channel *ch = NULL;
	struct call *c = arg;
	int rc = kedge_channel_open_tcp("127.0.0.1", c->port, NULL, 5000, &ch);

	__atomic_store_n(&c->rc, rc, __ATOMIC_RELAXED);
	return NULL;
}

static void a_channel_over_tcp_is_turned_away(void **state)
{
	struct call c = { .rc = 1 };
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	pthread_t thread;
	char port[8];

	l = pair_listen(port);
	c.port = port;
	assert_int_equal(pthread_create(&thread, NULL, call_plainly, &c), 0);
	while (__atomic_load_n(&c.rc, __ATOMIC_RELAXED) == 1)
		assert_int_equal(kedge__ofi_accept(l, 10, &o, &peer),
				 -ETIMEDOUT);
	pthread_join(thread, NULL);
	assert_int_equal(c.rc, -EPROTO);
	still_lets_in(l, port);
	kedge__ofi_listener_close(l);
}

/* ---- with a secret ---- */

static const char secret[] = "as long as secrets have to be";

static void set_secret(const char *text)
{
	opts.secret = text;
	opts.secret_len = text ? strlen(text) : 0;
}

static struct ofi_listener *listen_secretly(char port[8])
{
	struct ofi_listener *l = NULL;

	set_secret(secret);
	assert_int_equal(kedge__ofi_listen(pair_provider(), "127.0.0.1", "0",
					   &opts, &l), 0);
	snprintf(port, 8, "%u", kedge__ofi_listener_port(l));
	return l;
}

static void a_secret_is_asked_for(void **state)
{
	static const char *const wrong[] = { NULL, "another one, and not shorter" };
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	pthread_t thread;
	struct call c;
	char port[8];
	size_t i;

	l = listen_secretly(port);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		set_secret(wrong[i]);
		c = (struct call){ port, 1 };
		assert_int_equal(pthread_create(&thread, NULL, call, &c), 0);
		while (__atomic_load_n(&c.rc, __ATOMIC_RELAXED) == 1)
			assert_int_equal(kedge__ofi_accept(l, 10, &o, &peer),
					 -ETIMEDOUT);
		pthread_join(thread, NULL);
		assert_int_equal(c.rc, -EACCES);
	}
	set_secret(secret);
	still_lets_in(l, port);
	kedge__ofi_listener_close(l);
}

/* Bytes that end the process where libfabric's own "tcp" reads them. */
static void what_strangers_say_is_not_for_libfabric(void **state)
{
	struct transport_peer peer;
	struct ofi_listener *l;
	struct ofi *o = NULL;
	uint8_t text[512];
	char port[8];
	int fd, i;

	l = listen_secretly(port);
	for (i = 0; i < 64; i++) {
		/* Of libfabric's own handshake, and what is none. */
		memset(text, i, sizeof(text));
		text[0] = 1;
		text[1] = (uint8_t)i;
		fd = socket_to(port);
		assert_true(send(fd, text, sizeof(text), MSG_NOSIGNAL) > 0);
		assert_int_equal(kedge__ofi_accept(l, 0, &o, &peer),
				 -ETIMEDOUT);
		/* It hangs up, and has said nothing. */
		while (recv(fd, text, 1, MSG_DONTWAIT) < 0 &&
		       errno == EAGAIN)
			assert_int_equal(kedge__ofi_accept(l, 1, &o, &peer),
					 -ETIMEDOUT);
		close(fd);
	}
	still_lets_in(l, port);
	kedge__ofi_listener_close(l);
}

#define TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_channel_over_tcp_is_turned_away),
		TEST(a_secret_is_asked_for),
		TEST(what_strangers_say_is_not_for_libfabric),
	};
	int rc = pair_missing();

	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
