// SPDX-License-Identifier: BSD-2-Clause
/*
 * The parser of what the peer sends. It trusts neither lengths nor that what was
 * read once is still there.
 */
#include "channel/protocol/packet.h"

static int refuse(const char *what)
{
	return kedge_reason(-EPROTO, "the peer sent a bad message (%s): it is no "
			    "kedge of this version, or broken", what);
}

/* The fixed part and as many bytes of descriptor as it names. */
static int copy_desc(void *dst, size_t fixed, const uint8_t *src, size_t len,
		     const uint32_t *desc_len)
{
	if (len < fixed || len > fixed + DESC_MAX)
		return refuse("length of a descriptor");
	memcpy(dst, src, len);
	if (*desc_len != len - fixed)
		return refuse("descriptor's length");
	return 0;
}

static int parse_rts(const uint8_t *body, size_t len, struct packet *p)
{
	int rc = copy_desc(&p->rts, offsetof(struct packet_rts, desc), body,
			   len, &p->rts.desc_len);

	if (rc)
		return rc;
	if (!p->rts.len || p->rts.len > INT64_MAX)
		return refuse("length of a message");
	return 0;
}

static int parse_cts(const uint8_t *body, size_t len, struct packet *p)
{
	int rc = copy_desc(&p->cts, offsetof(struct packet_cts, desc), body,
			   len, &p->cts.desc_len);

	if (rc)
		return rc;
	if (p->cts.way < KEDGE_WAY_EAGER || p->cts.way >= KEDGE_WAY_COUNT)
		return refuse("way");
	return 0;
}

static int parse_data(const uint8_t *body, size_t len, struct packet *p)
{
	if (len <= sizeof(p->data.receiver))
		return refuse("length of a message");
	memcpy(&p->data.receiver, body, sizeof(p->data.receiver));
	p->data.bytes = body + sizeof(p->data.receiver);
	return 0;
}

static int parse_op(const uint8_t *body, size_t len, struct packet *p)
{
	if (len != sizeof(p->op))
		return refuse("length of a control message");
	memcpy(&p->op, body, sizeof(p->op));
	if (p->op.status > 0 || p->op.status < -4095)
		return refuse("status");
	if (p->op.flags & ~PACKET_OP_TO_SENDER)
		return refuse("flags");
	return 0;
}

int packet_parse_body(const void *raw, struct packet *p)
{
	const uint8_t *body = (const uint8_t *)raw + sizeof(p->head);
	size_t len = p->head.len;

	switch (p->head.type) {
	case PACKET_RTS:
		return parse_rts(body, len, p);
	case PACKET_CTS:
		return parse_cts(body, len, p);
	case PACKET_FIN:
	case PACKET_REFUSE:
	case PACKET_ABORT:
	case PACKET_ABORTED:
		return parse_op(body, len, p);
	case PACKET_CREDIT:
	case PACKET_BYE:
		return len ? refuse("length") : 0;
	case PACKET_DATA:
		return parse_data(body, len, p);
	case PACKET_EAGER:
		return refuse("length of a message");
	}
	return refuse("type");
}

int packet_refused(const char *what)
{
	return refuse(what);
}
