/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What every short message goes through, to be inlined: operations, their
 * completions, and the match of a message with a receive for its tag. The end
 * of internal.h.
 */
#ifndef CHANNEL_FAST_H
#define CHANNEL_FAST_H

/* A copy that is worth no call where it is short. */
static inline void copy_short(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;

	if (len == 8)
		memcpy(d, s, 8);
	else if (len > 16)
		copy_bytes(d, s, len);
	else
		while (len--)
			*d++ = *s++;
}

/* NULL: no memory. */
static inline struct op *op_get(struct kedge_channel *ch)
{
	struct completions *d = &ch->done;
	struct op *op;

	if (unlikely(ch->live_ops + (d->tail - d->head) >= d->cap ||
		     list_empty(&ch->free_ops)) && ops_room(ch))
		return NULL;
	op = list_entry(ch->free_ops.next, struct op, node);
	list_remove(&op->node);
	ch->live_ops++;
	/* 0 is no operation's name. */
	if (unlikely(!++op->gen))
		op->gen = 1;
	op->reported = false;
	op->bulk_open = false;
	op->peer = (struct op_name){ 0 };
	op->way = KEDGE_WAY_EAGER;
	op->landing.cnt = 0;
	return op;
}

static inline void op_put(struct kedge_channel *ch, struct op *op)
{
	list_remove(&op->node);
	op->state = OP_FREE;
	ch->live_ops--;
	/* The latest first: it is in the processor's cache. */
	list_add_tail(ch->free_ops.next, &op->node);
}

/* Its completion; the operation stays. */
static inline void op_report(struct kedge_channel *ch, struct op *op,
			     int status)
{
	struct completions *d = &ch->done;
	struct kedge_completion *c;

	if (unlikely(op->reported))
		return;
	op->reported = true;
	if (unlikely(!list_empty(&op->timed)))
		list_remove(&op->timed);
	if (unlikely(status)) {
		ch->st.failed++;
	} else if (op->is_recv) {
		ch->st.received++;
		ch->st.bytes_received += op->msg_len;
		ch->st.ways[op->way]++;
	}
	c = &d->v[d->tail++ & (d->cap - 1)];
	c->user = op->user;
	c->tag = op->tag;
	c->len = op->msg_len;
	c->status = status;
	c->flags = op->is_recv ? KEDGE_COMPLETION_RECV : 0;
	c->way = op->way;
	c->reserved = 0;
}

/* Its completion if there was none, and its end. */
static inline void op_done(struct kedge_channel *ch, struct op *op, int status)
{
	op_report(ch, op, status);
	op_put(ch, op);
}

static inline size_t completions_take(struct kedge_channel *ch,
				      struct kedge_completion *out, size_t n)
{
	struct completions *d = &ch->done;
	size_t i;

	for (i = 0; i < n && d->head != d->tail; i++)
		out[i] = d->v[d->head++ & (d->cap - 1)];
	return i;
}

static inline uint32_t tag_bucket(uint64_t tag)
{
	return (uint32_t)((tag * 0x9e3779b97f4a7c15u) >> 58);
}

static inline void match_post(struct kedge_channel *ch, struct op *op)
{
	struct list *l = &ch->posted_any;

	if (op->mask == UINT64_MAX)
		l = &ch->posted[tag_bucket(op->tag)];
	op->seq = ch->seq++;
	op->state = OP_POSTED;
	list_add_tail(l, &op->node);
}

/* The earliest posted receive for a tag; it is in no list then. Or NULL. */
static inline struct op *match_posted(struct kedge_channel *ch, uint64_t tag)
{
	struct list *head = &ch->posted[tag_bucket(tag)], *l;
	struct op *op = NULL;

	for (l = head->next; l != head; l = l->next) {
		op = list_entry(l, struct op, node);
		if (op->tag == tag)
			break;
		op = NULL;
	}
	if (!list_empty(&ch->posted_any))
		op = match_posted_slow(ch, tag, op);
	if (op)
		list_remove(&op->node);
	return op;
}

#endif /* CHANNEL_FAST_H */
