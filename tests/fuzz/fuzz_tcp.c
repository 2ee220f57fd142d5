// SPDX-License-Identifier: BSD-2-Clause
/*
 * A listener's end of a TCP connection whose peer sends anything: the handshake,
 * then frames that are right, nearly right, or any bytes, in pieces of any length,
 * while this side posts, cancels and polls. Each operation completes once, and
 * nothing touches a buffer after that.
 */
#include <sys/socket.h>

#include "user_ops.h"

#include "channel/meet/handshake.h"
#include "channel/tcp/internal.h"

#define BUF_MAX 70000u

static int wire;
static uint8_t out[512];
static size_t out_len;

/* ---- what the peer says ---- */

/* The socket takes it in the pieces that the input says. */
static void say(const void *at, size_t len)
{
	if (len > sizeof(out) - out_len)
		len = sizeof(out) - out_len;
	memcpy(out + out_len, at, len);
	out_len += len;
}

static void say_some(size_t len)
{
	if (len > out_len)
		len = out_len;
	if (len && send(wire, out, len, MSG_DONTWAIT | MSG_NOSIGNAL) !=
			   (ssize_t)len)
		return;
	memmove(out, out + len, out_len - len);
	out_len -= len;
}

static void flip(uint8_t *raw, size_t len)
{
	uint8_t how = take(&in);

	if (how < 8 && len)
		raw[take_number(&in, 2) % len] ^= (uint8_t)(1 << how);
}

static void peer_hello(uint32_t flags)
{
	struct hello h = { .magic = 0x6b65646765746370u,
			   .version = 1,
			   .flags = flags,
			   .role = ROLE_CONNECT,
			   .eager_max = 1024,
			   .unexpected_cnt = 16,
			   .unexpected_bytes = 65536 };

	flip((uint8_t *)&h, sizeof(h));
	say(&h, sizeof(h));
}

static void peer_data(void)
{
	struct tcp_head h = { 1 + take_number(&in, 1), 1 + take(&in) % 8 };
	struct tcp_tail t = { TAIL_WHOLE, h.id };
	uint8_t raw[300] = { 0 };
	size_t len = h.len;

	memcpy(raw, &h, sizeof(h));
	memcpy(raw + sizeof(h) + len, &t, sizeof(t));
	len += sizeof(h) + sizeof(t);
	flip(raw, len);
	say(raw, len);
}

static void peer_packet(const struct kedge_channel *ch)
{
	struct {
		struct tcp_head head;
		struct packet_head p;
		union {
			struct packet_rts rts;
			struct packet_cts cts;
			struct packet_op op;
		};
	} m = { { 0 } };
	size_t len = 0;

	m.p.type = 1 + take(&in) % (PACKET_TYPES - 1);
	m.p.tag = take(&in) % 4;
	m.p.credit_cnt = ch->sent_cnt;
	m.p.credit_bytes = ch->sent_bytes;
	switch (m.p.type) {
	case PACKET_EAGER:
		len = take(&in);
		break;
	case PACKET_RTS:
		m.rts.len = 1 + take_number(&in, 1);
		m.rts.sender = (struct op_name){ take(&in) % 64, 1 };
		len = offsetof(struct packet_rts, desc);
		break;
	case PACKET_CTS:
		m.cts.sender = (struct op_name){ take(&in) % 64, take(&in) % 4 };
		m.cts.receiver = (struct op_name){ take(&in) % 64, 1 };
		m.cts.way = KEDGE_WAY_DIRECT;
		m.cts.desc_len = 16;
		m.cts.desc[0] = 1 + take(&in) % 8;
		m.cts.desc[8] = take(&in);
		m.cts.desc[9] = take(&in);
		len = offsetof(struct packet_cts, desc) + 16;
		break;
	case PACKET_FIN:
	case PACKET_REFUSE:
	case PACKET_ABORT:
	case PACKET_ABORTED:
		m.op.op = (struct op_name){ take(&in) % 64, take(&in) % 4 };
		m.op.from = (struct op_name){ take(&in) % 64, 1 };
		m.op.flags = take(&in) & 1;
		len = sizeof(m.op);
	}
	m.p.len = (uint32_t)len;
	m.head.len = (uint32_t)(sizeof(m.p) + len);
	len = sizeof(m.head) + round_up(m.head.len, 8);
	flip((uint8_t *)&m, len);
	say(&m, len);
}

static void peer_raw(void)
{
	uint8_t raw[64];
	size_t len = take(&in) % sizeof(raw), i;

	for (i = 0; i < len; i++)
		raw[i] = take(&in);
	say(raw, len);
}

/* The peer reads sometimes. */
static void peer_reads(void)
{
	static uint8_t sink[100000];

	while (recv(wire, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
}

/* ---- this side ---- */

static void do_one(struct kedge_channel *ch)
{
	uint8_t what = take(&in), tag;
	size_t len;

	switch (what % 16) {
	case 0:
	case 1:
		len = take_number(&in, 2) % 600;
		tag = take(&in) % 8;
		do_recv(ch, len, tag % 4, tag & 4 ? 0 : UINT64_MAX);
		break;
	case 2:
	case 3:
		len = take_number(&in, 2) % BUF_MAX;
		do_send(ch, len, take(&in) % 8);
		break;
	case 4:
		do_cancel(ch);
		break;
	case 5:
		peer_raw();
		break;
	case 6:
		peer_reads();
		break;
	case 7:
		CHECK(kedge_channel_arm(ch) <= 1);
		break;
	case 8:
		say_some(take(&in));
		break;
	case 9:
	case 10:
		say_some(sizeof(out));
		do_poll(ch);
		break;
	case 11:
	case 12:
		peer_data();
		break;
	default:
		peer_packet(ch);
	}
}

static struct kedge_channel *open_channel(int fd)
{
	static const uint32_t ways[] = { KEDGE_WAY_AUTO, KEDGE_WAY_COPY };
	struct kedge_channel_opts o = { .size = sizeof(o), .eager_max = 1024,
					.unexpected_cnt = 16 }, opts;
	static const struct tcp_secret none;
	struct transport_peer peer;
	struct kedge_channel *ch;
	struct clofork sock;
	struct hand h;
	uint32_t flags;
	int rc = 0;

	o.way = ways[take(&in) % 2];
	CHECK(!kedge__channel_opts(&opts, &o));
	flags = take(&in) < 240 ? 0 : HELLO_MEET;
	CHECK(!hand_begin(&h, fd, ROLE_LISTEN, &none, &opts, flags));
	peer_hello(flags);
	while (!rc && out_len) {
		say_some(1 + take(&in));
		rc = hand_step(&h);
	}
	CHECK(rc == 1 || rc == 0 || rc == -EPROTO || rc == -EACCES);
	if (rc != 1)
		return NULL;
	hand_peer(&h, &peer);
	clofork_init(&sock);
	CHECK(!clofork_keep(&sock, fd));
	CHECK(!tcp_channel(&sock, &opts, &peer, &ch));
	return ch;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct kedge_channel *ch;
	int sv[2];

	in = (struct bytes){ data, len };
	out_len = 0;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv));
	wire = sv[1];
	ch = open_channel(sv[0]);
	if (!ch) {
		close(sv[0]);
		close(sv[1]);
		return 0;
	}
	while (in.left)
		do_one(ch);
	close(wire);
	if (len & 1)
		poll_to_the_end(ch);
	kedge_channel_close(ch);
	ops_end();
	return 0;
}
