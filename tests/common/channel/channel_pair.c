// SPDX-License-Identifier: BSD-2-Clause
#include "channel_pair.h"

#include <kedge/tcp.h>

#include <pthread.h>
#include <sys/socket.h>

#include "channel/meet/listen.h"
#include "channel/tcp/internal.h"

struct end a, b;

struct opening {
	int fd;
	const struct kedge_channel_opts *opts;
	struct tcp_listener *l;
	struct kedge_channel *ch;
	int rc;
};

static void *open_other(void *arg)
{
	struct opening *o = arg;

	o->rc = kedge_channel_open_fd(o->fd, o->opts, 60000, &o->ch);
	return NULL;
}

bool over_tcp(void)
{
	const char *over = getenv("TEST_CHANNEL_OVER");

	return over && !strcmp(over, "tcp");
}

static void *accept_other(void *arg)
{
	struct opening *o = arg;
	struct kedge_channel_opts opts;
	struct transport_peer peer;
	struct tcp_listener *l = o->l;
	struct clofork sock;

	o->rc = kedge__channel_opts(&opts, o->opts);
	if (!o->rc)
		o->rc = tcp_listener_accept(l, 60000, &sock, &peer);
	if (!o->rc)
		o->rc = tcp_channel(&sock, &opts, &peer, &o->ch);
	return NULL;
}

static void open_pair_tcp(const struct kedge_channel_opts *oa,
			  const struct kedge_channel_opts *ob)
{
	struct opening other = { .opts = ob };
	struct kedge_channel_opts opts;
	pthread_t thread;
	char port[8];

	assert_int_equal(kedge__channel_opts(&opts, ob), 0);
	assert_int_equal(tcp_listen("127.0.0.1", "0", &opts, 0, &other.l), 0);
	snprintf(port, sizeof(port), ":%u", tcp_listener_port(other.l));
	assert_int_equal(pthread_create(&thread, NULL, accept_other, &other),
			 0);
	assert_int_equal(kedge_channel_open_tcp("127.0.0.1", port, oa, 60000,
						&a.ch), 0);
	pthread_join(thread, NULL);
	assert_int_equal(other.rc, 0);
	b.ch = other.ch;
	tcp_listener_close(other.l);
}

void open_pair(const struct kedge_channel_opts *oa,
		      const struct kedge_channel_opts *ob)
{
	struct opening other = { .opts = ob };
	pthread_t thread;
	int sv[2];

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	if (over_tcp()) {
		open_pair_tcp(oa, ob);
		return;
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	other.fd = sv[1];
	assert_int_equal(pthread_create(&thread, NULL, open_other, &other), 0);
	assert_int_equal(kedge_channel_open_fd(sv[0], oa, 60000, &a.ch), 0);
	pthread_join(thread, NULL);
	assert_int_equal(other.rc, 0);
	b.ch = other.ch;
}

void close_pair(void)
{
	kedge_channel_close(a.ch);
	kedge_channel_close(b.ch);
}

ssize_t turn(struct end *e)
{
	ssize_t n = kedge_channel_poll(e->ch, e->done + e->cnt,
				       ARRAY_SIZE(e->done) - e->cnt);

	if (n > 0)
		e->cnt += (size_t)n;
	return n;
}

void turns(size_t on_a, size_t on_b)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	unsigned int n;

	for (n = 1; a.cnt < on_a || b.cnt < on_b; n++) {
		turn(&a);
		turn(&b);
		if (n % 4096 == 0 && now_ns() > end)
			break;
	}
	assert_int_equal(a.cnt, on_a);
	assert_int_equal(b.cnt, on_b);
}

void fill(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (char)(i * 7 + i / 4096 * 13 + seed);
}

bool is_filled(const char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != (char)(i * 7 + i / 4096 * 13 + seed))
			return false;
	return true;
}

void post(struct end *e, void *buf, size_t len, uint64_t tag,
		 uint64_t mask, uint64_t user)
{
	assert_int_equal(kedge_channel_recv(e->ch, buf, len, tag, mask, user,
					    NULL), 0);
}

int put(struct end *e, const void *buf, size_t len, uint64_t tag)
{
	int rc = kedge_channel_send(e->ch, buf, len, tag, 77, NULL);

	assert_in_range(rc, 0, 1);
	return rc;
}

void many_turns(void)
{
	int i;

	for (i = 0; i < 1000; i++) {
		turn(&a);
		turn(&b);
	}
}
