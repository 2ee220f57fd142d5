/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The short way: a short message over a ring (ring.h), sent or taken by one function
 * into which all is inlined. It does what most messages need and says no to the
 * rest before it has changed anything; the long way (send.c, progress.c) does
 * everything.
 */
#ifndef CHANNEL_SHORT_H
#define CHANNEL_SHORT_H

#include "channel/internal.h"

#define SHORT_MAX 8192u /* bytes of a message: beyond, the copy is what counts */

static inline void head_fill(struct kedge_channel *ch, struct packet_head *h,
			     uint8_t type, size_t len, uint64_t tag)
{
	*h = (struct packet_head){
		.type = type,
		.len = (uint32_t)len,
		.tag = tag,
		.credit_cnt = ch->matched_cnt,
		.credit_bytes = ch->matched_bytes,
	};
	ch->advertised_cnt = ch->matched_cnt;
	ch->advertised_bytes = ch->matched_bytes;
}

/* The peer takes one more message, be it matched or not. */
static inline bool may_announce(const struct kedge_channel *ch)
{
	return ch->sent_cnt - ch->credit_cnt < ch->peer.unexpected_cnt;
}

/* It takes the data of a short one, too. */
static inline bool room_for(const struct kedge_channel *ch, size_t eager)
{
	return !eager || ch->sent_bytes - ch->credit_bytes + eager <=
				 ch->peer.unexpected_bytes;
}

/* The peer is to be told what was matched, though no packet goes to it that could
 * say so: half of what it may send is used up. */
static inline bool credit_due(const struct kedge_channel *ch)
{
	return ch->received_cnt - ch->advertised_cnt >=
		       ch->opts.unexpected_cnt / 2 ||
	       ch->received_bytes - ch->advertised_bytes >=
		       (uint32_t)ch->opts.unexpected_bytes / 2;
}

/* True: it is sent. */
static inline bool send_short(struct kedge_channel *ch, const void *buf,
			      size_t len, uint64_t tag)
{
	struct ring *r = ch->ring;
	struct packet_head *h;

	if (unlikely(!r || len > SHORT_MAX || len > ch->peer.eager_max ||
		     ch->dead || !is_ours(ch) || !list_empty(&ch->queued) ||
		     !may_announce(ch) || !room_for(ch, len) ||
		     access_check(&ch->access, buf, len, false)))
		return false;
	h = ring_reserve_short(r, sizeof(*h) + len);
	if (unlikely(!h))
		return false;
	head_fill(ch, h, PACKET_EAGER, len, tag);
	copy_short(h + 1, buf, len);
	ring_commit_short(r, sizeof(*h) + len);
	ch->answers = false;
	ch->sent_cnt++;
	ch->sent_bytes += (uint32_t)len;
	count(&ch->st.sent, 1);
	count(&ch->st.bytes_sent, len);
	return true;
}

/* True: a receive is posted. No message was there that it could take. */
static inline bool recv_short(struct kedge_channel *ch, void *buf, size_t len,
			      uint64_t tag, uint64_t mask, uint64_t user,
			      uint64_t *name)
{
	struct op *op;

	if (unlikely(ch->dead || !is_ours(ch) || !list_empty(&ch->unexpected) ||
		     ch->opts.timeout_ms || !op_ready(ch)))
		return false;
	op = op_take(ch);
	op->is_recv = true;
	op->buf = buf;
	op->len = len;
	op->msg_len = 0;
	op->tag = tag;
	op->mask = mask;
	op->user = user;
	if (name)
		*name = (uint64_t)op->gen << 32 | op->index;
	match_post(ch, op);
	return true;
}

/* The first word of every packet of a type and a length. */
static inline uint64_t head_word(uint8_t type, uint32_t len)
{
	const struct packet_head h = { .type = type, .len = len };
	uint64_t word;

	memcpy(&word, &h, sizeof(word));
	return word;
}
_Static_assert(offsetof(struct packet_head, tag) == 8, "the word before it");
_Static_assert(offsetof(struct kedge_channel, credit_bytes) ==
	       offsetof(struct kedge_channel, credit_cnt) + 4, "as in a packet");
_Static_assert(offsetof(struct packet_head, credit_cnt) == 16 &&
	       sizeof(struct packet_head) == 24, "the word behind it");

/* The receive that has got all of @len bytes is ready for another message. */
static inline void short_done(struct kedge_channel *ch, struct op *op,
			      uint32_t len, struct kedge_completion *c)
{
	if (unlikely(!list_empty(&op->timed)))
		list_remove(&op->timed);
	*c = (struct kedge_completion){
		.user = op->user,
		.tag = op->tag,
		.len = len,
		.flags = KEDGE_COMPLETION_RECV,
		.way = KEDGE_WAY_EAGER,
	};
	op_free(ch, op);
	count(&ch->st.received, 1);
	count(&ch->st.bytes_received, len);
	count(&ch->st.ways[KEDGE_WAY_EAGER], 1);
	ch->received_cnt++;
	ch->received_bytes += len;
	ch->matched_cnt++;
	ch->matched_bytes += len;
}

/*
 * 1: a short message is taken, and @c is the completion of its receive; 0: there
 * is no packet; -1: there is something else, for the long way.
 */
static inline int take_short(struct kedge_channel *ch, struct kedge_completion *c)
{
	struct ring *r = ch->ring;
	const uint8_t *data = r->in_at->data;
	uint32_t cells, len;
	uint64_t head[3];
	struct op *op;

	if (unlikely(!ring_peek(r)))
		return 0;
	len = ring_short(r, sizeof(head) + SHORT_MAX);
	cells = ring_cells(len);
	len -= (uint32_t)sizeof(head);
	/* Read once: the peer may write it again. A length below that of a head
	 * is now above any. */
	memcpy(head, data, sizeof(head));
	compiler_fence();
	if (unlikely(head[0] != head_word(PACKET_EAGER, len) ||
		     len > ch->peer.eager_max || !list_empty(&ch->posted_any)))
		return -1;
	op = match_exact(ch, head[1]);
	if (unlikely(!op || op->packed || len > op->len ||
		     access_check(&ch->access, op->buf, len, true)))
		return -1;
	copy_short(op->buf, data + sizeof(head), len);
	ring_release_short(r, cells);
	ch->answers = true;
	memcpy((char *)ch + offsetof(struct kedge_channel, credit_cnt), &head[2],
	       sizeof(head[2]));
	short_done(ch, op, len, c);
	if (unlikely(credit_due(ch)))
		send_credit(ch);
	return 1;
}

#endif /* CHANNEL_SHORT_H */
