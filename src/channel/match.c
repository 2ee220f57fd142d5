// SPDX-License-Identifier: BSD-2-Clause
/*
 * Which message goes to which receive. Both sides keep their order: receives
 * for one tag in a bucket, others in a list of their own, and a message takes
 * the earliest of both; messages that came early in the order of arrival, and
 * by tag beside.
 */
#include <stdlib.h>

#include "channel/internal.h"

void match_init(struct kedge_channel *ch)
{
	uint32_t i;

	list_init(&ch->posted_any);
	list_init(&ch->early);
	list_init(&ch->replies);
	for (i = 0; i < BUCKETS; i++) {
		list_init(&ch->posted[i]);
		list_init(&ch->early_by_tag[i]);
	}
}

void match_fini(struct kedge_channel *ch)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &ch->early)
		free(list_entry(l, struct early, node));
	list_for_each_safe(l, tmp, &ch->replies)
		free(list_entry(l, struct reply, node));
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

struct early *match_early(struct kedge_channel *ch, uint64_t tag,
			  uint64_t mask)
{
	struct list *l, *tmp, *head = &ch->early_by_tag[tag_bucket(tag)];
	struct early *e;

	if (mask == UINT64_MAX) {
		list_for_each_safe(l, tmp, head) {
			e = list_entry(l, struct early, hash);
			if (e->tag == tag)
				return e;
		}
		return NULL;
	}
	list_for_each_safe(l, tmp, &ch->early) {
		e = list_entry(l, struct early, node);
		if (!((e->tag ^ tag) & mask))
			return e;
	}
	return NULL;
}

int early_add(struct kedge_channel *ch, const struct packet *p)
{
	bool is_rts = p->head.type == PACKET_RTS;
	size_t len = is_rts ? p->rts.desc_len : p->head.len;
	struct early *e;

	if (ch->early_cnt >= ch->opts.unexpected_cnt ||
	    (!is_rts && ch->early_bytes + len > ch->opts.unexpected_bytes))
		return kedge_reason(-EPROTO, "the peer sent more messages than "
				    "it was allowed");
	e = malloc(sizeof(*e) + len);
	if (!e)
		return -ENOMEM;
	e->tag = p->head.tag;
	e->len = is_rts ? p->rts.len : len;
	e->is_rts = is_rts;
	e->sender = is_rts ? p->rts.sender : (struct op_name){ 0 };
	e->desc_len = (uint32_t)len;
	memcpy(e->data, is_rts ? p->rts.desc : p->data, len);
	list_add_tail(&ch->early, &e->node);
	list_add_tail(&ch->early_by_tag[tag_bucket(e->tag)], &e->hash);
	ch->early_cnt++;
	ch->early_bytes += is_rts ? 0 : len;
	ch->st.unexpected++;
	return 0;
}

void early_drop(struct kedge_channel *ch, struct early *e)
{
	list_remove(&e->node);
	list_remove(&e->hash);
	ch->early_cnt--;
	ch->early_bytes -= e->is_rts ? 0 : e->len;
	free(e);
}

struct early *early_find(struct kedge_channel *ch, struct op_name sender)
{
	struct list *l, *tmp;
	struct early *e;

	list_for_each_safe(l, tmp, &ch->early) {
		e = list_entry(l, struct early, node);
		if (e->is_rts && e->sender.index == sender.index &&
		    e->sender.gen == sender.gen)
			return e;
	}
	return NULL;
}

void early_drop_rts(struct kedge_channel *ch)
{
	struct list *l, *tmp;
	struct early *e;

	list_for_each_safe(l, tmp, &ch->early) {
		e = list_entry(l, struct early, node);
		if (e->is_rts)
			early_drop(ch, e);
	}
}
