// SPDX-License-Identifier: BSD-2-Clause
/*
 * Progress: what came, what is under way, what waits, what is out of time, and
 * whether the peer is still there. The last two cost a clock and a system call, and
 * are looked at now and then: by the number of polls for a program that polls all
 * the time, by the clock for one that seldom does.
 */
#include "channel/short.h"

#define PACKETS_A_POLL 64
#define QUICK_POLLS    64u /* between looks at all that may be to do */
#define CLOCK_POLLS    4u  /* between looks at the coarse clock */
#define PACKETS_LAST   65536u /* more than those a dead peer has under way */

static int eager_unexpected(struct kedge_channel *ch,
			    const struct packet_head *h, const void *data)
{
	struct packet p = { .head = *h, .eager = data };

	return stays(ch) ? -EAGAIN : unexpected_add(ch, &p);
}

static int eager_received(struct kedge_channel *ch, const struct packet_head *h,
			  const void *data)
{
	struct op *op = match_posted(ch, h->tag);
	size_t len = h->len;
	int rc;

	if (!op) {
		rc = eager_unexpected(ch, h, data);
		if (rc)
			return rc;
	}
	ch->received_cnt++;
	ch->received_bytes += (uint32_t)len;
	if (!op)
		return 0;
	op->tag = h->tag;
	op->msg_len = len;
	rc = likely(len <= op->len) ? access_check(&ch->access, op->buf, len,
						   true)
				    : -EMSGSIZE;
	if (likely(!rc))
		copy_short(op->buf, data, len);
	op_done(ch, op, rc);
	matched(ch, len);
	return 0;
}

static int rts_received(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = match_posted(ch, p->head.tag);

	if (!op) {
		int rc = stays(ch) ? -EAGAIN : unexpected_add(ch, p);

		if (!rc)
			ch->received_cnt++;
		return rc;
	}
	ch->received_cnt++;
	op->tag = p->head.tag;
	op->since = clock_ns();
	rndv_matched(ch, op, p->rts.len, p->rts.sender, p->rts.desc,
		     p->rts.desc_len);
	matched(ch, 0);
	return 0;
}

static int control_received(struct kedge_channel *ch, const void *raw,
			    struct packet *p)
{
	int rc = packet_parse_body(raw, p);

	if (rc)
		return rc;
	switch (p->head.type) {
	case PACKET_RTS:
		return rts_received(ch, p);
	case PACKET_CTS:
		return rndv_cts(ch, p);
	case PACKET_FIN:
		return rndv_fin(ch, p);
	case PACKET_REFUSE:
		return rndv_refuse(ch, p);
	case PACKET_DATA:
		return rndv_data(ch, p);
	case PACKET_ABORT:
		return abort_received(ch, p);
	case PACKET_ABORTED:
		return aborted_received(ch, p);
	case PACKET_BYE:
		ch->bye = true;
	}
	return 0;
}

static int packet_received(struct kedge_channel *ch, const void *raw,
			   size_t len)
{
	struct packet p;
	int rc = packet_parse_head(raw, len, &p.head);

	if (unlikely(rc))
		return rc;
	ch->answers = true;
	ch->credit_cnt = p.head.credit_cnt;
	ch->credit_bytes = p.head.credit_bytes;
	if (likely(p.head.type == PACKET_EAGER && p.head.len <= ch->peer.eager_max)) {
		if (p.head.len >= ARRIVE_MIN && ch->t->arrived &&
		    ch->t->arrived(ch->ctx, raw) < len)
			return arrive_begin(ch, &p.head,
					    (const char *)raw + sizeof(p.head));
		return eager_received(ch, &p.head,
				      (const char *)raw + sizeof(p.head));
	}
	return control_received(ch, raw, &p);
}

/* Packets taken, until so many completions wait; a packet for which there is no
 * memory waits, and one that stays(). */
static size_t take_packets(struct kedge_channel *ch, size_t max)
{
	const void *raw;
	size_t len, n;
	int rc;

	for (n = 0; n < PACKETS_A_POLL && !ch->bye &&
		    ch->done.tail - ch->done.head < max;
	     n++) {
		raw = ch->t->next(ch->ctx, &len);
		if (!raw)
			break;
		rc = unlikely(ch->arriving.is) ? arrive_more(ch, raw)
					       : packet_received(ch, raw, len);
		if (unlikely(rc == -ENOMEM || rc == -EAGAIN))
			break;
		ch->t->release(ch->ctx, raw);
		if (unlikely(rc)) {
			channel_dies(ch, rc);
			break;
		}
	}
	return n;
}

/*
 * If we move the data ourselves, only one message's move in a step, the earliest
 * that can: it is done sooner, while what it is made of is in the caches, and the
 * others are no later.
 */
static bool step_active(struct kedge_channel *ch)
{
	bool moved = false, data = false;
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &ch->active) {
		struct op *op = list_entry(l, struct op, node);
		bool has_data = op->state == OP_PUT || op->state == OP_LAND;

		if ((data && has_data) || !rndv_step(ch, op))
			continue;
		moved = true;
		data |= has_data && !ch->t->posts;
	}
	return moved;
}

static void check_timers(struct kedge_channel *ch)
{
	uint64_t now = clock_ns();
	struct op *op;
	int rc;

	while (!list_empty(&ch->timed)) {
		op = list_entry(ch->timed.next, struct op, timed);
		if (op->deadline > now)
			break;
		list_remove(&op->timed);
		give_up(ch, op, -ETIMEDOUT);
	}
	rc = check_lingering(ch, now);
	if (rc)
		channel_dies(ch, rc);
}

/* The peer may have died with packets under way to us: those first. One that
 * pretends to be dead and goes on sending is not listened to for ever. */
static void check_peer(struct kedge_channel *ch)
{
	int rc = ch->t->check(ch->ctx);
	size_t n, got;

	if (!rc)
		return;
	ch->leaves = false;
	for (n = 0; n < PACKETS_LAST && !ch->dead && !ch->bye; n += got) {
		got = take_packets(ch, UINT32_MAX);
		if (!got)
			break;
	}
	if (!ch->dead)
		channel_dies(ch, rc);
}

/* A poll has to do with new packets alone, but now and then with all. */
static bool calm(const struct kedge_channel *ch)
{
	return ch->ring && !ch->dead && list_empty(&ch->queued) &&
	       list_empty(&ch->active) && list_empty(&ch->replies) &&
	       !ch->arriving.is;
}

static void look_at_timers(struct kedge_channel *ch, bool late)
{
	if (likely(list_empty(&ch->timed) && list_empty(&ch->lingering)))
		return;
	ch->timer_polls += 1 + ch->quick;
	if (ch->timer_polls < TIMER_POLLS && !late)
		return;
	ch->timer_polls = 0;
	check_timers(ch);
}

/*
 * True if the coarse clock has moved since all was looked at. Then the next poll
 * looks at all again, and so does each of a program that polls more seldom than
 * that clock moves; of others the next one finds that it has not.
 */
static bool time_went_by(struct kedge_channel *ch)
{
	uint64_t now = clock_coarse_ns();
	bool late = now != ch->looked;

	ch->looked = now;
	ch->quick_max = late ? 1 : QUICK_POLLS;
	return late;
}

bool channel_progress(struct kedge_channel *ch, size_t max, bool look)
{
	bool moved = take_packets(ch, max), late;

	if (unlikely(ch->dead))
		return true;
	if (unlikely(ch->bye)) {
		channel_dies(ch, -ECONNRESET);
		return true;
	}
	if (!list_empty(&ch->replies))
		send_replies(ch);
	if (!list_empty(&ch->active))
		moved |= step_active(ch);
	if (!list_empty(&ch->queued))
		send_queue(ch);
	late = time_went_by(ch);
	look_at_timers(ch, late);
	ch->idle_polls = moved ? 0 : ch->idle_polls + 1;
	if (!moved) {
		/* There was no room for it, perhaps, when it was due. */
		send_credit(ch);
		if (unlikely(late || look))
			check_peer(ch);
	}
	if (ch->t->flush)
		ch->t->flush(ch->ctx);
	ch->quick = 0;
	ch->busy = !calm(ch);
	return moved;
}

static __attribute__((noinline)) ssize_t
poll_all(struct kedge_channel *ch, struct kedge_completion *out, size_t n)
{
	size_t got;

	NO_CANCEL();
	ch->leaves = n;
	if (likely(!ch->dead))
		channel_progress(ch, n ? n : UINT32_MAX, false);
	ch->leaves = false;
	got = completions_take(ch, out, n);
	return got || !ch->dead || ch->done.head != ch->done.tail
		       ? (ssize_t)got : channel_gone(ch);
}

/*
 * Short messages, at least one packet is there; or all. After a pause one message:
 * a peer that sends them one by one waits for the answer, and a look at whether
 * another is there takes as long as a cache line from the peer.
 */
static __attribute__((noinline)) ssize_t
poll_short(struct kedge_channel *ch, struct kedge_completion *out, size_t n)
{
	size_t max = n < PACKETS_A_POLL ? n : PACKETS_A_POLL, got = 0;

	if (ch->idle_polls)
		max = 1;
	ch->idle_polls = 0;
	while (got < max && take_short(ch, &out[got]) > 0)
		got++;
	return got ? (ssize_t)got : poll_all(ch, out, n);
}

KEDGE_API ssize_t kedge_channel_poll(struct kedge_channel *ch,
				     struct kedge_completion *out, size_t n)
{
	if (unlikely(!ch || (!out && n)))
		return channel_invalid("the channel or the place for completions "
				       "is NULL");
	if (unlikely(!is_ours(ch)))
		return channel_gone(ch);
	if (unlikely(ch->busy || ch->done.head != ch->done.tail || !n ||
		     ++ch->quick >= ch->quick_max ||
		     (ch->quick % CLOCK_POLLS == 0 &&
		      clock_coarse_ns() != ch->looked)))
		return poll_all(ch, out, n);
	if (ring_peek(ch->ring))
		return poll_short(ch, out, n);
	ch->idle_polls++;
	return 0;
}
