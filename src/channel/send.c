// SPDX-License-Identifier: BSD-2-Clause
/*
 * Posting. A message goes out at once where the peer's credit and the
 * transport's room allow it and nothing waits before it; else it joins the
 * queue, so that the order is kept.
 */
#include "channel/internal.h"

static void head_fill(struct kedge_channel *ch, struct packet_head *h,
		      uint8_t type, size_t len, uint64_t tag)
{
	*h = (struct packet_head){
		.type = type,
		.len = (uint32_t)len,
		.tag = tag,
		.credit_cnt = ch->matched_cnt,
		.credit_bytes = ch->matched_bytes,
	};
	ch->told_cnt = ch->matched_cnt;
	ch->told_bytes = ch->matched_bytes;
}

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

/* The peer may be waiting for credit: it is told before half of what it has is
 * used up, by itself if there is no packet to tell it with. */
void send_credit(struct kedge_channel *ch)
{
	uint32_t cnt = ch->opts.unexpected_cnt;
	uint32_t bytes = (uint32_t)ch->opts.unexpected_bytes;

	if (ch->told_cnt == ch->matched_cnt)
		return;
	if (ch->came_cnt - ch->told_cnt >= cnt / 2 ||
	    ch->came_bytes - ch->told_bytes >= bytes / 2)
		send_control(ch, PACKET_CREDIT, NULL, 0);
}

static bool credit_for(const struct kedge_channel *ch, size_t eager)
{
	return ch->sent_cnt - ch->credit_cnt < ch->peer.unexpected_cnt &&
	       ch->sent_bytes - ch->credit_bytes + eager <=
		       ch->peer.unexpected_bytes;
}

static int send_eager(struct kedge_channel *ch, const void *buf, size_t len,
		      uint64_t tag)
{
	struct packet_head *h;

	if (!credit_for(ch, len))
		return -EAGAIN;
	h = ch->t->reserve(ch->ctx, sizeof(*h) + len);
	if (!h)
		return -EAGAIN;
	head_fill(ch, h, PACKET_EAGER, len, tag);
	copy_short(h + 1, buf, len);
	ch->sent_cnt++;
	ch->sent_bytes += (uint32_t)len;
	ch->t->commit(ch->ctx, h, sizeof(*h) + len);
	return 0;
}

/* Once for an operation, however often it waits for room. */
static int offer(struct kedge_channel *ch, struct op *op)
{
	size_t len = 0;
	int rc;

	if (op->bulk_open)
		return 0;
	op->whole = (struct bulk_piece){ (uintptr_t)op->buf, op->len };
	op->bulk = (struct bulk){ .piece = &op->whole,
				  .piece_cnt = 1,
				  .len = op->len };
	rc = ch->t->offer(ch->ctx, &op->bulk, op->desc, &len);
	if (rc)
		return rc;
	op->bulk_open = true;
	op->desc_len = (uint32_t)len;
	return 0;
}

/* 0, -EAGAIN, or why the source cannot be read. */
static int send_rts(struct kedge_channel *ch, struct op *op)
{
	struct packet_rts rts = { .len = op->len, .sender = op_name(op) };
	size_t len = offsetof(struct packet_rts, desc);
	struct packet_head *h;
	int rc;

	if (!credit_for(ch, 0))
		return -EAGAIN;
	rc = offer(ch, op);
	if (rc)
		return rc;
	rts.desc_len = op->desc_len;
	memcpy(rts.desc, op->desc, op->desc_len);
	len += op->desc_len;
	h = ch->t->reserve(ch->ctx, sizeof(*h) + len);
	if (!h)
		return -EAGAIN;
	head_fill(ch, h, PACKET_RTS, len, op->tag);
	memcpy(h + 1, &rts, len);
	ch->sent_cnt++;
	ch->t->commit(ch->ctx, h, sizeof(*h) + len);
	return 0;
}

/* The first of the queue. 0: it left the queue; -EAGAIN. */
static int send_first(struct kedge_channel *ch, struct op *op)
{
	int rc;

	if (op->len <= ch->peer.eager_max) {
		rc = send_eager(ch, op->buf, op->len, op->tag);
		if (!rc)
			op_done(ch, op, 0);
		return rc;
	}
	rc = send_rts(ch, op);
	if (!rc)
		op_move(ch, op, &ch->idle, OP_RTS);
	else if (rc != -EAGAIN)
		op_done(ch, op, rc);
	return rc == -EAGAIN ? rc : 0;
}

void send_queue(struct kedge_channel *ch)
{
	while (!list_empty(&ch->queued))
		if (send_first(ch, list_entry(ch->queued.next, struct op, node)))
			return;
}

static void start_timer(struct kedge_channel *ch, struct op *op)
{
	if (!ch->opts.timeout_ms)
		return;
	op->deadline = clock_ns() + ch->opts.timeout_ms * 1000000ull;
	list_add_tail(&ch->timed, &op->timed);
}

static int send_later(struct kedge_channel *ch, const void *buf, size_t len,
		      uint64_t tag, uint64_t user, uint64_t *name)
{
	struct op *op = op_get(ch);

	if (!op)
		return -ENOMEM;
	op->is_recv = false;
	op->buf = (char *)(uintptr_t)buf;
	op->len = len;
	op->msg_len = len;
	op->tag = tag;
	op->user = user;
	op_move(ch, op, &ch->queued, OP_QUEUED);
	start_timer(ch, op);
	if (name)
		*name = (uint64_t)op->gen << 32 | op->index;
	send_queue(ch);
	return 0;
}

KEDGE_API int kedge_channel_send(struct kedge_channel *ch, const void *buf,
				 size_t len, uint64_t tag, uint64_t user,
				 uint64_t *op)
{
	int rc;

	if (unlikely(!ch || (!buf && len) || len > INT64_MAX))
		return -EINVAL;
	rc = channel_gone(ch);
	if (unlikely(rc))
		return rc;
	if (likely(len <= ch->peer.eager_max) && list_empty(&ch->queued) &&
	    !send_eager(ch, buf, len, tag))
		rc = 1;
	else
		rc = send_later(ch, buf, len, tag, user, op);
	if (rc >= 0) {
		ch->st.sent++;
		ch->st.bytes_sent += len;
	}
	return rc;
}

static void recv_early(struct kedge_channel *ch, struct op *op,
		       struct early *e)
{
	op->tag = e->tag;
	op->msg_len = e->len;
	op->state = OP_POSTED;
	list_init(&op->node);
	if (e->is_rts) {
		op->since = clock_ns();
		rndv_matched(ch, op, e->len, e->sender, e->data, e->desc_len);
		matched(ch, 0);
	} else {
		if (e->len <= op->len)
			copy_bytes(op->buf, e->data, e->len);
		op_done(ch, op, e->len <= op->len ? 0 : -EMSGSIZE);
		matched(ch, e->len);
	}
	early_drop(ch, e);
}

KEDGE_API int kedge_channel_recv(struct kedge_channel *ch, void *buf,
				 size_t len, uint64_t tag, uint64_t mask,
				 uint64_t user, uint64_t *name)
{
	struct early *e;
	struct op *op;
	int rc;

	if (unlikely(!ch || (!buf && len)))
		return -EINVAL;
	rc = channel_gone(ch);
	e = list_empty(&ch->early) ? NULL : match_early(ch, tag, mask);
	if (unlikely(rc && (rc == -ECHILD || !e)))
		return rc;
	op = op_get(ch);
	if (!op)
		return -ENOMEM;
	op->is_recv = true;
	op->buf = buf;
	op->len = len;
	op->msg_len = 0;
	op->tag = tag;
	op->mask = mask;
	op->user = user;
	if (name)
		*name = (uint64_t)op->gen << 32 | op->index;
	start_timer(ch, op);
	if (e)
		recv_early(ch, op, e);
	else
		match_post(ch, op);
	return 0;
}
