// SPDX-License-Identifier: BSD-2-Clause
/*
 * The table of operations and the queue of completions. There is always room
 * for a completion of every live operation, so that no completion can be lost: its
 * room is made when the operation is.
 */
#include <stdlib.h>

#include "channel/internal.h"

#define OPS_SLAB 64u
#define OPS_MAX	 (1u << 24)

static int completions_room(struct completions *d, uint32_t cnt)
{
	uint32_t cap = d->cap ? d->cap : 64, i;
	struct kedge_completion *v;

	while (cap < cnt)
		cap *= 2;
	v = calloc(cap, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (i = d->head; i != d->tail; i++)
		v[i & (cap - 1)] = d->v[i & (d->cap - 1)];
	free(d->v);
	d->v = v;
	d->cap = cap;
	return 0;
}

int ops_init(struct kedge_channel *ch)
{
	list_init(&ch->free_ops);
	list_init(&ch->queued);
	list_init(&ch->active);
	list_init(&ch->idle);
	list_init(&ch->timed);
	list_init(&ch->lingering);
	return completions_room(&ch->done, 1);
}

void ops_fini(struct kedge_channel *ch)
{
	uint32_t i;

	for (i = 0; i < ch->slab_cnt; i++)
		free(ch->slab[i]);
	free(ch->slab);
	free(ch->done.v);
}

static int ops_grow(struct kedge_channel *ch)
{
	struct op **slab, *ops;
	uint32_t i;

	if (ch->slab_cnt >= OPS_MAX / OPS_SLAB)
		return -ENOMEM;
	ops = calloc(OPS_SLAB, sizeof(*ops));
	if (!ops)
		return -ENOMEM;
	slab = realloc(ch->slab, (ch->slab_cnt + 1) * sizeof(*slab));
	if (!slab) {
		free(ops);
		return -ENOMEM;
	}
	ch->slab = slab;
	slab[ch->slab_cnt] = ops;
	for (i = 0; i < OPS_SLAB; i++) {
		ops[i].index = ch->slab_cnt * OPS_SLAB + i;
		list_init(&ops[i].timed);
		list_add_tail(&ch->free_ops, &ops[i].node);
	}
	ch->slab_cnt++;
	return 0;
}

int ops_room(struct kedge_channel *ch)
{
	struct completions *d = &ch->done;
	uint32_t cnt = ch->live_ops + (d->tail - d->head) + 1;

	if (cnt > d->cap && completions_room(d, cnt))
		return -ENOMEM;
	match_expect(ch, d->cap);
	return list_empty(&ch->free_ops) ? ops_grow(ch) : 0;
}

struct op *op_find(struct kedge_channel *ch, struct op_name name)
{
	struct op *op;

	if (name.index >= ch->slab_cnt * OPS_SLAB)
		return NULL;
	op = &ch->slab[name.index / OPS_SLAB][name.index % OPS_SLAB];
	return op->state != OP_FREE && op->gen == name.gen ? op : NULL;
}

void op_move(struct kedge_channel *ch, struct op *op, struct list *list,
	     enum op_state state)
{
	list_remove(&op->node);
	list_add_tail(list, &op->node);
	op->state = state;
}

int channel_gone(const struct kedge_channel *ch)
{
	if (unlikely(!is_ours(ch)))
		return kedge_reason(-ECHILD, "the channel belongs to the parent "
				    "process: after fork the child opens its "
				    "own");
	return unlikely(ch->dead) ? kedge_reason(ch->dead, "%s", ch->why) : 0;
}
