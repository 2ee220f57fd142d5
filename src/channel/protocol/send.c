// SPDX-License-Identifier: BSD-2-Clause
/*
 * Posting. A message goes out at once where the peer's credit and the
 * transport's room allow it and the queue is empty; else it joins the
 * queue, so that the order is kept.
 */
#include "channel/short.h"

#define SHOWN_STEP 8192u

/*
 * True if the peer is to copy what is there while the rest is written. That is
 * sooner where it waits for this message alone. Where one message follows another
 * it has others to copy, and looking at how far this one is slows both down: 64
 * KiB then went at 8 GB/s instead of 45.
 */
static bool shows(const struct kedge_channel *ch, size_t len)
{
	return len >= ARRIVE_MIN && ch->answers && ch->t->begin;
}

/* commit() shows the last of it. */
static void copy_shown(struct kedge_channel *ch, struct packet_head *h,
		       const char *buf, size_t len)
{
	size_t at = 0, step = SHOWN_STEP;

	ch->t->begin(ch->ctx, h, sizeof(*h) + len, sizeof(*h));
	for (;;) {
		if (step > len - at)
			step = len - at;
		copy_bytes((char *)(h + 1) + at, buf + at, step);
		at += step;
		if (at == len)
			return;
		ch->t->more(ch->ctx, sizeof(*h) + at);
	}
}

static int send_eager(struct kedge_channel *ch, const void *buf, size_t len,
		      uint64_t tag)
{
	struct packet_head *h;
	int rc = access_check(&ch->access, buf, len, false);

	if (unlikely(rc))
		return rc;
	if (!may_announce(ch) || !room_for(ch, len))
		return -EAGAIN;
	h = ch->t->reserve(ch->ctx, sizeof(*h) + len);
	if (!h)
		return -EAGAIN;
	head_fill(ch, h, PACKET_EAGER, len, tag);
	if (unlikely(shows(ch, len)))
		copy_shown(ch, h, buf, len);
	else
		copy_short(h + 1, buf, len);
	ch->answers = false;
	ch->sent_cnt++;
	ch->sent_bytes += (uint32_t)len;
	ch->t->commit(ch->ctx, h, sizeof(*h) + len);
	return 0;
}

#define OFFER_MIN 20480u

/* In memory that the peer reads by itself: one copy, for three packets. */
static bool is_offered(const struct kedge_channel *ch, const void *buf,
		       size_t len)
{
	uint32_t ready;

	if (len < OFFER_MIN || len > ch->peer.eager_max || !ch->ring)
		return false;
	ready = ch->t->ready(ch->ctx, buf, len, NULL, 0);
	return ready & READY_HEAP || (ready & READY_SEGMENT && len >= OFFER_SEGMENT);
}

/* Once for an operation, however often it waits for room. A short message does
 * without the transport's offer: it comes in a packet when it is asked for. */
static int offer(struct kedge_channel *ch, struct op *op)
{
	size_t len = 0;
	int rc;

	if (op->bulk_open)
		return 0;
	op->desc_len = 0;
	if (op->len <= ch->peer.eager_max && !op->offered)
		return 0;
	op->whole = (struct bulk_piece){ (uintptr_t)op->buf, op->len };
	op->bulk = (struct bulk){ .flags = op_timed(op),
				  .piece = &op->whole,
				  .piece_cnt = 1,
				  .len = op->len };
	if (access_knows(&ch->access, op->buf, op->len, false, ch->sent_cnt))
		op->bulk.flags |= BULK_CHECKED;
	rc = ch->t->blind ? kedge__bulk_check(&op->bulk) : 0;
	if (rc)
		return rc;
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

	if (!may_announce(ch))
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

static int send_eager_op(struct kedge_channel *ch, struct op *op)
{
	int rc = send_eager(ch, op->buf, op->len, op->tag);

	if (rc != -EAGAIN)
		op_done(ch, op, rc);
	return rc == -EAGAIN ? rc : 0;
}

/*
 * The first of the queue. 0: it left the queue; -EAGAIN. If the peer has no
 * room for the data of a short message, that is announced all the same, so that it
 * can be matched, and what is behind it.
 */
static int send_first(struct kedge_channel *ch, struct op *op)
{
	int rc;

	if (op->len <= ch->peer.eager_max && !op->offered &&
	    room_for(ch, op->len))
		return send_eager_op(ch, op);
	rc = send_rts(ch, op);
	if (!rc)
		op_move(ch, op, &ch->idle, OP_RTS);
	else if (rc != -EAGAIN)
		op_done(ch, op, rc);
	return rc == -EAGAIN ? rc : 0;
}

void send_queue(struct kedge_channel *ch)
{
	while (!list_empty(&ch->queued)) {
		if (send_first(ch, list_entry(ch->queued.next, struct op, node)))
			return;
		ch->queued_cnt--;
	}
}

/* Deadlines are in order. Most are alike, so a new one is mostly the last. */
static void start_timer(struct kedge_channel *ch, struct op *op,
			uint32_t timeout_ms)
{
	struct list *l = ch->timed.prev;

	if (!timeout_ms)
		timeout_ms = ch->opts.timeout_ms;
	if (!timeout_ms || timeout_ms == UINT32_MAX)
		return;
	op->deadline = clock_after_ms(timeout_ms);
	while (l != &ch->timed &&
	       list_entry(l, struct op, timed)->deadline > op->deadline)
		l = l->prev;
	list_add_tail(l->next, &op->timed);
}

static int send_later(struct kedge_channel *ch, const void *buf, size_t len,
		      const struct kedge_message *m, struct packed *p,
		      uint64_t *name)
{
	struct op *op = op_get(ch);

	if (!op)
		return -ENOMEM;
	op->is_recv = false;
	op->buf = (char *)(uintptr_t)buf;
	op->len = len;
	op->msg_len = len;
	op->tag = m->tag;
	op->user = m->user;
	op->packed = p;
	op->offered = is_offered(ch, buf, len);
	op_move(ch, op, &ch->queued, OP_QUEUED);
	ch->queued_cnt++;
	ch->busy = true;
	start_timer(ch, op, m->timeout_ms);
	if (name)
		*name = (uint64_t)op->gen << 32 | op->index;
	send_queue(ch);
	return 0;
}

/* Queued messages take of the peer's credit when they go. */
static bool refuses_more(const struct kedge_channel *ch)
{
	return ch->opts.flags & KEDGE_CHANNEL_NO_WAIT &&
	       (uint64_t)(ch->sent_cnt - ch->credit_cnt) + ch->queued_cnt >=
		       ch->peer.unexpected_cnt;
}

int send_message(struct kedge_channel *ch, const void *buf,
		 const struct kedge_message *m, size_t len, struct packed *p,
		 uint64_t *name)
{
	int rc = channel_gone(ch);

	if (unlikely(rc))
		return rc;
	rc = -EAGAIN;
	if (likely(len <= ch->peer.eager_max) && list_empty(&ch->queued) &&
	    !is_offered(ch, buf, len))
		rc = send_eager(ch, buf, len, m->tag);
	if (likely(!rc))
		rc = 1;
	else if (rc == -EAGAIN && refuses_more(ch))
		rc = kedge_reason(-ENOBUFS, "%u messages wait at the peer, as many "
				  "as it allows: poll, and send again when it has "
				  "received some", ch->peer.unexpected_cnt);
	else if (rc == -EAGAIN)
		rc = send_later(ch, buf, len, m, p, name);
	if (rc >= 0) {
		count(&ch->st.sent, 1);
		count(&ch->st.bytes_sent, len);
	}
	return rc;
}

static __attribute__((noinline)) int
send_long(struct kedge_channel *ch, const void *buf, size_t len, uint64_t tag,
	  uint64_t user, uint64_t *op)
{
	struct kedge_message m;

	NO_CANCEL();
	m.tag = tag;
	m.user = user;
	m.timeout_ms = 0;
	return send_message(ch, buf, &m, len, NULL, op);
}

KEDGE_API int kedge_channel_send(struct kedge_channel *ch, const void *buf,
				 size_t len, uint64_t tag, uint64_t user,
				 uint64_t *op)
{
	if (unlikely(!ch || (!buf && len) || len > INT64_MAX))
		return channel_invalid("the channel or the message's memory is "
				       "NULL, or it is too long");
	if (likely(send_short(ch, buf, len, tag)))
		return 1;
	return send_long(ch, buf, len, tag, user, op);
}

static void recv_unexpected(struct kedge_channel *ch, struct op *op,
			    struct unexpected *e)
{
	int rc;

	ch->busy = true;
	list_init(&op->node);
	if (unlikely(e->arriving)) {
		arrive_matched(ch, op, e);
		return;
	}
	op->tag = e->tag;
	op->msg_len = e->len;
	op->state = OP_POSTED;
	if (e->is_rts) {
		op->since = clock_ns();
		rndv_matched(ch, op, e->len, e->sender, e->data, e->desc_len);
		matched(ch, 0);
	} else {
		rc = e->len > op->len ? -EMSGSIZE
				      : access_check(&ch->access, op->buf, e->len,
						     true);
		/* A buffer of no bytes may be NULL. */
		if (!rc && e->len)
			copy_bytes(op->buf, e->data, e->len);
		op_done(ch, op, rc);
		matched(ch, e->len);
	}
	unexpected_drop(ch, e);
}

int recv_message(struct kedge_channel *ch, void *buf,
		 const struct kedge_message *m, size_t len, struct packed *p,
		 uint64_t *name)
{
	struct unexpected *e;
	struct op *op;
	int rc;

	rc = channel_gone(ch);
	e = list_empty(&ch->unexpected) ? NULL
					: match_unexpected(ch, m->tag, m->mask);
	if (unlikely(rc && (rc == -ECHILD || !e)))
		return rc;
	op = op_get(ch);
	if (!op)
		return -ENOMEM;
	op->is_recv = true;
	op->buf = buf;
	op->len = len;
	op->msg_len = 0;
	op->tag = m->tag;
	op->mask = m->mask;
	op->user = m->user;
	op->packed = p;
	if (name)
		*name = (uint64_t)op->gen << 32 | op->index;
	start_timer(ch, op, m->timeout_ms);
	if (e)
		recv_unexpected(ch, op, e);
	else
		match_post(ch, op);
	return 0;
}

static __attribute__((noinline)) int
recv_long(struct kedge_channel *ch, void *buf, size_t len, uint64_t tag,
	  uint64_t mask, uint64_t user, uint64_t *op)
{
	struct kedge_message m;

	NO_CANCEL();
	m.tag = tag;
	m.mask = mask;
	m.user = user;
	m.timeout_ms = 0;
	return recv_message(ch, buf, &m, len, NULL, op);
}

KEDGE_API int kedge_channel_recv(struct kedge_channel *ch, void *buf,
				 size_t len, uint64_t tag, uint64_t mask,
				 uint64_t user, uint64_t *op)
{
	if (unlikely(!ch || (!buf && len)))
		return channel_invalid("the channel or the buffer is NULL");
	if (likely(recv_short(ch, buf, len, tag, mask, user, op)))
		return 0;
	return recv_long(ch, buf, len, tag, mask, user, op);
}
