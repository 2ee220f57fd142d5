// SPDX-License-Identifier: BSD-2-Clause
/* Where listeners are, and ports that are none. */
#include "base/base.h"
#include "core.h"

#include <kedge/connector.h>
#include <kedge/tcp.h>

static char text[KEDGE_ADDRESS_MAX];

static const char *address_of(struct kedge_listener *l)
{
	assert_int_equal(kedge_listener_address(l, text, sizeof(text)), 0);
	return text;
}

static void one_of_this_host_is_at_its_path(void **state)
{
	char path[2][64], longest[108] = "@";
	struct kedge_listener *l;
	int i;

	snprintf(path[0], 64, "/tmp/kedge-listener-%d", (int)getpid());
	snprintf(path[1], 64, "@kedge-listener-%d", (int)getpid());
	for (i = 0; i < 2; i++) {
		assert_int_equal(kedge_listener_open_shm(path[i], NULL, &l), 0);
		assert_string_equal(address_of(l), path[i]);
		kedge_listener_close(l);
	}
	memset(longest + 1, 'x', sizeof(longest) - 2);
	snprintf(longest + 1, 32, "kedge-%d", (int)getpid());
	longest[strlen(longest)] = 'x';
	assert_int_equal(strlen(longest), 107);
	assert_int_equal(kedge_listener_open_shm(longest, NULL, &l), 0);
	assert_string_equal(address_of(l), longest);
	kedge_listener_close(l);
}

/* Connected to by what it says alone. */
static void one_at_a_free_port_says_which(void **state)
{
	static const char *const node[] = { "127.0.0.1", "::1", NULL, "[::]" };
	static const char *const begins[] = { "127.0.0.1:", "[::1]:", "",
					      "[::]:" };
	struct kedge_connector *c;
	struct kedge_listener *l;
	struct kedge_channel *a, *b;
	size_t i;
	char *port;
	int rc;

	for (i = 0; i < ARRAY_SIZE(node); i++) {
		rc = kedge_listener_open_tcp(node[i], "0", NULL, &l);
		/* A host without IPv6. */
		if (i % 2 && rc)
			continue;
		assert_int_equal(rc, 0);
		assert_memory_equal(address_of(l), begins[i],
				    strlen(begins[i]));
		port = strrchr(text, ':');
		*port++ = '\0';
		assert_int_equal(kedge_connector_open_tcp(text, port, NULL,
							  60000, &c), 0);
		assert_int_equal(kedge_listener_accept(l, -1, &a), 0);
		WAIT_FOR((rc = kedge_connector_finish(c, &b)) != -EINPROGRESS);
		assert_int_equal(rc, 0);
		kedge_connector_close(c);
		kedge_channel_close(a);
		kedge_channel_close(b);
		kedge_listener_close(l);
	}
}

static void an_address_needs_room(void **state)
{
	char path[64], small[64] = "untouched";
	struct kedge_listener *l;

	snprintf(path, sizeof(path), "@kedge-listener-%d", (int)getpid());
	assert_int_equal(kedge_listener_open_shm(path, NULL, &l), 0);
	assert_int_equal(kedge_listener_address(l, small, 0), -ENOBUFS);
	assert_int_equal(kedge_listener_address(l, small, strlen(path)),
			 -ENOBUFS);
	assert_string_equal(small, "untouched");
	assert_int_equal(kedge_listener_address(l, small, strlen(path) + 1), 0);
	assert_string_equal(small, path);
	assert_int_equal(kedge_listener_address(l, NULL, 64), -EINVAL);
	assert_int_equal(kedge_listener_address(NULL, small, 64), -EINVAL);
	kedge_listener_close(l);
}

/* getaddrinfo() takes the lowest 16 bits: it was another port. */
static void a_number_that_is_no_port_is_refused(void **state)
{
	static const char *const bad[] = {
		"65536", "99999", ":65536", "-1", "+80", " 80", "-65000",
		"4294967297", "99999999999999999999999999",
	};
	struct kedge_listener *l = NULL;
	struct kedge_channel *ch = NULL;
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		rc = kedge_listener_open_tcp("127.0.0.1", bad[i], NULL, &l);
		assert_int_equal(rc, -EADDRNOTAVAIL);
		assert_non_null(strstr(kedge_strerror(rc), "65535"));
		rc = kedge_channel_open_tcp("127.0.0.1", bad[i], NULL, 5000,
					    &ch);
		assert_int_equal(rc, -EADDRNOTAVAIL);
		assert_non_null(strstr(kedge_strerror(rc), "65535"));
	}
	rc = kedge_channel_open_tcp("127.0.0.1", "0", NULL, 5000, &ch);
	assert_int_equal(rc, -EADDRNOTAVAIL);
	assert_null(l);
	assert_null(ch);
	/* The highest is one. */
	rc = kedge_channel_open_tcp("127.0.0.1", "65535", NULL, 5000, &ch);
	if (!rc)
		kedge_channel_close(ch);
	else
		assert_int_not_equal(rc, -EADDRNOTAVAIL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_of_this_host_is_at_its_path),
		cmocka_unit_test(one_at_a_free_port_says_which),
		cmocka_unit_test(an_address_needs_room),
		cmocka_unit_test(a_number_that_is_no_port_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
