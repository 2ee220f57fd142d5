// SPDX-License-Identifier: BSD-2-Clause
/*
 * Progress: what came, what is under way, what waits, whose time is up, and
 * whether the peer is still there. The last two cost a system call and are
 * looked at now and then.
 */
#include "channel/internal.h"

#define PACKETS_A_POLL 64
#define IDLE_POLLS     32u
#define CHECK_POLLS    4096u /* idle polls between looks at the peer */
#define PACKETS_LAST   65536u /* more than those a dead peer has under way */

void matched(struct kedge_channel *ch, uint64_t eager_bytes)
{
	ch->matched_cnt++;
	ch->matched_bytes += (uint32_t)eager_bytes;
	send_credit(ch);
}

static int eager_early(struct kedge_channel *ch, const struct packet_head *h,
		       const void *data)
{
	struct packet p = { .head = *h, .data = data };

	return early_add(ch, &p);
}

static int eager_came(struct kedge_channel *ch, const struct packet_head *h,
		      const void *data)
{
	struct op *op = match_posted(ch, h->tag);
	size_t len = h->len;
	int rc;

	if (!op) {
		rc = eager_early(ch, h, data);
		if (rc)
			return rc;
	}
	ch->came_cnt++;
	ch->came_bytes += (uint32_t)len;
	if (!op)
		return 0;
	op->tag = h->tag;
	op->msg_len = len;
	if (likely(len <= op->len)) {
		copy_short(op->buf, data, len);
		op_done(ch, op, 0);
	} else {
		op_done(ch, op, -EMSGSIZE);
	}
	matched(ch, len);
	return 0;
}

static int rts_came(struct kedge_channel *ch, const struct packet *p)
{
	struct op *op = match_posted(ch, p->head.tag);

	if (!op) {
		int rc = early_add(ch, p);

		if (!rc)
			ch->came_cnt++;
		return rc;
	}
	ch->came_cnt++;
	op->tag = p->head.tag;
	op->since = clock_ns();
	rndv_matched(ch, op, p->rts.len, p->rts.sender, p->rts.desc,
		     p->rts.desc_len);
	matched(ch, 0);
	return 0;
}

static int control_came(struct kedge_channel *ch, const void *raw,
			struct packet *p)
{
	int rc = packet_parse_body(raw, p);

	if (rc)
		return rc;
	switch (p->head.type) {
	case PACKET_RTS:
		return rts_came(ch, p);
	case PACKET_CTS:
		return rndv_cts(ch, p);
	case PACKET_FIN:
		return rndv_fin(ch, p);
	case PACKET_REFUSE:
		return rndv_refuse(ch, p);
	case PACKET_ABORT:
		return abort_came(ch, p);
	case PACKET_ABORTED:
		return aborted_came(ch, p);
	case PACKET_BYE:
		ch->bye = true;
	}
	return 0;
}

static int packet_came(struct kedge_channel *ch, const void *raw, size_t len)
{
	struct packet p;
	int rc = packet_parse_head(raw, len, &p.head);

	if (unlikely(rc))
		return rc;
	ch->credit_cnt = p.head.credit_cnt;
	ch->credit_bytes = p.head.credit_bytes;
	if (likely(p.head.type == PACKET_EAGER && p.head.len <= ch->peer.eager_max))
		return eager_came(ch, &p.head,
				  (const char *)raw + sizeof(p.head));
	return control_came(ch, raw, &p);
}

/* Packets taken, until so many completions wait; a packet for which there is no
 * memory waits. */
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
		rc = packet_came(ch, raw, len);
		if (unlikely(rc == -ENOMEM))
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
 * Where we move the data ourselves, those of one message do, the earliest that
 * can: it is done sooner, while what it is made of is in the caches, and the
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

	while (!list_empty(&ch->timed)) {
		op = list_entry(ch->timed.next, struct op, timed);
		if (op->deadline > now)
			return;
		list_remove(&op->timed);
		give_up(ch, op, -ETIMEDOUT);
	}
}

/* The peer may have died with packets under way to us: those first. One that
 * pretends to be dead and goes on sending is not listened to for ever. */
static void check_peer(struct kedge_channel *ch)
{
	int rc = ch->t->check(ch->ctx);
	size_t n, got;

	if (!rc)
		return;
	for (n = 0; n < PACKETS_LAST && !ch->dead && !ch->bye; n += got) {
		got = take_packets(ch, UINT32_MAX);
		if (!got)
			break;
	}
	if (!ch->dead)
		channel_dies(ch, rc);
}

/* What is done where nothing moves: seldom, as who polls waits for a message. */
static __attribute__((noinline)) void idle(struct kedge_channel *ch,
					   uint32_t idle_max)
{
	/* There was no room for it, perhaps, when it was due. */
	send_credit(ch);
	if (ch->idle_polls < idle_max)
		return;
	ch->idle_polls = 0;
	check_peer(ch);
}

bool channel_progress(struct kedge_channel *ch, size_t max, uint32_t idle_max)
{
	bool moved = take_packets(ch, max);

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
	if (!list_empty(&ch->timed) && ++ch->timer_polls >= TIMER_POLLS) {
		ch->timer_polls = 0;
		check_timers(ch);
	}
	if (moved)
		ch->idle_polls = 0;
	else if (unlikely(++ch->idle_polls % IDLE_POLLS == 0 ||
			  ch->idle_polls >= idle_max))
		idle(ch, idle_max);
	if (ch->t->flush)
		ch->t->flush(ch->ctx);
	return moved;
}

KEDGE_API ssize_t kedge_channel_poll(struct kedge_channel *ch,
				     struct kedge_completion *out, size_t n)
{
	size_t got;

	if (unlikely(!ch || (!out && n)))
		return -EINVAL;
	if (unlikely(!is_ours(ch)))
		return channel_gone(ch);
	if (likely(!ch->dead))
		channel_progress(ch, n ? n : UINT32_MAX, CHECK_POLLS);
	got = completions_take(ch, out, n);
	return got || !ch->dead || ch->done.head != ch->done.tail
		       ? (ssize_t)got : ch->dead;
}
