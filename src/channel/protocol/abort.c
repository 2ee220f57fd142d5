// SPDX-License-Identifier: BSD-2-Clause
/*
 * Giving up: cancelled, out of time, failed, or the peer is dead.
 *
 * The side that gives up lets go of the data first (STOP), tells the peer (ABORT) and
 * keeps the operation until the answer (ABORTED), because until then the peer
 * may name it. The caller hears of it as soon as its buffer is not touched any more.
 *
 * If both give up at once the ABORTs cross, and each is the answer to the
 * other: both had let go before they sent them.
 *
 * A send is given up no more once all its data have gone: only the peer knows
 * whether it has them, and says so (REFUSE with status 0, or ABORT). The caller waits
 * for that word, as any other answer would be a guess; a peer that owes it for
 * peer_timeout_ms is given up itself.
 */
#include <stdio.h>
#include <stdlib.h>

#include "channel/internal.h"

/* An honest peer can give up so many operations that are over here already: as many
 * as there are FINs and REFUSEs under way to it, and messages that were not received. */
#define REPLIES_SPARE 16384u
/* Operations that may wait for the peer's answer to an ABORT, beside those that
 * it need not have looked at. */
#define LINGERING_SPARE 16384u

void bulk_close(struct kedge_channel *ch, struct op *op)
{
	bool quiet = true;

	if (op->bulk_open) {
		if (op->landing.cnt)
			quiet = !ch->t->stop(ch->ctx, &op->bulk);
		ch->t->end(ch->ctx, &op->bulk);
	}
	op->bulk_open = false;
	way_drop(ch, op, quiet);
}

/* The transport may need a while to let go; -EBUSY until then. */
static int let_go(struct kedge_channel *ch, struct op *op)
{
	return op->bulk_open ? ch->t->stop(ch->ctx, &op->bulk) : 0;
}

/* Given up here: its deadline is the peer's from now on. */
static void linger(struct kedge_channel *ch, struct op *op, enum op_state state)
{
	op_move(ch, op, &ch->idle, state);
	if (op->lingers)
		return;
	op->lingers = true;
	op->deadline = clock_after_ms(ch->opts.peer_timeout_ms);
	list_remove(&op->timed);
	list_add_tail(&ch->lingering, &op->timed);
	ch->lingering_cnt++;
}

void linger_no_more(struct kedge_channel *ch, struct op *op)
{
	if (!op->lingers)
		return;
	op->lingers = false;
	list_remove(&op->timed);
	ch->lingering_cnt--;
}

/* It was too late to give it up: all of it has gone. */
static void has_gone(struct kedge_channel *ch, struct op *op)
{
	bool said = op->bulk.flags & BULK_SAID;

	bulk_close(ch, op);
	if (said)
		op_done(ch, op, 0);
	else
		linger(ch, op, OP_SENT);
}

int check_lingering(const struct kedge_channel *ch, uint64_t now)
{
	const struct list *l = &ch->lingering;

	if (list_empty(l))
		return 0;
	if (ch->lingering_cnt <= ch->peer.unexpected_cnt + LINGERING_SPARE &&
	    (ch->opts.peer_timeout_ms == UINT32_MAX ||
	     list_entry(l->next, struct op, timed)->deadline > now))
		return 0;
	return kedge_reason(-ETIMEDOUT, "the peer does not answer: %u operations "
			    "that were given up here wait for it; "
			    "peer_timeout_ms is %u", ch->lingering_cnt,
			    ch->opts.peer_timeout_ms);
}

static bool step_stop(struct kedge_channel *ch, struct op *op)
{
	int busy = let_go(ch, op);

	if (!busy && op->bulk_open &&
	    op->bulk.flags & (BULK_ACKED | BULK_SAID)) {
		has_gone(ch, op);
		return true;
	}
	/* Landing pages are nobody's buffer: they wait alone. */
	if (!busy || op->landing.cnt)
		op_report(ch, op, op->status);
	if (busy || send_op(ch, PACKET_ABORT, op, op->status))
		return false;
	linger(ch, op, OP_LINGER);
	return true;
}

void give_up(struct kedge_channel *ch, struct op *op, int status)
{
	switch (op->state) {
	case OP_QUEUED:
		ch->queued_cnt--;
		/* fall through */
	case OP_POSTED:
		bulk_close(ch, op);
		op_done(ch, op, status);
		return;
	case OP_ARRIVING:
		arrive_leave(ch, op, status);
		return;
	case OP_REFUSE:
	case OP_STOP:
	case OP_LINGER:
	case OP_ANSWER:
		return; /* it is over already, but for a message */
	case OP_SENT:
		linger(ch, op, OP_SENT);
		return;
	}
	op->status = status;
	op_move(ch, op, &ch->active, OP_STOP);
	step_stop(ch, op);
}

/* To an operation of the peer's without one of ours. */
static int reply_aborted(struct kedge_channel *ch, struct op_name name,
			 uint32_t flags)
{
	struct packet_op body = { .op = name, .flags = flags };
	struct reply *r;

	if (list_empty(&ch->replies) &&
	    !send_control(ch, PACKET_ABORTED, &body, sizeof(body)))
		return 0;
	if (ch->replies_cnt >= ch->opts.unexpected_cnt + REPLIES_SPARE)
		return kedge_reason(-EPROTO, "the peer gives up more messages "
				    "than there are");
	r = malloc(sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->body = body;
	list_add_tail(&ch->replies, &r->node);
	ch->replies_cnt++;
	return 0;
}

void send_replies(struct kedge_channel *ch)
{
	struct reply *r;

	while (!list_empty(&ch->replies)) {
		r = list_entry(ch->replies.next, struct reply, node);
		if (send_control(ch, PACKET_ABORTED, &r->body, sizeof(r->body)))
			return;
		list_remove(&r->node);
		ch->replies_cnt--;
		free(r);
	}
}

/* A receive that has matched the message of that sender, and can be told. */
static struct op *receiver_of(struct kedge_channel *ch, struct op_name sender)
{
	struct list *heads[] = { &ch->active, &ch->idle };
	struct list *l, *tmp;
	struct op *op;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each_safe(l, tmp, heads[i]) {
			op = list_entry(l, struct op, node);
			if (op->is_recv && op->peer.index == sender.index &&
			    op->peer.gen == sender.gen)
				return op;
		}
	return NULL;
}

static bool step_answer(struct kedge_channel *ch, struct op *op)
{
	int busy = let_go(ch, op);

	if (!busy || op->landing.cnt)
		op_report(ch, op, op->status);
	if (busy || send_op(ch, PACKET_ABORTED, op, 0))
		return false;
	bulk_close(ch, op);
	op_done(ch, op, op->status);
	return true;
}

/* The peer has given it up: its caller cancelled it, or it failed there. */
static void answer(struct kedge_channel *ch, struct op *op,
		   const struct packet *p)
{
	/* A refusal, or one's own reason, stays. */
	if (op->state != OP_REFUSE && op->state != OP_STOP)
		op->status = p->op.status ? p->op.status : -ECANCELED;
	linger_no_more(ch, op);
	op->peer = p->op.from;
	op_move(ch, op, &ch->active, OP_ANSWER);
	step_answer(ch, op);
}

/* The operation that an ABORT names; NULL: it is over here. */
static struct op *abort_target(struct kedge_channel *ch,
			       const struct packet *p)
{
	bool to_sender = p->op.flags & PACKET_OP_TO_SENDER;
	struct op *op;

	if (!p->op.op.gen)
		return to_sender ? NULL : receiver_of(ch, p->op.from);
	op = op_find(ch, p->op.op);
	return op && op->is_recv != to_sender ? op : NULL;
}

static void linger_ends(struct kedge_channel *ch, struct op *op)
{
	linger_no_more(ch, op);
	bulk_close(ch, op);
	op_done(ch, op, op->status);
}

int abort_received(struct kedge_channel *ch, const struct packet *p)
{
	uint32_t flags = PACKET_OP_TO_SENDER & ~p->op.flags;
	struct op *op = abort_target(ch, p);
	struct unexpected *e = NULL;

	switch (op ? op->state : OP_FREE) {
	case OP_RTS:
	case OP_PUT:
	case OP_SENT:
	case OP_FIN:
	case OP_MATCHED:
	case OP_CTS:
	case OP_LAND:
	case OP_REFUSE:
	case OP_STOP:
		answer(ch, op, p);
		return 0;
	case OP_LINGER:
		linger_ends(ch, op);
		return 0;
	}
	if (!op && flags && !p->op.op.gen)
		e = unexpected_find(ch, p->op.from);
	if (e) {
		unexpected_drop(ch, e);
		matched(ch, 0);
	}
	return reply_aborted(ch, p->op.from, flags);
}

int aborted_received(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = op_find(ch, p->op.op);

	if (op && op->state == OP_LINGER)
		linger_ends(ch, op);
	return 0;
}

bool abort_step(struct kedge_channel *ch, struct op *op)
{
	return op->state == OP_STOP ? step_stop(ch, op) : step_answer(ch, op);
}
