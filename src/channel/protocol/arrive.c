// SPDX-License-Identifier: BSD-2-Clause
/*
 * Long eager messages are copied twice, into the transport's memory and out of
 * it. The transport shows such a packet as soon as its head is there, and both
 * processors copy at the same time: this side takes what has been written, for as
 * long as more of it comes soon, and goes on in a later poll where it does not,
 * as the sender may have been put off its processor.
 *
 * The message is matched by its head. Where the receive is given up meanwhile the
 * message is not lost, as its sender has done with it, or is about to: all of it is
 * still in the packet, and goes to the next receive that it matches, or waits for
 * one. A receive that it does not fit has it dropped.
 */
#include "channel/internal.h"

/* Looks at how far the sender is, without news: some microseconds. */
#define LOOKS 256

static void begin(struct kedge_channel *ch, struct op *op, uint64_t tag,
		  uint64_t len)
{
	int rc = -EMSGSIZE;

	ch->arriving.op_tag = op->tag;
	op->tag = tag;
	op->msg_len = len;
	if (len <= op->len)
		rc = access_check(&ch->access, op->buf, len, true);
	if (rc) {
		op_done(ch, op, rc);
		matched(ch, len);
		return;
	}
	op->state = OP_ARRIVING;
	list_add_tail(&ch->idle, &op->node);
	ch->arriving.op = op;
}

/* Bytes of the message that are there; what the peer says is never too much. */
static uint64_t there(struct kedge_channel *ch, const char *data)
{
	const char *packet = data - sizeof(struct packet_head);
	uint64_t n = ch->t->arrived(ch->ctx, packet) -
		     sizeof(struct packet_head);

	return n < ch->arriving.len ? n : ch->arriving.len;
}

static void take(struct arriving *a, const char *data, uint64_t to)
{
	char *buf = a->op ? a->op->buf
		    : a->unexpected ? (char *)a->unexpected->data : NULL;

	if (buf)
		copy_bytes(buf + a->have, data + a->have, to - a->have);
	a->have = to;
}

static int go_on(struct kedge_channel *ch, const char *data)
{
	struct arriving *a = &ch->arriving;
	uint64_t now;
	int looks = 0;

	while (a->have < a->len) {
		now = there(ch, data);
		if (now > a->have) {
			take(a, data, now);
			looks = 0;
		} else if (++looks > LOOKS) {
			return -EAGAIN;
		} else {
			cpu_relax();
		}
	}
	if (a->op) {
		op_done(ch, a->op, 0);
		matched(ch, a->len);
	} else if (a->unexpected) {
		a->unexpected->arriving = false;
	}
	*a = (struct arriving){ .is = false };
	return 0;
}

int arrive_begin(struct kedge_channel *ch, const struct packet_head *h,
		 const void *data)
{
	struct op *op = match_posted(ch, h->tag);
	struct unexpected *e = NULL;
	int rc = 0;

	if (!op) {
		rc = stays(ch) ? -EAGAIN : unexpected_add_arriving(ch, h, &e);
		if (rc)
			return rc;
	}
	ch->received_cnt++;
	ch->received_bytes += h->len;
	ch->arriving = (struct arriving){ .is = true,
					  .tag = h->tag,
					  .len = h->len,
					  .unexpected = e };
	if (op)
		begin(ch, op, h->tag, h->len);
	return go_on(ch, data);
}

int arrive_more(struct kedge_channel *ch, const void *raw)
{
	return go_on(ch, (const char *)raw + sizeof(struct packet_head));
}

void arrive_matched(struct kedge_channel *ch, struct op *op,
		    struct unexpected *e)
{
	struct arriving *a = &ch->arriving;

	a->unexpected = NULL;
	begin(ch, op, e->tag, e->len);
	if (a->op)
		copy_bytes(op->buf, e->data, a->have);
	unexpected_drop(ch, e);
}

void arrive_leave(struct kedge_channel *ch, struct op *op, int status)
{
	struct arriving *a = &ch->arriving;
	const struct packet_head h = { .type = PACKET_EAGER,
				       .len = (uint32_t)a->len,
				       .tag = a->tag };
	struct op *next = match_posted(ch, a->tag);

	if (!next && unexpected_add_arriving(ch, &h, &a->unexpected))
		return;
	op->tag = a->op_tag;
	op->msg_len = 0;
	a->op = NULL;
	a->have = 0;
	op_done(ch, op, status);
	if (next)
		begin(ch, next, a->tag, a->len);
}

void arrive_dies(struct kedge_channel *ch)
{
	if (ch->arriving.unexpected)
		unexpected_drop(ch, ch->arriving.unexpected);
	ch->arriving = (struct arriving){ .is = false };
}
