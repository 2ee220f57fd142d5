// SPDX-License-Identifier: BSD-2-Clause
/*
 * See channel.h. The GIL guards the list.
 *
 * Messages of which either receive could have had either came in the order in which
 * those were posted, as the library matches; a large one that came first may be complete
 * last. Other messages are told apart by when they were complete.
 */
#include <stdlib.h>

#include "channel.h"

static bool is_for(const struct order *receive, uint64_t tag)
{
	return !((receive->tag ^ tag) & receive->mask);
}

static bool are_alike(const struct kept *a, const struct kept *b)
{
	return is_for(&a->order, b->tag) && is_for(&b->order, a->tag);
}

static bool precedes(const struct kept *a, const struct kept *b)
{
	return are_alike(a, b) ? a->order.posted < b->order.posted
			       : a->order.done < b->order.done;
}

static void keep(struct channel *c, struct kept *k)
{
	struct kept **at = &c->kept, **p;

	for (p = &c->kept; *p; p = &(*p)->next)
		if (are_alike(*p, k) && precedes(*p, k))
			at = &(*p)->next;
	while (*at && precedes(*at, k))
		at = &(*at)->next;
	k->next = *at;
	*at = k;
}

int kept_add(struct channel *c, const struct operation *op, const struct kedge_completion *m)
{
	struct kept *k = malloc(sizeof(*k) + m->len);

	if (!k) {
		PyErr_NoMemory();
		return -1;
	}
	k->order = op->order;
	k->tag = m->tag;
	k->len = m->len;
	k->way = m->way;
	if (m->len)
		memcpy(k->data, (const void *)op->range.addr, m->len);
	keep(c, k);
	return 0;
}

static struct kept **find(struct kept **at, uint64_t tag, uint64_t mask)
{
	while (*at && ((*at)->tag ^ tag) & mask)
		at = &(*at)->next;
	return at;
}

const struct kept *kept_find(const struct channel *c, uint64_t tag, uint64_t mask)
{
	struct kept *first = c->kept;

	return *find(&first, tag, mask);
}

/* Its end, with that message: as the library would. */
static void deliver(struct operation *op, struct kept *k, struct kedge_completion *result)
{
	result->tag = k->tag;
	result->len = k->len;
	result->way = k->way;
	result->status = k->len > op->range.len ? -EMSGSIZE : 0;
	if (!result->status && k->len)
		memcpy((void *)op->range.addr, k->data, k->len);
	op->order = k->order;
	free(k);
}

bool kept_take(struct channel *c, struct operation *op)
{
	struct kept **at = find(&c->kept, op->order.tag, op->order.mask), *k = *at;

	if (!k)
		return false;
	*at = k->next;
	deliver(op, k, &op->result);
	return true;
}

/* The receive under way that the library would match it with. */
static struct operation *receive_for(const struct channel *c, const struct kept *k)
{
	struct operation *op, *first = NULL;

	for (op = c->pending; op; op = op->next)
		if (op->recv && !op->given && !op->abandoned && !op->cancelled &&
		    is_for(&op->order, k->tag) &&
		    (!first || op->order.posted < first->order.posted))
			first = op;
	return first;
}

bool kept_offer(struct channel *c)
{
	struct kept **at = &c->kept, *k;
	struct operation *op;
	bool any = false;

	while ((k = *at)) {
		op = receive_for(c, k);
		if (!op) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		op->given = k;
		kedge_channel_cancel(c->ch, op->op);
		any = true;
	}
	return any;
}

void kept_settle(struct channel *c, struct operation *op, struct kedge_completion *result)
{
	struct kept *k = op->given;

	op->given = NULL;
	if (!k)
		return;
	if (op->abandoned || op->cancelled || !c->ch || result->status == -EMSGSIZE) {
		keep(c, k);
		return;
	}
	/* A later message was faster than the cancellation: it waits in this one's place. */
	if (!result->status && kept_add(c, op, result)) {
		PyErr_Clear();
		keep(c, k);
		return;
	}
	deliver(op, k, result);
}

void kept_free(struct channel *c)
{
	struct kept *k;

	while ((k = c->kept)) {
		c->kept = k->next;
		free(k);
	}
}
