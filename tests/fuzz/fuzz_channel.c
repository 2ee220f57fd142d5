// SPDX-License-Identifier: BSD-2-Clause
/*
 * A whole channel over a fake transport. The input says what this side
 * posts, cancels and polls, what the peer sends (any bytes, or packets that are
 * nearly right) and what the transport has room for and does. Each operation
 * completes once, nothing touches a buffer after that, and every bulk that was
 * opened is ended.
 */
#include <sys/eventfd.h>

#include "user_ops.h"

#define BUF_MAX	 40000u
#define QUEUE	 64u
#define EAGER	 40000u /* some arrive bit by bit */
#define NAMES	 96u /* of operations that may be meant */

static unsigned int bulks;

/* ---- the transport ---- */

static struct {
	uint64_t out[PACKET_MAX / 8 + 1];
	struct {
		uint8_t *raw;
		size_t len;
	} queue[QUEUE];
	unsigned int first, last;
	unsigned int room; /* packets */
	size_t begun;	   /* length of the packet that begin() showed, or 0 */
	size_t there;	   /* of the packet that next() gives */
	int check;
} wire;

static void *wire_reserve(void *ctx, size_t len)
{
	CHECK(len <= PACKET_MAX);
	return wire.room ? wire.out : NULL;
}

static void wire_begin(void *ctx, void *packet, size_t len, size_t have)
{
	CHECK(packet == wire.out && wire.room && !wire.begun);
	CHECK(have >= sizeof(struct packet_head) && have < len);
	wire.begun = len;
}

static void wire_more(void *ctx, size_t have)
{
	CHECK(wire.begun && have < wire.begun);
}

static void wire_commit(void *ctx, void *packet, size_t len)
{
	struct packet p;

	CHECK(!wire.begun || wire.begun == len);
	wire.begun = 0;
	CHECK(packet == wire.out && wire.room);
	wire.room--;
	/* A packet that we send is one that we would take. */
	CHECK(!packet_parse_head(packet, len, &p.head));
	if (p.head.type != PACKET_EAGER)
		CHECK(!packet_parse_body(packet, &p));
}

static const void *wire_next(void *ctx, size_t *len)
{
	if (wire.first == wire.last)
		return NULL;
	*len = wire.queue[wire.first % QUEUE].len;
	return wire.queue[wire.first % QUEUE].raw;
}

static size_t wire_arrived(void *ctx, const void *packet)
{
	size_t len = wire.queue[wire.first % QUEUE].len;

	CHECK(packet == wire.queue[wire.first % QUEUE].raw);
	wire.there += in.left ? take(&in) * 16u : len;
	if (wire.there < sizeof(struct packet_head))
		wire.there = sizeof(struct packet_head);
	return wire.there < len ? wire.there : len;
}

static void wire_release(void *ctx, const void *packet)
{
	wire.there = 0;
	CHECK(packet == wire.queue[wire.first % QUEUE].raw);
	free(wire.queue[wire.first++ % QUEUE].raw);
}

static int wire_check(void *ctx)
{
	return wire.check;
}

static int wire_fd(void *ctx)
{
	return *(int *)ctx;
}

static int wire_arm(void *ctx)
{
	return wire.first != wire.last;
}

static uint32_t wire_ready(void *ctx, const void *buf, size_t len, const void *rts,
			   size_t rts_len)
{
	return take(&in) & (READY_DIRECT | READY_HEAP | READY_REGISTER |
			    READY_ANYWHERE);
}

static void opened(struct bulk *b)
{
	b->priv[0] = 1;
	bulks++;
}

static int wire_offer(void *ctx, struct bulk *b, void *desc, size_t *len)
{
	if (take(&in) == 255)
		return -EFAULT;
	*len = take(&in) % (DESC_MAX + 1);
	memset(desc, 3, *len);
	opened(b);
	return 0;
}

static int wire_accept(void *ctx, struct bulk *b, const void *rts,
		       size_t rts_len, void *cts, size_t *cts_len)
{
	static const int rcs[] = { -EOPNOTSUPP, -EAGAIN, -EPROTO, -ENOMEM };
	uint8_t how = take(&in);

	CHECK(rts_len <= DESC_MAX && b->flags & BULK_RECV);
	if (how >= 252 && !(how == 252 && b->flags & BULK_STREAM))
		return rcs[how - 252];
	*cts_len = how;
	memset(cts, 4, *cts_len);
	opened(b);
	return 0;
}

static int wire_start(void *ctx, struct bulk *b, const void *cts,
		      size_t cts_len)
{
	uint8_t how = take(&in);

	CHECK(b->priv[0] == 1 && cts_len <= DESC_MAX);
	return how == 255 ? -EPROTO : how == 254 ? -ENOMEM : 0;
}

/* A receiver writes what it has there. */
static int wire_step(void *ctx, struct bulk *b)
{
	static const int rcs[] = { 0, -EAGAIN, 1, 1 };
	uint8_t how = take(&in);

	CHECK(b->priv[0] == 1);
	if (b->flags & BULK_RECV)
		memset((void *)(uintptr_t)b->piece[0].addr, how, b->len);
	if (how == 255)
		return -EFAULT;
	/* A step that only ever moves would never end the poll. */
	return in.left ? rcs[how & 3] : 1;
}

static int wire_stop(void *ctx, struct bulk *b)
{
	CHECK(b->priv[0] == 1);
	return take(&in) % 4 ? 0 : in.left ? -EBUSY : 0;
}

static void wire_end(void *ctx, struct bulk *b)
{
	CHECK(b->priv[0] == 1 && bulks);
	b->priv[0] = 0;
	bulks--;
}

static const char *wire_explain(void *ctx)
{
	return "";
}

static void wire_close(void *ctx)
{
	CHECK(!bulks);
	while (wire.first != wire.last)
		free(wire.queue[wire.first++ % QUEUE].raw);
}

static const struct transport_ops wire_ops = {
	.name = "fake",
	.ways = 1u << KEDGE_WAY_DIRECT | 1u << KEDGE_WAY_COPY |
		1u << KEDGE_WAY_REGISTER,
	.reserve = wire_reserve,
	.commit = wire_commit,
	.begin = wire_begin,
	.more = wire_more,
	.next = wire_next,
	.arrived = wire_arrived,
	.release = wire_release,
	.check = wire_check,
	.fd = wire_fd,
	.arm = wire_arm,
	.ready = wire_ready,
	.offer = wire_offer,
	.accept = wire_accept,
	.start = wire_start,
	.step = wire_step,
	.stop = wire_stop,
	.end = wire_end,
	.explain = wire_explain,
	.close = wire_close,
};

/* ---- the peer ---- */

static void queue(const void *raw, size_t len)
{
	unsigned int at = wire.last % QUEUE;

	if (wire.last - wire.first == QUEUE)
		return;
	/* Exactly as long as it is, for the sanitizer. */
	wire.queue[at].raw = malloc(len ? len : 1);
	CHECK(wire.queue[at].raw);
	if (len)
		memcpy(wire.queue[at].raw, raw, len);
	wire.queue[at].len = len;
	wire.last++;
}

static void peer_raw(void)
{
	uint8_t raw[300];
	size_t len = take(&in), i;

	for (i = 0; i < len; i++)
		raw[i] = take(&in);
	queue(raw, len);
}

static struct op_name name(void)
{
	struct op_name n = { take(&in) % NAMES, take(&in) % 16 };

	return n;
}

/* One that parses. Credit follows what was sent, more or less. */
static void peer_packet(struct kedge_channel *ch, uint8_t type)
{
	struct {
		struct packet_head head;
		union {
			struct packet_rts rts;
			struct packet_cts cts;
			struct packet_op op;
			struct op_name receiver;
			uint8_t data[EAGER + 64];
		};
	} p = { { 0 } };
	size_t len = 0;

	p.head.type = type;
	p.head.tag = take(&in) % 8;
	p.head.credit_cnt = ch->sent_cnt - take(&in) % 4;
	/* Nothing waits there, or there is no room for more data. */
	p.head.credit_bytes =
		ch->sent_bytes - (take(&in) & 1 ? ch->peer.unexpected_bytes : 0);
	switch (type) {
	case PACKET_EAGER:
		len = take_number(&in, 2) % sizeof(p.data);
		break;
	case PACKET_RTS:
		p.rts.len = 1 + take_number(&in, 2);
		p.rts.sender = name();
		p.rts.desc_len = take(&in);
		len = offsetof(struct packet_rts, desc) + p.rts.desc_len;
		break;
	case PACKET_CTS:
		p.cts.sender = name();
		p.cts.receiver = name();
		p.cts.way = 1 + take(&in) % 5;
		p.cts.desc_len = take(&in);
		len = offsetof(struct packet_cts, desc) + p.cts.desc_len;
		break;
	case PACKET_DATA:
		p.receiver = name();
		len = sizeof(p.receiver) + 1 + take_number(&in, 2) % EAGER;
		break;
	case PACKET_FIN:
	case PACKET_REFUSE:
	case PACKET_ABORT:
	case PACKET_ABORTED:
		p.op.op = name();
		p.op.from = name();
		p.op.status = -(int32_t)take(&in);
		p.op.flags = take(&in) & PACKET_OP_TO_SENDER;
		len = sizeof(p.op);
	}
	p.head.len = (uint32_t)len;
	queue(&p, sizeof(p.head) + len);
}

/* ---- this side ---- */

static void do_probe(struct kedge_channel *ch)
{
	struct kedge_envelope e = { .size = sizeof(e) };

	CHECK(kedge_channel_probe(ch, take(&in) % 8, take(&in), &e) <= 1);
}

static void do_one(struct kedge_channel *ch)
{
	uint8_t what = take(&in), tag;
	size_t len;

	switch (what % 16) {
	case 0:
	case 1:
		len = take_number(&in, 2) % BUF_MAX;
		tag = take(&in);
		do_recv(ch, len, tag % 8, tag & 8 ? 0 : tag & 16 ? 1 : UINT64_MAX);
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
		wire.room = take(&in);
		break;
	case 7:
		CHECK(kedge_channel_arm(ch) <= 1);
		do_probe(ch);
		break;
	case 8:
	case 9:
	case 10:
		do_poll(ch);
		break;
	default:
		peer_packet(ch, 1 + take(&in) % (PACKET_TYPES - 1));
	}
}

/* The peer dies: everything ends. */
static void all_ends(struct kedge_channel *ch)
{
	ssize_t n;

	wire.check = -ECONNRESET;
	n = poll_to_the_end(ch);
	CHECK(n == -ECONNRESET || n == -EPROTO || n == -ENOMEM);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static int fd = -1;
	struct kedge_channel_opts o = { .size = sizeof(o) }, opts;
	struct transport_peer peer = { .pid = 1,
				       .eager_max = EAGER,
				       .unexpected_cnt = 8,
				       .unexpected_bytes = 2 * EAGER };
	static const uint32_t ways[] = { KEDGE_WAY_AUTO, KEDGE_WAY_DIRECT,
					 KEDGE_WAY_COPY, KEDGE_WAY_REGISTER };
	struct kedge_channel *ch;

	if (fd < 0)
		fd = eventfd(0, 0);
	in = (struct bytes){ data, len };
	memset(&wire, 0, sizeof(wire));
	wire.room = 16;
	o.way = ways[take(&in) % 4];
	o.unexpected_cnt = 16;
	CHECK(!kedge__channel_opts(&opts, &o));
	CHECK(!kedge__channel_open(&wire_ops, &fd, &opts, &peer, &ch));
	while (in.left)
		do_one(ch);
	if (len & 1)
		all_ends(ch);
	kedge_channel_close(ch);
	CHECK(!bulks);
	ops_end();
	return 0;
}
