/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The path of every short message, to be inlined: operations, their completions,
 * and the match of a message with a receive for its tag. The end of internal.h.
 */
#ifndef CHANNEL_FAST_H
#define CHANNEL_FAST_H

/* A copy that is worth no call where it is short: the first bytes and the last,
 * which may be the same. */
static inline void copy_short(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;
	uint64_t from8, to8;
	uint32_t from4, to4;

	if (len > 16) {
		copy_bytes(d, s, len);
	} else if (len >= 8) {
		memcpy(&from8, s, 8);
		memcpy(&to8, s + len - 8, 8);
		memcpy(d, &from8, 8);
		memcpy(d + len - 8, &to8, 8);
	} else if (len >= 4) {
		memcpy(&from4, s, 4);
		memcpy(&to4, s + len - 4, 4);
		memcpy(d, &from4, 4);
		memcpy(d + len - 4, &to4, 4);
	} else {
		while (len--)
			*d++ = *s++;
	}
}

/* There is an operation, and room for its completion. */
static inline bool op_ready(const struct kedge_channel *ch)
{
	const struct completions *d = &ch->done;

	return ch->live_ops + (d->tail - d->head) < d->cap &&
	       !list_empty(&ch->free_ops);
}

static inline struct op *op_take(struct kedge_channel *ch)
{
	struct op *op = list_entry(ch->free_ops.next, struct op, node);

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
	op->packed = NULL;
	return op;
}

/* NULL: no memory. */
static inline struct op *op_get(struct kedge_channel *ch)
{
	return likely(op_ready(ch)) || !ops_room(ch) ? op_take(ch) : NULL;
}

/* It has given up all that it owned. The latest first: it is in the processor's
 * cache. */
static inline void op_free(struct kedge_channel *ch, struct op *op)
{
	op->node.prev->next = op->node.next;
	op->node.next->prev = op->node.prev;
	op->state = OP_FREE;
	ch->live_ops--;
	list_add_tail(ch->free_ops.next, &op->node);
}

static inline void op_put(struct kedge_channel *ch, struct op *op)
{
	if (unlikely(op->packed))
		packed_free(op->packed);
	op_free(ch, op);
}

static inline void completion_fill(struct kedge_completion *c,
				   const struct op *op, int status)
{
	c->user = op->user;
	c->tag = op->tag;
	c->len = op->msg_len;
	c->status = status;
	c->flags = op->is_recv ? KEDGE_COMPLETION_RECV : 0;
	c->way = op->way;
	c->reserved = 0;
}

static inline void count_received(struct kedge_channel *ch, const struct op *op)
{
	count(&ch->st.received, 1);
	count(&ch->st.bytes_received, op->msg_len);
	count(&ch->st.ways[op->way], 1);
}

/* Its completion; the operation stays. */
static inline void op_report(struct kedge_channel *ch, struct op *op,
			     int status)
{
	struct completions *d = &ch->done;

	if (unlikely(op->reported))
		return;
	op->reported = true;
	if (unlikely(!list_empty(&op->timed)))
		list_remove(&op->timed);
	if (unlikely(op->packed) && op->is_recv && !status)
		status = packed_scatter(ch, op->packed, op->msg_len);
	if (unlikely(status))
		count(&ch->st.failed, 1);
	else if (op->is_recv)
		count_received(ch, op);
	completion_fill(&d->v[d->tail++ & (d->cap - 1)], op, status);
}

/* Its completion, unless it is out already, and its end. */
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

static inline struct list *match_bucket(const struct match_table *t,
					uint64_t key)
{
	return &t->bucket[(key * t->factor) >> t->shift];
}

static inline void match_post(struct kedge_channel *ch, struct op *op)
{
	struct list *l = &ch->posted_any;

	if (op->mask == UINT64_MAX)
		l = match_bucket(&ch->posted, op->tag);
	op->seq = ch->seq++;
	op->state = OP_POSTED;
	list_add_tail(l, &op->node);
}

/* The earliest receive that was posted for this tag alone; it stays. Or NULL. */
static inline struct op *match_exact(struct kedge_channel *ch, uint64_t tag)
{
	struct list *head = match_bucket(&ch->posted, tag), *l;
	struct op *op;

	for (l = head->next; l != head; l = l->next) {
		op = list_entry(l, struct op, node);
		if (likely(op->tag == tag))
			return op;
	}
	return NULL;
}

#define LEFT_POLLS 64u

/*
 * A message that no receive waits for stays where it is, while the poll that found
 * it has completions to return: what is done with those is mostly to post the
 * receive that it goes to. If it were put aside it would be copied twice, and so
 * would all behind it in a stream, as each receive then takes a message that was
 * put aside before. It does not stay for ever, as others may be behind it for which
 * receives wait.
 */
static inline bool stays(struct kedge_channel *ch)
{
	if (!ch->leaves || ch->done.tail == ch->done.head)
		return false;
	if (++ch->left_polls < LEFT_POLLS)
		return true;
	ch->left_polls = 0;
	return false;
}

/* The earliest posted receive for a tag; it is in no list then. Or NULL. */
static inline struct op *match_posted(struct kedge_channel *ch, uint64_t tag)
{
	struct op *op = match_exact(ch, tag);

	if (!list_empty(&ch->posted_any))
		op = match_posted_slow(ch, tag, op);
	if (op)
		list_remove(&op->node);
	return op;
}

#endif /* CHANNEL_FAST_H */
