// SPDX-License-Identifier: BSD-2-Clause
/*
 * The rendezvous after the RTS: the receiver says where the data may land
 * (CTS), it lands, the sender says so (FIN, where the data do not say it themselves),
 * and the receiver that it has come (REFUSE with status 0). What comes for an
 * operation that is no more is dropped: it was cancelled, and the answer to that is
 * under way.
 */
#include "channel/internal.h"

/* With status 0: the message has come. */
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
		/* It keeps its place: a walk through the list would come to it
		 * again and again. */
		if (op->state != OP_CTS)
			op_move(ch, op, &ch->active, OP_CTS);
		return;
	}
	count(&ch->st.cts_ns, clock_ns() - op->since);
	count(&ch->st.cts_cnt, 1);
	/* A short message comes in a packet: until then it is idle. */
	op_move(ch, op, op->bulk_open ? &ch->active : &ch->idle, OP_LAND);
}

/* The sender keeps the data of a short message until it is asked for it. */
static void accept_short(struct op *op)
{
	op->way = KEDGE_WAY_EAGER;
	op->desc_len = 0;
	op->bulk.flags = 0;
}

/* With the RTS's descriptor in op->desc. -EAGAIN: other messages have all there
 * is to land with, until they have landed. */
static bool step_matched(struct kedge_channel *ch, struct op *op)
{
	uint8_t rts[DESC_MAX];
	int rc = -EMSGSIZE;

	if (op->msg_len <= op->len && op->msg_len <= ch->peer.eager_max &&
	    !op->desc_len) {
		accept_short(op);
		rc = 0;
	} else if (op->msg_len <= op->len) {
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

/*
 * A short message that was announced, in a packet. As others it is not complete before
 * the receiver has said so: where the receive was given up meanwhile the data is
 * dropped there, and this side is told by an ABORT.
 */
static bool step_data(struct kedge_channel *ch, struct op *op)
{
	int rc = send_data(ch, op);

	if (rc == -EAGAIN)
		return false;
	if (rc)
		give_up(ch, op, rc);
	else
		op_move(ch, op, &ch->idle, OP_SENT);
	return true;
}

int rndv_cts(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = named(ch, p->cts.sender, false);
	int rc;

	if (!op || op->state != OP_RTS)
		return 0;
	if (op->bulk_open == (p->cts.way == KEDGE_WAY_EAGER))
		return packet_refused("way");
	op->peer = p->cts.receiver;
	op->way = p->cts.way;
	if (!op->bulk_open) {
		op_move(ch, op, &ch->active, OP_PUT);
		step_data(ch, op);
		return 0;
	}
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

	if (op && op->state == OP_LAND && op->bulk_open)
		op->bulk.flags |= BULK_FIN;
	return 0;
}

int rndv_data(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = named(ch, p->data.receiver, true);
	size_t len = p->head.len - sizeof(p->data.receiver);
	int rc;

	if (!op || op->state != OP_LAND)
		return 0;
	if (op->bulk_open || len != op->msg_len)
		return packet_refused("length of a message");
	rc = access_check(&ch->access, op->buf, len, true);
	if (!rc && len)
		copy_bytes(op->buf, p->data.bytes, len);
	op->status = rc;
	refuse(ch, op);
	return 0;
}

int rndv_refuse(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = named(ch, p->op.op, false);

	if (!op)
		return 0;
	/* It has seen that all is there before this side saw that it is sent. */
	if ((op->state == OP_PUT || op->state == OP_STOP) && op->bulk_open &&
	    !p->op.status)
		op->bulk.flags |= BULK_SAID;
	if (op->state != OP_RTS && op->state != OP_SENT)
		return 0;
	linger_no_more(ch, op);
	bulk_close(ch, op);
	op_done(ch, op, p->op.status == -EMSGSIZE ? 0 : p->op.status);
	return 0;
}

static bool step_fin(struct kedge_channel *ch, struct op *op)
{
	if (send_op(ch, PACKET_FIN, op, 0))
		return false;
	op_move(ch, op, &ch->idle, OP_SENT);
	return true;
}

static bool step_put(struct kedge_channel *ch, struct op *op)
{
	int rc;

	if (!op->bulk_open)
		return step_data(ch, op);
	rc = ch->t->step(ch->ctx, &op->bulk);
	if (rc == -EAGAIN)
		return false;
	if (rc < 0) {
		give_up(ch, op, rc);
	} else if (rc) {
		access_learn(&ch->access, op->buf, op->len, false, ch->sent_cnt);
		bulk_close(ch, op);
		op->state = OP_FIN;
		if (!(op->bulk.flags & BULK_ACKED))
			step_fin(ch, op);
		else if (op->bulk.flags & BULK_SAID)
			op_done(ch, op, 0);
		else
			op_move(ch, op, &ch->idle, OP_SENT);
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
	rc = way_finish(ch, op);
	if (rc) {
		give_up(ch, op, rc);
		return true;
	}
	access_learn(&ch->access, op->buf, op->msg_len, true, ch->received_cnt);
	bulk_close(ch, op);
	op->status = 0;
	refuse(ch, op);
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
