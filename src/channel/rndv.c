// SPDX-License-Identifier: BSD-2-Clause
/*
 * The rendezvous after the RTS: the receiver says where the data may land
 * (CTS), it lands, the sender says so (FIN). What comes for an operation that
 * is no more is dropped: it was cancelled, and the answer to that is under way.
 */
#include "channel/internal.h"

static bool step_refuse(struct kedge_channel *ch, struct op *op)
{
	if (send_op(ch, PACKET_REFUSE, op, op->status))
		return false;
	op_done(ch, op, op->status);
	return true;
}

static void refuse(struct kedge_channel *ch, struct op *op)
{
	op_move(ch, op, &ch->active, OP_REFUSE);
	/* The caller does not wait until there is room to say it. */
	op_report(ch, op, op->status);
	step_refuse(ch, op);
}

static void send_cts(struct kedge_channel *ch, struct op *op)
{
	struct packet_cts cts = {
		.sender = op->peer,
		.receiver = op_name(op),
		.way = op->way,
		.desc_len = op->desc_len,
	};
	size_t len = offsetof(struct packet_cts, desc) + op->desc_len;

	memcpy(cts.desc, op->desc, op->desc_len);
	if (send_control(ch, PACKET_CTS, &cts, len)) {
		/* It keeps its place: who goes through the list would come to
		 * it again and again. */
		if (op->state != OP_CTS)
			op_move(ch, op, &ch->active, OP_CTS);
		return;
	}
	ch->st.cts_ns += clock_ns() - op->since;
	ch->st.cts_cnt++;
	op_move(ch, op, &ch->active, OP_LAND);
}

/* With the RTS's descriptor in op->desc. -EAGAIN: other messages have all there
 * is to land with, until they have landed. */
static bool step_matched(struct kedge_channel *ch, struct op *op)
{
	uint8_t rts[DESC_MAX];
	int rc = -EMSGSIZE;

	if (op->msg_len <= op->len) {
		memcpy(rts, op->desc, op->desc_len);
		rc = way_accept(ch, op, rts, op->desc_len);
	}
	if (rc == -EAGAIN)
		return false;
	op->status = rc;
	if (rc)
		refuse(ch, op);
	else
		send_cts(ch, op);
	return true;
}

void rndv_matched(struct kedge_channel *ch, struct op *op, uint64_t len,
		  struct op_name sender, const void *desc, size_t desc_len)
{
	op->peer = sender;
	op->msg_len = len;
	op->desc_len = (uint32_t)desc_len;
	memcpy(op->desc, desc, desc_len);
	op_move(ch, op, &ch->active, OP_MATCHED);
	step_matched(ch, op);
}

/* An operation that the peer names, if it is one of those it may mean. */
static struct op *named(struct kedge_channel *ch, struct op_name name,
			bool is_recv)
{
	struct op *op = op_find(ch, name);

	return op && op->is_recv == is_recv ? op : NULL;
}

int rndv_cts(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = named(ch, p->cts.sender, false);
	int rc;

	if (!op || op->state != OP_RTS)
		return 0;
	op->peer = p->cts.receiver;
	op->way = p->cts.way;
	rc = ch->t->start(ch->ctx, &op->bulk, p->cts.desc, p->cts.desc_len);
	if (rc == -EPROTO)
		return rc;
	if (rc)
		give_up(ch, op, rc);
	else
		op_move(ch, op, &ch->active, OP_PUT);
	return 0;
}

int rndv_fin(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = named(ch, p->op.op, true);

	if (op && op->state == OP_LAND)
		op->bulk.flags |= BULK_FIN;
	return 0;
}

int rndv_refuse(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = named(ch, p->op.op, false);

	if (op && op->state == OP_RTS) {
		bulk_close(ch, op);
		op_done(ch, op, p->op.status == -EMSGSIZE ? 0 : p->op.status);
	}
	return 0;
}

static bool step_fin(struct kedge_channel *ch, struct op *op)
{
	if (send_op(ch, PACKET_FIN, op, 0))
		return false;
	op_done(ch, op, 0);
	return true;
}

static bool step_put(struct kedge_channel *ch, struct op *op)
{
	int rc = ch->t->step(ch->ctx, &op->bulk);

	if (rc == -EAGAIN)
		return false;
	if (rc < 0) {
		give_up(ch, op, rc);
	} else if (rc) {
		bulk_close(ch, op);
		op->state = OP_FIN;
		if (op->bulk.flags & BULK_TOLD)
			op_done(ch, op, 0);
		else
			step_fin(ch, op);
	}
	return true;
}

static bool step_land(struct kedge_channel *ch, struct op *op)
{
	bool fin = op->bulk.flags & BULK_FIN;
	int rc;

	if (way_meanwhile(ch, op))
		return true;
	rc = ch->t->step(ch->ctx, &op->bulk);
	if (rc < 0 && rc != -EAGAIN) {
		give_up(ch, op, rc);
		return true;
	}
	if (rc != 1 || !fin)
		return !rc;
	way_finish(ch, op);
	bulk_close(ch, op);
	op_done(ch, op, 0);
	return true;
}

bool rndv_step(struct kedge_channel *ch, struct op *op)
{
	switch (op->state) {
	case OP_PUT:
		return step_put(ch, op);
	case OP_FIN:
		return step_fin(ch, op);
	case OP_MATCHED:
		return step_matched(ch, op);
	case OP_CTS:
		send_cts(ch, op);
		return op->state != OP_CTS;
	case OP_LAND:
		return step_land(ch, op);
	case OP_REFUSE:
		return step_refuse(ch, op);
	}
	return abort_step(ch, op);
}
