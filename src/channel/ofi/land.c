// SPDX-License-Identifier: BSD-2-Clause
/*
 * The receiver's side of a flow: it says where the data may land, and for how
 * long. Direct: the pieces themselves, each by a key that is made for it and
 * ends with it. Stream: a window of our own, from which it is copied out; the
 * peer never reaches the pieces, so giving such a flow up never waits, and
 * the window is kept until the peer has let go of it.
 */
#include <stdlib.h>

#include "channel/ofi/internal.h"

/* Windows kept for the next stream. */
#define SPARE_WINDOWS 2u

static void end_regs(struct ofi *o, struct flow *f)
{
	while (f->mr_cnt)
		kedge__ofi_lend_end(o, &f->mr[--f->mr_cnt]);
	if (f->table_mr)
		fi_close(&f->table_mr->fid);
	f->table_mr = NULL;
}

void kedge__ofi_land_free(struct ofi *o, struct flow *f)
{
	end_regs(o, f);
	if (f->window && !o->err && o->spare_cnt < SPARE_WINDOWS) {
		list_add_tail(&o->spare_windows, &f->window->node);
		o->spare_cnt++;
	} else if (f->window) {
		kedge__ofi_block_close(o, f->window);
	}
	kedge__ofi_flow_free(f);
}

/* ---- direct ---- */

static int lend_pieces(struct ofi *o, struct flow *f)
{
	const struct bulk *b = f->bulk;
	uint64_t left = f->len, len;
	uint32_t i;
	int rc;

	for (i = 0; i < b->piece_cnt && left; i++) {
		len = b->piece[i].len < left ? b->piece[i].len : left;
		if (!len)
			continue;
		rc = kedge__ofi_mapped(b->piece[i].addr, len);
		if (!rc)
			rc = kedge__ofi_lend(o, b->piece[i].addr, len,
					     &f->mr[f->mr_cnt]);
		if (rc)
			return rc;
		f->target[f->mr_cnt] = (struct ofi_target){
			.addr = f->mr[f->mr_cnt].addr,
			.len = len,
			.key = f->mr[f->mr_cnt].key,
		};
		f->mr_cnt++;
		left -= len;
	}
	return left ? kedge_reason(-EINVAL, "the pieces are shorter than the "
					    "message") : 0;
}

static int describe_direct(struct ofi *o, struct flow *f, struct ofi_desc *d)
{
	size_t len = f->mr_cnt * sizeof(*f->target);
	int rc;

	d->cnt = f->target_cnt = f->mr_cnt;
	d->kind = DESC_DIRECT;
	if (f->mr_cnt <= DESC_TARGETS) {
		memcpy(d->target, f->target, len);
		return 0;
	}
	rc = kedge__ofi_reg(o, f->target, len, FI_REMOTE_READ, &f->table_mr);
	if (rc)
		return rc;
	d->kind = DESC_TABLE;
	d->target[0] = (struct ofi_target){
		.addr = ofi_addr(o, f->target),
		.len = len,
		.key = fi_mr_key(f->table_mr),
	};
	return 0;
}

static int accept_direct(struct ofi *o, struct flow *f, struct ofi_desc *d)
{
	uint32_t cnt = f->bulk->piece_cnt;
	int rc;

	if (cnt > TABLE_TARGETS)
		return kedge_reason(-EOPNOTSUPP, "%u pieces are too many", cnt);
	f->mr = calloc(cnt, sizeof(*f->mr));
	f->target = calloc(cnt, sizeof(*f->target));
	if (!f->mr || !f->target)
		return kedge_reason(-ENOMEM, "no memory for a message");
	rc = lend_pieces(o, f);
	return rc ? rc : describe_direct(o, f, d);
}

/* ---- stream ---- */

static struct ofi_block *take_window(struct ofi *o)
{
	struct ofi_block *w;

	if (list_empty(&o->spare_windows))
		return kedge__ofi_block_open(o, SLOT_CNT * SLOT_LEN, true);
	w = list_entry(o->spare_windows.next, struct ofi_block, node);
	list_remove(&w->node);
	o->spare_cnt--;
	return w;
}

static int accept_stream(struct ofi *o, struct flow *f, struct ofi_desc *d)
{
	f->stream = true;
	/* Short messages overlap copying and sending, too. */
	f->slot_len = f->len < 4 * SLOT_LEN ? SLOT_LEN / 4 : SLOT_LEN;
	f->slot_cnt = SLOT_CNT;
	if (f->len / f->slot_len >= UINT32_MAX)
		return kedge_reason(-EOPNOTSUPP, "too long to be copied out");
	f->window = take_window(o);
	if (!f->window)
		return kedge_reason(-ENOMEM, "no memory for a window");
	d->kind = DESC_STREAM;
	d->cnt = 1;
	d->slot_cnt = f->slot_cnt;
	d->slot_len = f->slot_len;
	d->target[0] = (struct ofi_target){
		.addr = f->window->mr.addr,
		.len = f->slot_cnt * f->slot_len,
		.key = f->window->mr.key,
	};
	return 0;
}

/* From one slot to the pieces. */
static void copy_out(struct flow *f)
{
	const char *from = f->window->at +
			   f->drained % f->slot_cnt * f->slot_len;
	uint64_t left = f->len - f->drained * f->slot_len, len;
	const struct bulk_piece *p;

	if (left > f->slot_len)
		left = f->slot_len;
	for (; left; left -= len) {
		p = &f->bulk->piece[f->dst];
		len = p->len - f->dst_off < left ? p->len - f->dst_off : left;
		memcpy((char *)(uintptr_t)p->addr + f->dst_off, from, len);
		from += len;
		f->dst_off += len;
		if (f->dst_off == p->len) {
			f->dst++;
			f->dst_off = 0;
		}
	}
	f->drained++;
}

/* ---- the ops ---- */

int kedge__ofi_bulk_accept(void *ctx, struct bulk *b, const void *rts,
			   size_t rts_len, void *cts, size_t *cts_len)
{
	union ofi_desc_room d;
	struct ofi *o = ctx;
	struct flow *f;
	int rc;

	b->priv[0] = 0;
	if (rts_len)
		return kedge_reason(-EPROTO, "the peer sent a descriptor with "
					     "an RTS, which has none here");
	if (o->err)
		return o->err;
	if (!bulk_fits(b))
		return kedge_reason(-EINVAL, "the pieces do not hold the "
					     "message");
	f = kedge__ofi_flow_new(b, ++o->next_id);
	if (!f)
		return kedge_reason(-ENOMEM, "no memory for a message");
	f->recv = true;
	memset(&d, 0, sizeof(d));
	d.desc.id = f->id;
	d.desc.len = b->len;
	rc = b->flags & BULK_STREAM ? accept_stream(o, f, &d.desc)
				    : accept_direct(o, f, &d.desc);
	if (rc) {
		kedge__ofi_land_free(o, f);
		return rc;
	}
	list_add_tail(&o->landing, &f->node);
	b->priv[0] = (uintptr_t)f;
	o->later = !o->pins;
	*cts_len = sizeof(d.desc) + sizeof(struct ofi_target) *
		   (d.desc.kind == DESC_DIRECT ? d.desc.cnt : 1);
	memcpy(cts, &d, *cts_len);
	return 0;
}

int kedge__ofi_land_step(struct ofi *o, struct flow *f)
{
	const uint32_t before = f->drained;

	if (!f->stream)
		return 1;
	if (f->drained != f->filled) {
		copy_out(f);
		o->say = true;
	}
	if (f->drained == flow_slots(f))
		return 1;
	/* The sender has filled what it will ever fill. */
	if (f->bulk->flags & BULK_FIN && f->filled != flow_slots(f))
		kedge__ofi_die(o, -EPROTO);
	return f->drained != before ? 0 : -EAGAIN;
}

int kedge__ofi_land_stop(struct ofi *o, struct flow *f)
{
	if (f->stream)
		return 0;
	/* After its FIN the sender has no name for the pieces any more. */
	if (f->quiet || f->bulk->flags & BULK_FIN) {
		end_regs(o, f);
		f->quiet = true;
		return 0;
	}
	f->stop_due = o->say = true;
	return kedge__ofi_stop_wait(o, f);
}

void kedge__ofi_land_end(struct ofi *o, struct flow *f, bool fin)
{
	/* @fin: the peer has no write left for this flow. */
	if (f->stream && !o->err && f->drained != flow_slots(f)) {
		/* It goes with the answer. */
		f->stop_due = o->say = true;
		return;
	}
	/* The peer may still write: the connection is given up. */
	if (!f->stream && !fin && !f->quiet)
		kedge__ofi_die(o, -ECONNRESET);
	kedge__ofi_land_free(o, f);
}
