// SPDX-License-Identifier: BSD-2-Clause
/* See tcp_wire.h. */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/base.h"
#include "tcp_wire.h"

struct kedge_channel *ch;
int wire;
char *buf, *data;

char byte_at(size_t i)
{
	return (char)(i * 31 + i / 251);
}

/* A socket that takes whatever it is given: it goes here. */
char *stash;
size_t stash_at, stash_end;
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	size_t i, before = stash_end;

	if (!stash)
		return __real_sendmsg(fd, m, flags);
	for (i = 0; i < m->msg_iovlen; i++) {
		memcpy(stash + stash_end, m->msg_iov[i].iov_base,
		       m->msg_iov[i].iov_len);
		stash_end += m->msg_iov[i].iov_len;
	}
	return (ssize_t)(stash_end - before);
}

/* Long ones fail, as where the limit of the address space is near. */
#define LONG_LEN (32u << 10)
bool no_long_malloc;
unsigned int malloc_failed;
void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_malloc(size_t len)
{
	if (!no_long_malloc || len < LONG_LEN)
		return __real_malloc(len);
	malloc_failed++;
	return NULL;
}

/* A socket's answer about its congestion control, if any. */
const char *congestion;
int __real_getsockopt(int fd, int level, int name, void *to, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *to, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *to, socklen_t *len)
{
	if (!congestion || level != IPPROTO_TCP || name != TCP_CONGESTION)
		return __real_getsockopt(fd, level, name, to, len);
	strncpy(to, congestion, *len);
	return 0;
}

int wire_setup(void **state)
{
	const struct transport_peer peer = {
		.eager_max = 8192,
		.unexpected_cnt = 4096,
		.unexpected_bytes = 4u << 20,
	};
	struct kedge_channel_opts opts;
	struct clofork sock;
	size_t i;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	wire = sv[1];
	assert_int_equal(kedge__channel_opts(&opts, NULL), 0);
	assert_int_equal(clofork_begin(), 0);
	clofork_init(&sock);
	assert_int_equal(clofork_end(&sock, sv[0]), 0);
	assert_int_equal(tcp_channel(&sock, &opts, &peer, &ch), 0);
	for (i = 0; i < LEN; i++)
		data[i] = byte_at(i);
	memset(buf, 0, LEN);
	return 0;
}

int wire_teardown(void **state)
{
	if (wire >= 0)
		close(wire);
	kedge_channel_close(ch);
	return 0;
}

/* ---- the peer ---- */

void wire_say(const void *at, size_t len)
{
	assert_int_equal(send(wire, at, len, MSG_NOSIGNAL), (ssize_t)len);
}

void say_head(uint32_t len, uint32_t id)
{
	const struct tcp_head h = { len, id };

	wire_say(&h, sizeof(h));
}

void say_tail(uint32_t whole, uint32_t id)
{
	const struct tcp_tail t = { whole, id };

	wire_say(&t, sizeof(t));
}

void say_packet(uint8_t type, uint64_t tag, const void *body,
		       uint32_t len)
{
	const struct packet_head p = { .type = type, .len = len, .tag = tag };

	say_head((uint32_t)sizeof(p) + len, 0);
	wire_say(&p, sizeof(p));
	if (len)
		wire_say(body, len);
	wire_say("\0\0\0\0\0\0\0", round_up(len, 8) - len);
}

void say_rts(uint64_t len)
{
	const struct packet_rts rts = { .len = len, .sender = { 7, 1 } };

	say_packet(PACKET_RTS, 1, &rts, offsetof(struct packet_rts, desc));
}

void wire_hear(void *to, size_t len)
{
	size_t got = 0;
	ssize_t n;

	while (got < len) {
		/* Bytes that are there already come first. */
		if (stash_at < stash_end) {
			n = (ssize_t)(stash_end - stash_at);
			if ((size_t)n > len - got)
				n = (ssize_t)(len - got);
			memcpy((char *)to + got, stash + stash_at, (size_t)n);
			stash_at += (size_t)n;
			got += (size_t)n;
			continue;
		}
		kedge_channel_poll(ch, NULL, 0);
		if (stash)
			continue;
		n = recv(wire, (char *)to + got, len - got, MSG_DONTWAIT);
		if (n < 0)
			assert_int_equal(errno, EAGAIN);
		else
			assert_true(n > 0);
		got += n > 0 ? (size_t)n : 0;
	}
}

/* The next packet; @body of its length. */
struct packet_head hear_packet(void *body, size_t max)
{
	struct packet_head p;
	struct tcp_head h;
	char pad[8];

	wire_hear(&h, sizeof(h));
	assert_int_equal(h.id, 0);
	wire_hear(&p, sizeof(p));
	assert_int_equal(h.len, sizeof(p) + p.len);
	assert_true(p.len <= max);
	wire_hear(body, p.len);
	wire_hear(pad, round_up(p.len, 8) - p.len);
	return p;
}

/* The name of the flow that the receive of @len bytes is answered with. */
uint32_t wire_agreed(size_t len)
{
	struct packet_cts cts;
	struct packet_head p;
	uint32_t id;

	say_rts(len);
	p = hear_packet(&cts, sizeof(cts));
	assert_int_equal(p.type, PACKET_CTS);
	memcpy(&id, cts.desc, sizeof(id));
	return id;
}

struct kedge_completion wait_one(void)
{
	struct kedge_completion c;
	ssize_t n;

	do {
		n = kedge_channel_poll(ch, &c, 1);
		assert_true(n >= 0);
	} while (!n);
	return c;
}

/* As many polls as it takes to see what has been said. */
int wire_ends(void)
{
	uint64_t end = now_ns() + HANG_S * 1000000000ull;
	struct kedge_completion c[8];
	ssize_t n = 0;

	while (n >= 0 && now_ns() < end)
		n = kedge_channel_poll(ch, c, 8);
	return (int)n;
}

uint64_t wire_receive(size_t len)
{
	uint64_t op;

	assert_int_equal(kedge_channel_recv(ch, buf, len, 1, UINT64_MAX, 5,
					    &op), 0);
	return op;
}
