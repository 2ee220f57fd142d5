// SPDX-License-Identifier: BSD-2-Clause
/* Packets of control, each in one place: what they carry, and the credit of a sender. */
#include "channel/short.h"

int send_control(struct kedge_channel *ch, uint8_t type, const void *body,
		 size_t len)
{
	struct packet_head *h = ch->t->reserve(ch->ctx, sizeof(*h) + len);

	if (!h)
		return -EAGAIN;
	head_fill(ch, h, type, len, 0);
	if (len)
		memcpy(h + 1, body, len);
	ch->t->commit(ch->ctx, h, sizeof(*h) + len);
	return 0;
}

int send_op(struct kedge_channel *ch, uint8_t type, const struct op *op,
	    int status)
{
	struct packet_op body = {
		.op = op->peer,
		.from = op_name(op),
		.status = status,
		.flags = op->is_recv ? PACKET_OP_TO_SENDER : 0,
	};

	return send_control(ch, type, &body, sizeof(body));
}

int send_data(struct kedge_channel *ch, const struct op *op)
{
	size_t len = sizeof(op->peer) + op->len;
	int rc = access_check(&ch->access, op->buf, op->len, false);
	struct packet_head *h;

	if (rc)
		return rc;
	h = ch->t->reserve(ch->ctx, sizeof(*h) + len);
	if (!h)
		return -EAGAIN;
	head_fill(ch, h, PACKET_DATA, len, 0);
	memcpy(h + 1, &op->peer, sizeof(op->peer));
	if (op->len) /* else it may be NULL */
		copy_bytes((char *)(h + 1) + sizeof(op->peer), op->buf, op->len);
	ch->t->commit(ch->ctx, h, sizeof(*h) + len);
	return 0;
}

/* A peer that waits for credit is told by a packet of its own. */
void send_credit(struct kedge_channel *ch)
{
	if (ch->advertised_cnt != ch->matched_cnt && credit_due(ch))
		send_control(ch, PACKET_CREDIT, NULL, 0);
}

void matched(struct kedge_channel *ch, uint64_t eager_bytes)
{
	ch->matched_cnt++;
	ch->matched_bytes += (uint32_t)eager_bytes;
	send_credit(ch);
}
