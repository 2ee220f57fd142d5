// SPDX-License-Identifier: BSD-2-Clause
/* The end of a channel for all of its operations: the peer is gone, or is left. */
#include <stdio.h>

#include "channel/internal.h"

/* The sender had said that all of it has landed: the rest is this side's work. */
static bool lands_still(struct kedge_channel *ch, struct op *op)
{
	while (op->state == OP_LAND && op->bulk.flags & BULK_FIN)
		if (!rndv_step(ch, op))
			return false;
	return op->state == OP_FREE;
}

/* The peer is gone, and touches no memory. A sender that has no word of it has
 * failed: whether the message was received is not known. */
static void op_dies(struct kedge_channel *ch, struct op *op, int why)
{
	if (lands_still(ch, op))
		return;
	if (op->bulk_open && op->bulk.flags & BULK_SAID)
		why = 0;
	linger_no_more(ch, op);
	bulk_close(ch, op);
	op_done(ch, op, why);
}

void channel_ends(struct kedge_channel *ch, int why)
{
	struct list *heads[] = { &ch->queued, &ch->active, &ch->idle,
				 &ch->posted_any };
	struct list *l, *tmp;
	size_t i;

	ch->dead = why;
	ch->busy = true;
	arrive_dies(ch);
	for (i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each_safe(l, tmp, heads[i])
			op_dies(ch, list_entry(l, struct op, node), why);
	for (i = 0; i < match_buckets(&ch->posted); i++)
		list_for_each_safe(l, tmp, &ch->posted.bucket[i])
			op_dies(ch, list_entry(l, struct op, node), why);
	unexpected_drop_rts(ch);
}

/* The reason is still this call's; later ones are told the same. */
static void note_why(struct kedge_channel *ch, int why)
{
	const char *text = ch->bye ? "the peer has closed the channel"
				   : kedge_strerror(why);

	snprintf(ch->why, sizeof(ch->why), "%s%s", text,
		 why == -ECONNRESET ? ": close this end, too, and open another "
				      "channel" : "");
	kedge_reason(why, "%s", ch->why);
}

void channel_dies(struct kedge_channel *ch, int why)
{
	note_why(ch, why);
	channel_ends(ch, why);
}
