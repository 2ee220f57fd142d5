// SPDX-License-Identifier: BSD-2-Clause
/*
 * By which way a message is received.
 */
#include "channel/internal.h"

#define PULL_MIN (256u << 10)

static uint32_t choose(const struct kedge_channel *ch, const struct op *op,
		       uint32_t ready)
{
	if (ch->opts.way != KEDGE_WAY_AUTO)
		return ch->opts.way;
	if (ready & READY_HEAP)
		return KEDGE_WAY_DIRECT;
	if (ready & READY_DIRECT && op->msg_len >= PULL_MIN)
		return KEDGE_WAY_DIRECT;
	return KEDGE_WAY_COPY;
}

static int accept_as(struct kedge_channel *ch, struct op *op, uint32_t flags,
		     const void *rts, size_t rts_len)
{
	size_t len = 0;
	int rc;

	op->whole = (struct bulk_piece){ (uintptr_t)op->buf, op->msg_len };
	op->bulk = (struct bulk){ .flags = BULK_RECV | flags,
				  .piece = &op->whole,
				  .piece_cnt = 1,
				  .len = op->msg_len };
	rc = ch->t->accept(ch->ctx, &op->bulk, rts, rts_len, op->desc, &len);
	if (rc)
		return rc;
	op->bulk_open = true;
	op->desc_len = (uint32_t)len;
	return 0;
}

int way_accept(struct kedge_channel *ch, struct op *op, const void *rts,
	       size_t rts_len)
{
	uint32_t ready = ch->t->ready(ch->ctx, op->buf, op->msg_len);
	uint32_t way = choose(ch, op, ready), flags;
	int rc = -EOPNOTSUPP;

	if (way == KEDGE_WAY_DIRECT && ready & READY_DIRECT) {
		op->way = way;
		flags = ready & READY_HEAP ? BULK_HEAP : 0;
		rc = accept_as(ch, op, flags, rts, rts_len);
	}
	if (rc == -EOPNOTSUPP) {
		op->way = KEDGE_WAY_COPY;
		rc = accept_as(ch, op, BULK_STREAM, rts, rts_len);
	}
	return rc;
}

int way_finish(struct kedge_channel *ch, struct op *op)
{
	(void)ch;
	(void)op;
	return 0;
}

void way_drop(struct kedge_channel *ch, struct op *op)
{
	(void)ch;
	(void)op;
}
