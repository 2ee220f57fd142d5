// SPDX-License-Identifier: BSD-2-Clause
/*
 * Matching of messages with receives. Both sides keep their order: receives
 * for one tag in a bucket, others in a list of their own, and a message takes
 * the earliest of both; unexpected messages in the order of arrival, and by tag
 * beside.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "channel/internal.h"

#define BUCKETS_MAX (1u << 20)
#define LOAD	    4u /* entries of a bucket, before there are twice as many */

static void table_init(struct match_table *t, uint64_t factor)
{
	uint32_t i;

	t->bucket = t->small;
	t->factor = factor;
	t->shift = 64 - 6;
	for (i = 0; i < MATCH_SMALL; i++)
		list_init(&t->small[i]);
}
_Static_assert(MATCH_SMALL == 1u << 6, "the hash's top bits");

static void table_fini(struct match_table *t)
{
	if (t->bucket != t->small)
		free(t->bucket);
}

/*
 * Twice as many buckets or more. What one of them holds comes from one bucket of
 * before, as the top bits of the hash choose it, so the order within it stays.
 */
static void table_grow(struct match_table *t, uint32_t cnt,
		       uint64_t (*key_of)(const struct list *l))
{
	struct match_table big = { .factor = t->factor, .shift = t->shift };
	uint32_t old = match_buckets(t), i;
	struct list *l, *tmp;

	while (match_buckets(&big) < BUCKETS_MAX && match_buckets(&big) < cnt)
		big.shift--;
	if (big.shift == t->shift)
		return;
	big.bucket = malloc(match_buckets(&big) * sizeof(*big.bucket));
	if (!big.bucket)
		return;
	for (i = 0; i < match_buckets(&big); i++)
		list_init(&big.bucket[i]);
	for (i = 0; i < old; i++)
		list_for_each_safe(l, tmp, &t->bucket[i]) {
			list_remove(l);
			list_add_tail(match_bucket(&big, key_of(l)), l);
		}
	table_fini(t);
	t->bucket = big.bucket;
	t->shift = big.shift;
}

static uint64_t posted_tag(const struct list *l)
{
	return list_entry(l, const struct op, node)->tag;
}

static uint64_t unexpected_tag(const struct list *l)
{
	return list_entry(l, const struct unexpected, by_tag)->tag;
}

static uint64_t unexpected_sender(const struct list *l)
{
	return list_entry(l, const struct unexpected, by_sender)->sender.index;
}

/* Random, so that a peer cannot choose tags that share a bucket. */
static uint64_t random_factor(void)
{
	uint64_t r;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = 0x9e3779b97f4a7c15u;
	return r | 1;
}

void match_init(struct kedge_channel *ch)
{
	uint64_t factor = random_factor();

	list_init(&ch->posted_any);
	list_init(&ch->unexpected);
	list_init(&ch->replies);
	table_init(&ch->posted, factor);
	table_init(&ch->unexpected_by_tag, factor);
	table_init(&ch->unexpected_by_sender, factor);
}

void match_fini(struct kedge_channel *ch)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &ch->unexpected)
		free(list_entry(l, struct unexpected, node));
	list_for_each_safe(l, tmp, &ch->replies)
		free(list_entry(l, struct reply, node));
	table_fini(&ch->posted);
	table_fini(&ch->unexpected_by_tag);
	table_fini(&ch->unexpected_by_sender);
}

void match_expect(struct kedge_channel *ch, uint32_t cnt)
{
	if (cnt > LOAD * match_buckets(&ch->posted))
		table_grow(&ch->posted, cnt, posted_tag);
}

struct op *match_posted_slow(struct kedge_channel *ch, uint64_t tag,
			     struct op *exact)
{
	struct list *l, *tmp;
	struct op *op;

	list_for_each_safe(l, tmp, &ch->posted_any) {
		op = list_entry(l, struct op, node);
		if (exact && exact->seq < op->seq)
			return exact;
		if (!((op->tag ^ tag) & op->mask))
			return op;
	}
	return exact;
}

struct unexpected *match_unexpected(struct kedge_channel *ch, uint64_t tag,
				    uint64_t mask)
{
	struct list *l, *tmp, *head = match_bucket(&ch->unexpected_by_tag, tag);
	struct unexpected *e;

	if (mask == UINT64_MAX) {
		list_for_each_safe(l, tmp, head) {
			e = list_entry(l, struct unexpected, by_tag);
			if (e->tag == tag)
				return e;
		}
		return NULL;
	}
	list_for_each_safe(l, tmp, &ch->unexpected) {
		e = list_entry(l, struct unexpected, node);
		if (!((e->tag ^ tag) & mask))
			return e;
	}
	return NULL;
}

static void unexpected_link(struct kedge_channel *ch, struct unexpected *e)
{
	if (++ch->unexpected_cnt >
	    LOAD * match_buckets(&ch->unexpected_by_tag)) {
		table_grow(&ch->unexpected_by_tag, ch->unexpected_cnt / 2,
			   unexpected_tag);
		table_grow(&ch->unexpected_by_sender, ch->unexpected_cnt / 2,
			   unexpected_sender);
	}
	list_add_tail(&ch->unexpected, &e->node);
	list_add_tail(match_bucket(&ch->unexpected_by_tag, e->tag), &e->by_tag);
	list_init(&e->by_sender);
	if (e->is_rts)
		list_add_tail(match_bucket(&ch->unexpected_by_sender,
					   e->sender.index), &e->by_sender);
}

/* Room for @len bytes; it is in no list yet. */
static int unexpected_new(struct kedge_channel *ch, const struct packet_head *h,
			  size_t len, struct unexpected **unexpected)
{
	bool is_rts = h->type == PACKET_RTS;
	struct unexpected *e;

	if (ch->unexpected_cnt >= ch->opts.unexpected_cnt ||
	    (!is_rts && ch->unexpected_bytes + len > ch->opts.unexpected_bytes))
		return kedge_reason(-EPROTO, "the peer sent more messages than "
				    "it was allowed");
	e = malloc(sizeof(*e) + len);
	if (!e)
		return -ENOMEM;
	e->tag = h->tag;
	e->len = len;
	e->is_rts = is_rts;
	e->sender = (struct op_name){ 0 };
	e->desc_len = (uint32_t)len;
	e->arriving = false;
	ch->unexpected_bytes += is_rts ? 0 : len;
	count(&ch->st.unexpected, 1);
	*unexpected = e;
	return 0;
}

int unexpected_add(struct kedge_channel *ch, const struct packet *p)
{
	bool is_rts = p->head.type == PACKET_RTS;
	size_t len = is_rts ? p->rts.desc_len : p->head.len;
	struct unexpected *e = NULL;
	int rc = unexpected_new(ch, &p->head, len, &e);

	if (rc)
		return rc;
	if (is_rts) {
		e->len = p->rts.len;
		e->sender = p->rts.sender;
	}
	memcpy(e->data, is_rts ? p->rts.desc : p->eager, len);
	unexpected_link(ch, e);
	return 0;
}

int unexpected_add_arriving(struct kedge_channel *ch,
			    const struct packet_head *h,
			    struct unexpected **unexpected)
{
	int rc = unexpected_new(ch, h, h->len, unexpected);

	if (rc)
		return rc;
	(*unexpected)->arriving = true;
	unexpected_link(ch, *unexpected);
	return 0;
}

void unexpected_drop(struct kedge_channel *ch, struct unexpected *e)
{
	list_remove(&e->node);
	list_remove(&e->by_tag);
	list_remove(&e->by_sender);
	ch->unexpected_cnt--;
	ch->unexpected_bytes -= e->is_rts ? 0 : e->len;
	free(e);
}

struct unexpected *unexpected_find(struct kedge_channel *ch,
				   struct op_name sender)
{
	struct list *l, *tmp, *head;
	struct unexpected *e;

	head = match_bucket(&ch->unexpected_by_sender, sender.index);
	list_for_each_safe(l, tmp, head) {
		e = list_entry(l, struct unexpected, by_sender);
		if (e->sender.index == sender.index &&
		    e->sender.gen == sender.gen)
			return e;
	}
	return NULL;
}

void unexpected_drop_rts(struct kedge_channel *ch)
{
	struct list *l, *tmp;
	struct unexpected *e;

	list_for_each_safe(l, tmp, &ch->unexpected) {
		e = list_entry(l, struct unexpected, node);
		if (e->is_rts)
			unexpected_drop(ch, e);
	}
}
