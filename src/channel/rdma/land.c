// SPDX-License-Identifier: BSD-2-Clause
/*
 * The receiver's side of a flow: it says where the data may land, and for how
 * long. Direct: the pieces themselves, each by a key that is made for it and
 * ends with it. Stream: a window of our own, from which it is copied out; the
 * peer never reaches the pieces, so giving such a flow up never waits, and
 * the window is kept until the peer has let go of it.
 */
#include <stdlib.h>
#include <unistd.h>

#include "channel/rdma/internal.h"

/* Windows kept for the next stream. */
#define SPARE_WINDOWS 2u

static void edges_give(struct rdma *r, struct flow *f, bool out)
{
	while (f->edge_cnt)
		kedge__rdma_edge_give(r, &f->edge[--f->edge_cnt], out);
}

/* True when no window of it is open. */
static bool windows_over(struct rdma *r, struct flow *f)
{
	bool over = true;
	uint32_t i;

	for (i = 0; i < f->mr_cnt; i++)
		if (!kedge__rdma_lend_over(r, &f->mr[i]))
			over = false;
	return over;
}

static void end_regs(struct rdma *r, struct flow *f)
{
	edges_give(r, f, false);
	while (f->mr_cnt)
		kedge__rdma_lend_end(r, &f->mr[--f->mr_cnt]);
	if (f->table_reg)
		r->port->dereg(r, f->table_reg);
	f->table_reg = NULL;
}

void kedge__rdma_land_free(struct rdma *r, struct flow *f)
{
	end_regs(r, f);
	if (f->window && !r->err && r->spare_cnt < SPARE_WINDOWS) {
		list_add_tail(&r->spare_windows, &f->window->node);
		r->spare_cnt++;
	} else if (f->window) {
		kedge__rdma_block_close(r, f->window);
	}
	kedge__rdma_flow_free(f);
}

/* ---- direct ---- */

/* Targets of a piece: its whole pages, and what is before and behind them. */
#define PIECE_TARGETS 3u

static void add_target(struct flow *f, uint64_t addr, uint64_t len,
		       uint64_t key)
{
	f->target[f->target_cnt++] = (struct rdma_target){
		.addr = addr, .len = len, .key = key,
	};
}

/* [@from, @to) of a piece, less than a page. */
static int lend_edge(struct rdma *r, struct flow *f, uint64_t from, uint64_t to)
{
	struct rdma_edge *e = &f->edge[f->edge_cnt];
	uint64_t addr, key;

	if (from == to)
		return 0;
	if (!kedge__rdma_edge_take(r, &e->slot, &addr, &key))
		return -EOPNOTSUPP;
	e->to = (void *)(uintptr_t)from;
	e->len = (uint32_t)(to - from);
	f->edge_cnt++;
	add_target(f, addr, e->len, key);
	return 0;
}

/*
 * By a window over a registration that is kept. That is of whole pages, which are the
 * piece's alone: so a peer reaches nothing else, even where the device lets it reach
 * all that is registered. All else lands in pages of ours.
 */
static int lend_pages(struct rdma *r, struct flow *f, uint64_t addr,
		      uint64_t len)
{
	const uint32_t edges = f->edge_cnt, targets = f->target_cnt;
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t end = addr + len;
	const uint64_t first = round_up(addr, page);
	const uint64_t last = round_down(end, page);
	struct rdma_mr *mr = &f->mr[f->mr_cnt];
	int rc;

	if (!r->windows || len < WINDOW_MIN || last <= first)
		return -EOPNOTSUPP;
	rc = kedge__rdma_lend_window(r, first, last - first, mr);
	if (rc)
		return rc;
	rc = lend_edge(r, f, addr, first);
	if (!rc) {
		add_target(f, mr->addr, last - first, mr->key);
		rc = lend_edge(r, f, last, end);
	}
	if (!rc) {
		f->mr_cnt++;
		return 0;
	}
	while (f->edge_cnt > edges)
		kedge__rdma_edge_give(r, &f->edge[--f->edge_cnt], false);
	f->target_cnt = targets;
	kedge__rdma_lend_end(r, mr);
	return rc;
}

/*
 * In an area: all of it is void, so the window may be over all of it, which is what
 * devices grant that look at a registration's bounds alone.
 */
static int lend_area(struct rdma *r, struct flow *f, uint64_t addr,
		     uint64_t len)
{
	struct rdma_mr *mr = &f->mr[f->mr_cnt];
	struct rdma_target all;
	void *reg = kedge__rdma_area_reg(r, addr, len, &all);
	int rc;

	if (!reg)
		return -ENOENT;
	*mr = (struct rdma_mr){ .addr = addr };
	rc = r->port->grant(r, reg, all.addr, all.len, &mr->key, &mr->window);
	if (rc)
		return rc;
	f->mr_cnt++;
	add_target(f, addr, len, mr->key);
	return 0;
}

static int lend_piece(struct rdma *r, struct flow *f, uint64_t addr,
		      uint64_t len)
{
	struct rdma_mr *mr = &f->mr[f->mr_cnt];
	int rc = kedge__rdma_mapped(addr, len);

	if (rc)
		return rc;
	rc = lend_area(r, f, addr, len);
	if (rc != -ENOENT)
		return rc;
	if (r->pins && !kedge__rdma_block_of(r, addr, len)) {
		rc = lend_pages(r, f, addr, len);
		if (rc != -EOPNOTSUPP)
			return rc;
	}
	rc = kedge__rdma_lend(r, addr, len, mr);
	if (rc)
		return rc;
	f->mr_cnt++;
	add_target(f, mr->addr, len, mr->key);
	return 0;
}

static int lend_pieces(struct rdma *r, struct flow *f)
{
	const struct bulk *b = f->bulk;
	uint64_t left = f->len, len;
	uint32_t i;
	int rc;

	for (i = 0; i < b->piece_cnt && left; i++) {
		len = b->piece[i].len < left ? b->piece[i].len : left;
		if (!len)
			continue;
		rc = lend_piece(r, f, b->piece[i].addr, len);
		if (rc)
			return rc;
		left -= len;
	}
	return left ? kedge_reason(-EINVAL, "the pieces are shorter than the "
					    "message") : 0;
}

static int describe_direct(struct rdma *r, struct flow *f, struct rdma_desc *d)
{
	size_t len = f->target_cnt * sizeof(*f->target);
	int rc;

	d->cnt = f->target_cnt;
	d->kind = DESC_DIRECT;
	if (f->target_cnt <= DESC_TARGETS) {
		memcpy(d->target, f->target, len);
		return 0;
	}
	rc = r->port->reg(r, f->target, len, KEDGE_ACCESS_REMOTE_READ,
			  &f->table_reg);
	if (rc)
		return rc;
	d->kind = DESC_TABLE;
	d->target[0] = (struct rdma_target){
		.addr = rdma_addr(r, f->target),
		.len = len,
		.key = r->port->key(f->table_reg),
	};
	return 0;
}

static int accept_direct(struct rdma *r, struct flow *f, struct rdma_desc *d)
{
	uint32_t cnt = f->bulk->piece_cnt;
	int rc;

	if (cnt > TABLE_TARGETS / PIECE_TARGETS)
		return kedge_reason(-EOPNOTSUPP, "%u pieces are too many", cnt);
	f->mr = calloc(cnt, sizeof(*f->mr));
	f->target = calloc(cnt * PIECE_TARGETS, sizeof(*f->target));
	f->edge = calloc(cnt * 2, sizeof(*f->edge));
	if (!f->mr || !f->target || !f->edge)
		return kedge_reason(-ENOMEM, "no memory for a message");
	rc = lend_pieces(r, f);
	return rc ? rc : describe_direct(r, f, d);
}

/* ---- stream ---- */

static struct rdma_block *take_window(struct rdma *r)
{
	const size_t len = SLOT_CNT * SLOT_LEN;
	struct rdma_block *w;

	if (list_empty(&r->spare_windows)) {
		/* Memory that is kept for speed may use up the limit. */
		do {
			w = kedge__rdma_block_open(r, len, true);
		} while (!w && (kedge__rdma_relieve(r, len) ||
				kedge__rdma_areas_trim(r)));
		return w;
	}
	w = list_entry(r->spare_windows.next, struct rdma_block, node);
	list_remove(&w->node);
	r->spare_cnt--;
	return w;
}

static int accept_stream(struct rdma *r, struct flow *f, struct rdma_desc *d)
{
	f->stream = true;
	/* Short messages overlap copying and sending, too. */
	f->slot_len = f->len < 4 * SLOT_LEN ? SLOT_LEN / 4 : SLOT_LEN;
	f->slot_cnt = SLOT_CNT;
	if (f->len / f->slot_len >= UINT32_MAX)
		return kedge_reason(-EOPNOTSUPP, "too long to be copied out");
	f->window = take_window(r);
	if (!f->window)
		return kedge_reason(-ENOMEM, "no memory for a message, or "
				    "RLIMIT_MEMLOCK is used up: raise it with "
				    "ulimit -l or LimitMEMLOCK=");
	d->kind = DESC_STREAM;
	d->cnt = 1;
	d->slot_cnt = f->slot_cnt;
	d->slot_len = f->slot_len;
	d->target[0] = (struct rdma_target){
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

int kedge__rdma_bulk_accept(void *ctx, struct bulk *b, const void *rts,
			   size_t rts_len, void *cts, size_t *cts_len)
{
	union rdma_desc_room d;
	struct rdma *r = ctx;
	struct flow *f;
	int rc;

	b->priv[0] = 0;
	if (rts_len)
		return kedge_reason(-EPROTO, "the peer sent a descriptor with "
					     "an RTS, which has none here");
	if (r->err)
		return r->err;
	if (!bulk_fits(b))
		return kedge_reason(-EINVAL, "the pieces do not hold the "
					     "message");
	f = kedge__rdma_flow_new(b, ++r->next_id);
	if (!f)
		return kedge_reason(-ENOMEM, "no memory for a message");
	f->recv = true;
	memset(&d, 0, sizeof(d));
	d.desc.id = f->id;
	d.desc.len = b->len;
	rc = b->flags & BULK_STREAM ? accept_stream(r, f, &d.desc)
				    : accept_direct(r, f, &d.desc);
	if (rc) {
		kedge__rdma_land_free(r, f);
		/* No room to register it: then it is copied out. */
		return rc == -ENOMEM && !(b->flags & BULK_STREAM) ? -EOPNOTSUPP
								  : rc;
	}
	f->since = list_empty(&r->landing) ? clock_ns() : 0;
	list_add_tail(&r->landing, &f->node);
	b->priv[0] = (uintptr_t)f;
	r->later = !r->pins;
	*cts_len = sizeof(d.desc) + sizeof(struct rdma_target) *
		   (d.desc.kind == DESC_DIRECT ? d.desc.cnt : 1);
	memcpy(cts, &d, *cts_len);
	return 0;
}

/* Short ones tell of latency. */
#define LEARN_MIN ((uint64_t)256 * 1024)

static void learn(struct rdma *r, struct flow *f)
{
	if (f->since && f->len >= LEARN_MIN)
		kedge__rdma_cost_learn(r, f->len, clock_ns() - f->since);
	f->since = 0;
}

/* The peer has done its part: its right ends before the application has the data. */
static int direct_step(struct rdma *r, struct flow *f)
{
	if (!(f->bulk->flags & BULK_FIN))
		return 1;
	learn(r, f);
	if (!windows_over(r, f))
		return -EAGAIN;
	edges_give(r, f, true);
	return 1;
}

int kedge__rdma_land_step(struct rdma *r, struct flow *f)
{
	const uint32_t before = f->drained;

	if (!f->stream)
		return direct_step(r, f);
	if (f->drained != f->filled) {
		copy_out(f);
		r->say = true;
	}
	if (f->drained == flow_slots(f)) {
		learn(r, f);
		return 1;
	}
	/* The sender has filled what it will ever fill. */
	if (f->bulk->flags & BULK_FIN && f->filled != flow_slots(f))
		kedge__rdma_die(r, -EPROTO);
	return f->drained != before ? 0 : -EAGAIN;
}

int kedge__rdma_land_stop(struct rdma *r, struct flow *f)
{
	if (f->stream)
		return 0;
	/* After its FIN the sender has no name for the pieces any more. */
	if (f->quiet || f->bulk->flags & BULK_FIN) {
		if (!windows_over(r, f))
			return -EBUSY;
		end_regs(r, f);
		f->quiet = true;
		return 0;
	}
	f->stop_due = r->say = true;
	return kedge__rdma_stop_wait(r, f);
}

void kedge__rdma_land_end(struct rdma *r, struct flow *f, bool fin)
{
	/* @fin: the peer has no write left for this flow. */
	if (f->stream && !r->err && f->drained != flow_slots(f)) {
		/* It goes with the answer. */
		f->stop_due = r->say = true;
		return;
	}
	/* The peer may still write: the connection is given up. */
	if (!f->stream && !fin && !f->quiet)
		kedge__rdma_die(r, -ECONNRESET);
	kedge__rdma_land_free(r, f);
}
