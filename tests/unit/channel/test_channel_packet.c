// SPDX-License-Identifier: BSD-2-Clause
/* Packets that a peer may not send: each as it should be, then with one thing wrong. */
#include "core.h"

#include "channel/protocol/packet.h"

static union {
	uint8_t bytes[sizeof(struct packet)];
	struct packet p;
	struct {
		struct packet_head head;
		struct op_name receiver;
		char data[8];
	} data;
} raw;

/* As the channel reads it. */
static int parse(size_t len)
{
	struct packet p;
	int rc = packet_parse_head(&raw, len, &p.head);

	return rc ? rc : packet_parse_body(&raw, &p);
}

static size_t begin(uint8_t type, size_t len)
{
	memset(&raw, 0, sizeof(raw));
	raw.p.head.type = type;
	raw.p.head.len = (uint32_t)len;
	return sizeof(raw.p.head) + len;
}

static void a_head_that_is_wrong_is_eproto(void **state)
{
	size_t len = begin(PACKET_CREDIT, 0), i;

	assert_int_equal(parse(len), 0);
	for (i = 0; i < len; i++)
		assert_int_equal(parse(i), -EPROTO);
	raw.p.head.len = 1;
	assert_int_equal(parse(len), -EPROTO);
	for (i = 0; i < sizeof(raw.p.head.zero); i++) {
		begin(PACKET_CREDIT, 0);
		raw.p.head.zero[i] = 1;
		assert_int_equal(parse(len), -EPROTO);
	}
	begin(0, 0);
	assert_int_equal(parse(len), -EPROTO);
	begin(PACKET_TYPES, 0);
	assert_int_equal(parse(len), -EPROTO);
	/* A short message is taken before, if it may be. */
	begin(PACKET_EAGER, 0);
	assert_int_equal(parse(len), -EPROTO);
	assert_int_equal(parse(begin(PACKET_CREDIT, 1)), -EPROTO);
	assert_int_equal(parse(begin(PACKET_BYE, 1)), -EPROTO);
}

static size_t rts(uint32_t desc_len)
{
	size_t len = begin(PACKET_RTS, offsetof(struct packet_rts, desc) +
				       desc_len);

	raw.p.rts.len = 1;
	raw.p.rts.desc_len = desc_len;
	return len;
}

static void an_rts_that_is_wrong_is_eproto(void **state)
{
	size_t len;

	assert_int_equal(parse(rts(0)), 0);
	assert_int_equal(parse(rts(DESC_MAX)), 0);
	assert_int_equal(parse(rts(DESC_MAX + 1)), -EPROTO);
	len = rts(8);
	raw.p.rts.desc_len = 7;
	assert_int_equal(parse(len), -EPROTO);
	raw.p.rts.desc_len = 9;
	assert_int_equal(parse(len), -EPROTO);
	len = rts(8);
	raw.p.rts.len = 0;
	assert_int_equal(parse(len), -EPROTO);
	raw.p.rts.len = (uint64_t)INT64_MAX + 1;
	assert_int_equal(parse(len), -EPROTO);
	rts(0);
	raw.p.head.len--;
	assert_int_equal(parse(sizeof(raw.p.head) + raw.p.head.len), -EPROTO);
}

static size_t cts(uint32_t way)
{
	size_t len = begin(PACKET_CTS, offsetof(struct packet_cts, desc));

	raw.p.cts.way = way;
	return len;
}

static void a_cts_of_an_unknown_way_is_eproto(void **state)
{
	assert_int_equal(parse(cts(KEDGE_WAY_EAGER)), 0);
	assert_int_equal(parse(cts(KEDGE_WAY_COUNT - 1)), 0);
	assert_int_equal(parse(cts(KEDGE_WAY_AUTO)), -EPROTO);
	assert_int_equal(parse(cts(KEDGE_WAY_COUNT)), -EPROTO);
}

static size_t op(uint8_t type, int32_t status, uint32_t flags)
{
	size_t len = begin(type, sizeof(struct packet_op));

	raw.p.op.status = status;
	raw.p.op.flags = flags;
	return len;
}

static void an_end_that_is_wrong_is_eproto(void **state)
{
	static const uint8_t types[] = { PACKET_FIN, PACKET_REFUSE, PACKET_ABORT,
					 PACKET_ABORTED };
	size_t i, len;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		assert_int_equal(parse(op(types[i], 0, 0)), 0);
		assert_int_equal(parse(op(types[i], -4095, 1)), 0);
		assert_int_equal(parse(op(types[i], -4096, 0)), -EPROTO);
		assert_int_equal(parse(op(types[i], 1, 0)), -EPROTO);
		assert_int_equal(parse(op(types[i], 0, 2)), -EPROTO);
		len = op(types[i], 0, 0);
		raw.p.head.len--;
		assert_int_equal(parse(len - 1), -EPROTO);
		raw.p.head.len += 2;
		assert_int_equal(parse(len + 1), -EPROTO);
	}
}

static void messages_that_were_asked_for(void **state)
{
	size_t i;

	assert_int_equal(parse(begin(PACKET_DATA, sizeof(struct op_name) + 1)),
			 0);
	for (i = 0; i <= sizeof(struct op_name); i++)
		assert_int_equal(parse(begin(PACKET_DATA, i)), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_that_is_wrong_is_eproto),
		cmocka_unit_test(an_rts_that_is_wrong_is_eproto),
		cmocka_unit_test(a_cts_of_an_unknown_way_is_eproto),
		cmocka_unit_test(an_end_that_is_wrong_is_eproto),
		cmocka_unit_test(messages_that_were_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
