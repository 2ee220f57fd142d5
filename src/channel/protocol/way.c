// SPDX-License-Identifier: BSD-2-Clause
/*
 * By which way a message is received: the one that the model expects to cost
 * least of those that the buffer, the transport and the pool allow. Whatever is
 * not to be had after all ends in KEDGE_WAY_COPY, which always is.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "channel/cost.h"
#include "channel/internal.h"
#include "pages/landing.h"
#include "pages/swap.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Shorter ranges are not worth a registration. */
#define FILL_MIN (128u << 10)
/* Pages made at once: all else stands still so long. */
#define MAKE_LEN (256u << 10)
/* From here on the pool's thread is worth having, which makes the model, too. */
#define POOL_MIN (256u << 10)

/* ---- the buffer ---- */

/* By a look at the middle page, which costs the same for any length. */
static bool is_fresh(const void *buf, uint64_t len)
{
	size_t page = kedge__page_size();
	uintptr_t at = round_down((uintptr_t)buf + len / 2, page);
	unsigned char resident;

	return !mincore((void *)at, page, &resident) && !(resident & 1);
}

/* Pages to land on are the transport's. */
static bool areas(const struct kedge_channel *ch)
{
	return ch->t->areas && ch->t->areas(ch->ctx);
}

/* The pieces in which pages change places: mremap() moves single pages too. */
static uint64_t unit_of(const struct kedge_channel *ch)
{
	return areas(ch) ? kedge__page_size() : pages_huge_len();
}

static uint64_t body_of(const struct kedge_channel *ch, const char *buf,
			uint64_t len)
{
	uint64_t unit = unit_of(ch);
	uint64_t start = body_start(buf, unit), end = body_end(buf, len, unit);

	return end > start ? end - start : 0;
}

static void describe(const struct kedge_channel *ch, const struct op *op,
		     uint32_t ready, struct cost_case *c)
{
	uint32_t ways = ch->t->ways;

	*c = (struct cost_case){
		.len = op->msg_len,
		.heap = ready & READY_HEAP,
		.pull = ready & READY_DIRECT,
		.push = ch->t->can_push && ch->t->can_push(ch->ctx),
	};
	if (c->heap)
		return;
	if (ways & 1u << KEDGE_WAY_SWAP)
		c->body = body_of(ch, op->buf, op->msg_len);
	/* New pages cost every other way the same. */
	c->fresh = c->body && is_fresh(op->buf, op->msg_len);
}

/* The transport's own model, or that of one host. */
static uint64_t cost_here(const struct kedge_channel *ch, uint32_t way,
			  const struct cost_case *c)
{
	return areas(ch) ? ch->t->cost(ch->ctx, way, c) : cost_of(way, c);
}

static uint32_t choose(const struct kedge_channel *ch, const struct op *op,
		       uint32_t ready)
{
	static const uint8_t ways[] = { KEDGE_WAY_DIRECT, KEDGE_WAY_SWAP,
					KEDGE_WAY_COPY, KEDGE_WAY_REGISTER };
	uint64_t least = UINT64_MAX, ns;
	uint32_t way = KEDGE_WAY_COPY, i;
	struct cost_case c;

	if (ch->opts.way != KEDGE_WAY_AUTO)
		return ch->opts.way;
	if (ready & (READY_HEAP | READY_ANYWHERE))
		return KEDGE_WAY_DIRECT;
	/* Both sides at once are no slower than one by the kernel, wherever it was
	 * measured; and by how much the kernel is faster or slower than they is
	 * what differs most between machines. */
	if (!areas(ch) && !cost_ready())
		return KEDGE_WAY_COPY;
	describe(ch, op, ready, &c);
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		ns = cost_here(ch, ways[i], &c);
		if (ns >= least)
			continue;
		least = ns;
		way = ways[i];
	}
	return way;
}

/* ---- the ways ---- */

static int accept_at(struct kedge_channel *ch, struct op *op, uint32_t flags,
		     const void *addr, const void *rts, size_t rts_len)
{
	size_t len = 0;
	int rc;

	op->whole = (struct bulk_piece){ (uintptr_t)addr, op->msg_len };
	op->bulk = (struct bulk){ .flags = BULK_RECV | flags | op_timed(op),
				  .piece = &op->whole,
				  .piece_cnt = 1,
				  .len = op->msg_len };
	if (addr != op->buf || flags & BULK_HEAP ||
	    access_knows(&ch->access, addr, op->msg_len, true,
			 ch->received_cnt))
		op->bulk.flags |= BULK_CHECKED;
	rc = ch->t->blind ? kedge__bulk_check(&op->bulk) : 0;
	if (rc)
		return rc;
	rc = ch->t->accept(ch->ctx, &op->bulk, rts, rts_len, op->desc, &len);
	if (rc)
		return rc;
	op->bulk_open = true;
	op->desc_len = (uint32_t)len;
	return 0;
}

static int accept_direct(struct kedge_channel *ch, struct op *op,
			 uint32_t ready, const void *rts, size_t rts_len)
{
	if (!(ready & READY_DIRECT))
		return -EOPNOTSUPP;
	return accept_at(ch, op, ready & READY_HEAP ? BULK_HEAP : BULK_KNOWN,
			 op->buf, rts, rts_len);
}

/* The pages are made now, in one call, and not at a fault each. */
static int accept_register(struct kedge_channel *ch, struct op *op,
			   uint32_t ready, const void *rts, size_t rts_len)
{
	int rc;

	if (!(ready & READY_REGISTER))
		return -EOPNOTSUPP;
	rc = access_ask(op->buf, op->msg_len, true);
	return rc ? rc : accept_at(ch, op, BULK_CHECKED, op->buf, rts, rts_len);
}

/* The pool starts with the first message that might want it. */
static void need_pool(struct kedge_channel *ch)
{
	if (!ch->pool && !areas(ch) &&
	    landing_open(ch->opts.pool_bytes, cost_measure, &ch->pool))
		count(&ch->st.pool_empty, 1);
}

/* The single pages at the ends of a buffer without pages yet. */
static void plan_ends(struct op *op)
{
	uint64_t page = kedge__page_size(), unit = pages_huge_len();
	uint64_t from = (uintptr_t)op->buf, to = from + op->msg_len;
	int i;

	op->make[0].from = round_up(from, page);
	op->make[0].to = body_start(op->buf, unit);
	op->make[1].from = body_end(op->buf, op->msg_len, unit);
	op->make[1].to = round_down(to, page);
	for (i = 0; i < 2; i++) {
		from = op->make[i].from;
		to = op->make[i].to;
		if (to <= from || !is_fresh((char *)from, to - from))
			op->make[i].from = to;
	}
}

/* Pages to land on, of the transport or of the pool. */
static bool take_landing(struct kedge_channel *ch, struct op *op)
{
	struct landing l = { .cnt = 1 };
	void *area = NULL;

	if (areas(ch))
		area = ch->t->area_take(ch->ctx, op->buf, op->msg_len, &l.addr);
	if (areas(ch) ? !area
		      : landing_take(ch->pool, op->buf, op->msg_len, &l)) {
		count(&ch->st.pool_empty, 1);
		return false;
	}
	op->landing = l;
	op->area = area;
	op->asked = false;
	return true;
}

static int accept_swap(struct kedge_channel *ch, struct op *op, uint32_t ready,
		       const void *rts, size_t rts_len)
{
	int rc;

	if (!(ch->t->ways & 1u << KEDGE_WAY_SWAP) || ready & READY_HEAP ||
	    !body_of(ch, op->buf, op->msg_len) ||
	    !(ch->pool || areas(ch)))
		return -EOPNOTSUPP;
	/* No later step of the pool's asks: pages are put under mappings of any
	 * protection. For an area there is time while the data come. */
	rc = areas(ch) ? 0 : pages_writable(op->buf, op->msg_len);
	if (rc)
		return rc;
	if (!take_landing(ch, op))
		return -EOPNOTSUPP;
	rc = accept_at(ch, op, BULK_PUSH, op->landing.addr, rts, rts_len);
	if (rc)
		way_drop(ch, op, true);
	else if (!op->area)
		plan_ends(op);
	return rc;
}

static int accept_by(struct kedge_channel *ch, struct op *op, uint32_t ready,
		     const void *rts, size_t rts_len)
{
	switch (op->way) {
	case KEDGE_WAY_DIRECT:
		return accept_direct(ch, op, ready, rts, rts_len);
	case KEDGE_WAY_SWAP:
		return accept_swap(ch, op, ready, rts, rts_len);
	case KEDGE_WAY_REGISTER:
		return accept_register(ch, op, ready, rts, rts_len);
	}
	return accept_at(ch, op, BULK_STREAM, op->buf, rts, rts_len);
}

/* The next best way if @way is not to be had now. */
static uint32_t instead(const struct kedge_channel *ch, uint32_t way,
			uint32_t ready)
{
	if (ch->opts.way == KEDGE_WAY_AUTO && way == KEDGE_WAY_SWAP &&
	    ready & READY_DIRECT)
		return KEDGE_WAY_DIRECT;
	return KEDGE_WAY_COPY;
}

int way_accept(struct kedge_channel *ch, struct op *op, const void *rts,
	       size_t rts_len)
{
	/* No memory of the peer's is reached into for a message that has a deadline. */
	uint32_t ready = ch->t->ready(ch->ctx, op->buf, op->msg_len,
				      op_timed(op) ? NULL : rts, rts_len);
	int rc;

	/* Without it there is another way. */
	if (ch->opts.way == KEDGE_WAY_SWAP ||
	    (ch->opts.way == KEDGE_WAY_AUTO && op->msg_len >= POOL_MIN))
		need_pool(ch);
	op->way = choose(ch, op, ready);
	rc = accept_by(ch, op, ready, rts, rts_len);
	while (rc == -EOPNOTSUPP && op->way != KEDGE_WAY_COPY) {
		op->way = instead(ch, op->way, ready);
		rc = accept_by(ch, op, ready, rts, rts_len);
	}
	return rc;
}

/* ---- while it lands ---- */

/* Once for a message: before Linux 6.11 all mappings are read for it, as text. */
static int writable(struct op *op)
{
	if (!op->asked)
		op->writable = pages_writable(op->buf, op->msg_len);
	op->asked = true;
	return op->writable;
}

/*
 * The sender fills the landing pages meanwhile. A message that is alone gets the
 * pages at its ends, some in one call each time instead of a fault for every one.
 * Of several each has to wait for what is done for the others: there the ends are
 * made with their contents when they have landed, which is less work, and the
 * pool's next block here.
 */
bool way_meanwhile(struct kedge_channel *ch, struct op *op)
{
	struct op_range *r = &op->make[op->make[0].from >= op->make[0].to];
	uint64_t len;

	if (!op->landing.cnt)
		return false;
	if (op->area && !op->asked)
		return writable(op), true;
	if (op->area)
		return ch->t->area_meanwhile(ch->ctx, op->area, op->buf,
					     op->msg_len);
	if (ch->active.next->next != &ch->active)
		return landing_make();
	if (r->from >= r->to)
		return false;
	len = r->to - r->from;
	if (len > MAKE_LEN)
		len = MAKE_LEN;
	madvise((void *)r->from, len, MADV_POPULATE_WRITE);
	r->from += len;
	return true;
}

/* ---- all of it has landed ---- */

/* Addresses of the buffer. */
static void copy_range(const struct op *op, uint64_t from, uint64_t to)
{
	uint64_t off = from - (uintptr_t)op->buf;

	memcpy(op->buf + off, op->landing.addr + off, to - from);
}

/* Fill a range without pages; returns up to where it came. */
static uint64_t fill_new(const struct op *op, uint64_t from, uint64_t to)
{
	uint64_t off = from - (uintptr_t)op->buf;

	if (to < from + FILL_MIN || !is_fresh((void *)from, to - from))
		return from;
	from += pages_fill((void *)from, op->landing.addr + off, to - from);
	/* In one call at least, instead of a fault for each page. */
	if (from < to)
		madvise((void *)from, to - from, MADV_POPULATE_WRITE);
	return from;
}

/* [from, to) of the buffer, as addresses, out of the landing. */
static void copy_out(struct kedge_channel *ch, const struct op *op,
		     uint64_t from, uint64_t to)
{
	uint64_t page = kedge__page_size();
	uint64_t first = round_up(from, page), last = round_down(to, page);

	if (to <= from)
		return;
	count(&ch->st.copied, to - from);
	if (last > first) {
		copy_range(op, from, first);
		from = fill_new(op, first, last);
	}
	copy_range(op, from, to);
}

/* [start, end) of the buffer, as addresses. */
static int move_body(struct kedge_channel *ch, struct op *op, uint64_t start,
		     uint64_t end)
{
	char *from = op->landing.addr + (start - (uintptr_t)op->buf);

	if (op->area && writable(op))
		return op->writable;
	if (op->area)
		return ch->t->area_move(ch->ctx, op->area, (char *)start, from,
					end - start);
	return pages_land((void *)start, from, end - start, 0);
}

int way_finish(struct kedge_channel *ch, struct op *op)
{
	uint64_t unit = unit_of(ch), start, end, last;
	int rc;

	if (!op->landing.cnt)
		return 0;
	start = body_start(op->buf, unit);
	end = body_end(op->buf, op->msg_len, unit);
	last = (uintptr_t)op->buf + op->msg_len;
	if (move_body(ch, op, start, end)) {
		/* The mapping's protection was not to be had, or forbids it. */
		rc = op->area && op->writable
			     ? access_ask(op->buf, op->msg_len, true) : 0;
		if (rc)
			return rc;
		/* Pinned, locked, watched by others: it is only slow. */
		copy_out(ch, op, (uintptr_t)op->buf, last);
		op->way = KEDGE_WAY_COPY;
		return 0;
	}
	count(&ch->st.swapped, end - start);
	copy_out(ch, op, (uintptr_t)op->buf, start);
	copy_out(ch, op, end, last);
	return 0;
}

void way_drop(struct kedge_channel *ch, struct op *op, bool quiet)
{
	if (op->area)
		ch->t->area_give(ch->ctx, op->area, quiet);
	else if (op->landing.cnt)
		landing_give(ch->pool, &op->landing, quiet);
	op->landing.cnt = 0;
	op->area = NULL;
}

/* ---- what the caller may ask ---- */

static uint64_t cost_on_channel(const struct kedge_channel *ch, uint32_t way,
				const struct cost_case *c)
{
	if (way == KEDGE_WAY_EAGER && c->len > ch->peer.eager_max)
		return UINT64_MAX;
	return cost_here(ch, way, c);
}

KEDGE_API int kedge_channel_cost(struct kedge_channel *ch, uint32_t way,
				 uint64_t len, uint32_t flags, uint64_t *ns)
{
	uint32_t ready;
	struct cost_case c;

	NO_CANCEL();
	if (!ch || !ns || !len || way >= KEDGE_WAY_COUNT ||
	    flags & ~KEDGE_COST_FRESH)
		return channel_invalid("the cost of a way: an argument is NULL or "
				       "0, or the way or a flag is unknown");
	if (!areas(ch))
		cost_measure();
	ready = ch->t->ready(ch->ctx, &c, 1, NULL, 0);
	c = (struct cost_case){
		.len = len,
		.fresh = flags & KEDGE_COST_FRESH,
		.pull = ready & READY_DIRECT,
		.push = ch->t->can_push && ch->t->can_push(ch->ctx),
		.body = round_down(len, unit_of(ch)),
	};
	if (way != KEDGE_WAY_AUTO) {
		*ns = cost_on_channel(ch, way, &c);
		return *ns == UINT64_MAX ? -EOPNOTSUPP : 0;
	}
	*ns = UINT64_MAX;
	for (way = KEDGE_WAY_EAGER; way < KEDGE_WAY_COUNT; way++)
		if (cost_on_channel(ch, way, &c) < *ns)
			*ns = cost_on_channel(ch, way, &c);
	return 0;
}
