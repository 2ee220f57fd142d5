// SPDX-License-Identifier: BSD-2-Clause
/*
 * Where endpoints without connections meet: by the handshake of a channel over TCP,
 * which strangers do not get behind.
 */
#include <kedge/ofi.h>
#include <kedge/tcp.h>

#include "ofi_pair.h"

/* A channel over TCP knocks where endpoints meet. */
static int call_plainly(const char *port)
{
	struct kedge_channel *ch = NULL;

	return kedge_channel_open_tcp("127.0.0.1", port, NULL, 5000, &ch);
}

/* Nobody is let in meanwhile. */
static void is_turned_away(struct ofi_listener *l, const char *port,
			   int (*caller)(const char *port), int rc)
{
	struct transport_peer peer;
	struct ofi *o = NULL;
	struct call c;

	call_begin(&c, port, caller);
	while (!call_is_over(&c))
		assert_int_equal(kedge__ofi_accept(l, 10, &o, &peer),
				 -ETIMEDOUT);
	assert_int_equal(call_end(&c), rc);
}

static void a_channel_over_tcp_is_turned_away(void **state)
{
	struct ofi_listener *l;
	char port[8];

	l = pair_listen(port);
	is_turned_away(l, port, call_plainly, -EPROTO);
	still_lets_in(l, port);
	kedge__ofi_listener_close(l);
}

/* ---- with a secret ---- */

static const char secret[] = "as long as secrets have to be";

static void set_secret(const char *text)
{
	ofi_opts.secret = text;
	ofi_opts.secret_len = text ? strlen(text) : 0;
}

static void a_secret_is_asked_for(void **state)
{
	static const char *const wrong[] = { NULL, "another one, and not shorter" };
	struct ofi_listener *l;
	char port[8];
	size_t i;

	set_secret(secret);
	l = pair_listen(port);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		set_secret(wrong[i]);
		is_turned_away(l, port, NULL, -EACCES);
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

	set_secret(secret);
	l = pair_listen(port);
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

#define TEST(f) cmocka_unit_test_setup(f, ofi_defaults)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_channel_over_tcp_is_turned_away),
		TEST(a_secret_is_asked_for),
		TEST(what_strangers_say_is_not_for_libfabric),
	};
	int rc = ofi_missing();

	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
