// SPDX-License-Identifier: BSD-2-Clause
/*
 * Packets of a peer: what passes is as long as it says, and each field is what
 * the protocol allows; the bytes are the peer's own, and nothing beside them is
 * read.
 */
#include <stdbool.h>

#include "feed.h"

#include "channel/protocol/packet.h"

static void check_desc(const struct packet *p, size_t fixed, uint32_t desc_len,
		       const void *parsed, const uint8_t *body)
{
	CHECK(desc_len <= DESC_MAX && p->head.len == fixed + desc_len);
	CHECK(!memcmp(parsed, body, p->head.len));
}

static void check(const struct packet *p, const uint8_t *body)
{
	switch (p->head.type) {
	case PACKET_RTS:
		check_desc(p, offsetof(struct packet_rts, desc),
			   p->rts.desc_len, &p->rts, body);
		CHECK(p->rts.len && p->rts.len <= INT64_MAX);
		return;
	case PACKET_CTS:
		check_desc(p, offsetof(struct packet_cts, desc),
			   p->cts.desc_len, &p->cts, body);
		CHECK(p->cts.way >= KEDGE_WAY_EAGER &&
		      p->cts.way < KEDGE_WAY_COUNT);
		return;
	case PACKET_DATA:
		CHECK(p->head.len > sizeof(p->data.receiver));
		CHECK(!memcmp(&p->data.receiver, body,
			      sizeof(p->data.receiver)));
		CHECK(p->data.bytes == body + sizeof(p->data.receiver));
		return;
	case PACKET_FIN:
	case PACKET_REFUSE:
	case PACKET_ABORT:
	case PACKET_ABORTED:
		CHECK(p->head.len == sizeof(p->op));
		CHECK(p->op.status <= 0 && p->op.status >= -4095);
		CHECK(!(p->op.flags & ~PACKET_OP_TO_SENDER));
		CHECK(!memcmp(&p->op, body, sizeof(p->op)));
		return;
	}
	CHECK(p->head.type == PACKET_CREDIT || p->head.type == PACKET_BYE);
	CHECK(!p->head.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct packet p;
	uint8_t *raw = exact_copy(data, len);

	/* A length that fits is rare: half of the inputs get one. */
	if (len >= sizeof(p.head) && data[1] & 1) {
		const uint32_t fits = (uint32_t)(len - sizeof(p.head));

		memset(raw + 1, 0, 3);
		memcpy(raw + offsetof(struct packet_head, len), &fits,
		       sizeof(fits));
	}
	memset(&p, 0xee, sizeof(p));
	if (!packet_parse_head(raw, len, &p.head)) {
		CHECK(p.head.len == len - sizeof(p.head));
		if (!packet_parse_body(raw, &p))
			check(&p, raw + sizeof(p.head));
	}
	free(raw);
	return 0;
}
