// SPDX-License-Identifier: BSD-2-Clause
/*
 * Bulk data between two processes of one host. The receiver says where it goes:
 *
 *   SHARED  memory of its heap, which the sender has mapped: one copy, no
 *           system call
 *   MEMORY  any memory: the receiver pulls it with process_vm_readv(), and the
 *           sender pushes with process_vm_writev() where the receiver lets it;
 *           without a system call where the source is in a segment that the
 *           receiver has attached, or the target in one that the sender has
 *           (theirs.c)
 *   STREAM  slots that both have mapped: the sender fills, the receiver drains
 *
 * In the first two both processors may work on one message (step.c).
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "channel/shm/bulk.h"

/* Set @p to where the peer finds a message of this process, if it is in a segment. One with a
 * deadline is not shown: a load there may wait for a fault of this process's. */
static bool show(struct shm *s, const struct bulk *b, struct segment_place *p)
{
	return s->apart && !(b->flags & BULK_TIMED) && b->piece_cnt == 1 &&
	       segment_place(&s->memos, (void *)(uintptr_t)b->piece[0].addr, b->len, p);
}

int bulk_offer(void *ctx, struct bulk *b, void *desc, size_t *len)
{
	struct shm *s = ctx;
	struct rts_desc d = { .addr = b->piece[0].addr };

	b->priv[0] = 0;
	d.heap_off = heap_off(&s->heap, (void *)(uintptr_t)d.addr, b->len);
	if (d.heap_off == NO_PAGES && b->flags & BULK_TIMED)
		d.heap_off = NO_PUSH;
	if (d.heap_off == NO_PAGES)
		show(s, b, &d.place);
	memcpy(desc, &d, sizeof(d));
	*len = segment_any() || d.place.id.word[0] ? sizeof(d) : RTS_PLAIN;
	return 0;
}

uint32_t bulk_attached(struct shm *s, const void *buf, size_t len, const void *rts,
		       size_t rts_len)
{
	struct rts_desc d;

	if (!s->apart || len < OFFER_SEGMENT)
		return 0;
	if (segment_converted(&s->memos, buf, len))
		return READY_SEGMENT | READY_ANYWHERE;
	if (!rts || rts_len != sizeof(d))
		return 0;
	memcpy(&d, rts, sizeof(d));
	return d.place.id.word[0] && theirs_has(s, &d.place, len) ? READY_ANYWHERE : 0;
}

/* ---- records ---- */

static int record_get(struct shm *s)
{
	int i, bit;

	for (i = 0; i < (int)ARRAY_SIZE(s->free_records); i++) {
		if (!s->free_records[i])
			continue;
		bit = __builtin_ctzll(s->free_records[i]);
		s->free_records[i] &= ~((uint64_t)1 << bit);
		return i * 64 + bit;
	}
	return -EAGAIN;
}

static void record_put(struct shm *s, uint32_t i)
{
	s->free_records[i / 64] |= (uint64_t)1 << i % 64;
}

/* The peer does not know of it yet: the CTS that names it is published later. */
static void record_reset(struct record *r)
{
	atomic_store_explicit(&r->claim, 0, memory_order_relaxed);
	atomic_store_explicit(&r->sender_done, 0, memory_order_relaxed);
	atomic_store_explicit(&r->receiver_done, 0, memory_order_relaxed);
	atomic_store_explicit(&r->returned, 0, memory_order_relaxed);
}

/* ---- the receiver ---- */

static int read_rts(struct shm *s, const struct bulk *b,
		    const void *rts, size_t len, struct xfer *x)
{
	struct rts_desc d = { 0 };

	if (len != RTS_PLAIN && len != sizeof(d))
		return kedge_reason(-EPROTO, "the peer describes its buffer "
				    "in a way unknown here");
	memcpy(&d, rts, len);
	x->src = d.addr;
	x->src_off = d.heap_off == NO_PUSH ? NO_PAGES : d.heap_off;
	x->no_push = d.heap_off == NO_PUSH;
	x->place = d.place;
	x->may_be_away = len == sizeof(d);
	if (x->src_off == NO_PAGES)
		return 0;
	if (d.heap_off > s->peers_heap_len ||
	    b->len > s->peers_heap_len - d.heap_off)
		return kedge_reason(-EPROTO, "the peer's buffer is not in its "
				    "heap");
	/* Another way, if there are no addresses for it. */
	if (!area_heap(&s->peers, d.heap_off, b->len))
		x->src_off = NO_PAGES;
	return 0;
}

/* The sender may store into the target, as it is in a segment. The receiver pulls as well, so
 * all goes on until the sender has that attached, or if it never has. To find converted memory
 * takes system calls, in which time the receiver alone has copied a short message. */
static bool may_store(struct shm *s, const struct bulk *b, struct xfer *x)
{
	if (!x->pull || x->push || x->no_push || b->len < OFFER_SEGMENT)
		return false;
	if (b->len < STORE_MIN &&
	    segment_converted(&s->memos, (void *)(uintptr_t)b->piece[0].addr, b->len))
		return false;
	return show(s, b, &x->target);
}

static uint64_t chunk_of(const struct bulk *b, const struct xfer *x)
{
	uint64_t some = round_up(b->len / 8, 4096);

	if (!x->push)
		return CHUNK_PULL;
	if (!x->stores || some > CHUNK_MEMORY)
		return CHUNK_MEMORY;
	return some < CHUNK_SPLIT ? CHUNK_SPLIT : some;
}

static int plan_stream(struct shm *s, const struct bulk *b, struct xfer *x)
{
	uint64_t cnt = (b->len + SLOT_LEN - 1) / SLOT_LEN;

	x->mode = MODE_STREAM;
	x->chunk = SLOT_LEN;
	x->cnt = cnt;
	x->slot_cnt = cnt < SLOT_CNT ? (uint32_t)cnt : SLOT_CNT;
	return slots_get(s, x->chunk * x->slot_cnt, &x->off);
}

static int plan_memory(struct shm *s, struct bulk *b, struct xfer *x)
{
	x->push = b->flags & BULK_PUSH && s->peer_can_cross && !x->no_push;
	x->pull = x->src_off != NO_PAGES || (s->can_cross && !(b->flags & BULK_TIMED));
	if ((!x->push && !x->pull) || b->piece_cnt > PIECES_MAX)
		return -EOPNOTSUPP;
	if (x->src_off == NO_PAGES && x->place.id.word[0] && s->apart &&
	    !(b->flags & BULK_TIMED))
		x->far = theirs_use(s, &x->place, b->len, false, &x->far_at);
	x->stores = may_store(s, b, x);
	x->push |= x->stores;
	x->chunk = chunk_of(b, x);
	x->piece_cnt = b->piece_cnt;
	memcpy(x->piece, b->piece, b->piece_cnt * sizeof(*b->piece));
	x->cnt = (b->len + x->chunk - 1) / x->chunk;
	return 0;
}

static int plan(struct shm *s, struct bulk *b, struct xfer *x)
{
	x->mode = MODE_MEMORY;
	x->chunk = CHUNK_MEMORY;
	if (b->flags & BULK_HEAP) {
		x->mode = MODE_SHARED;
		x->chunk = CHUNK_SHARED;
		x->push = true;
		x->pull = x->src_off != NO_PAGES;
		x->to = (char *)(uintptr_t)b->piece[0].addr;
		x->off = heap_off(&s->heap, x->to, b->len);
	} else if (b->flags & BULK_STREAM) {
		return plan_stream(s, b, x);
	} else {
		return plan_memory(s, b, x);
	}
	x->cnt = (b->len + x->chunk - 1) / x->chunk;
	return 0;
}

static size_t describe(const struct xfer *x, struct cts_desc *d)
{
	const size_t fixed = offsetof(struct cts_desc, piece);

	*d = (struct cts_desc){
		.record = x->index,
		.mode = x->mode,
		.push = x->stores ? PUSH_SEGMENT : x->push ? PUSH_MEMORY : PUSH_NOT,
		.piece_cnt = (uint16_t)x->piece_cnt,
		.chunk = (uint32_t)x->chunk,
		.slot_cnt = x->slot_cnt,
		.off = x->off,
	};
	memcpy(d->piece, x->piece, x->piece_cnt * sizeof(*x->piece));
	if (!x->stores)
		return fixed + x->piece_cnt * sizeof(*d->piece);
	d->in_segment.place = x->target;
	return fixed + sizeof(d->in_segment);
}

int bulk_accept(void *ctx, struct bulk *b, const void *rts, size_t rts_len,
		void *cts, size_t *cts_len)
{
	struct shm *s = ctx;
	struct xfer *x = calloc(1, sizeof(*x));
	struct cts_desc d;
	int rc, i;

	if (!x)
		return -ENOMEM;
	rc = read_rts(s, b, rts, rts_len, x);
	if (rc)
		goto free_xfer;
	i = record_get(s);
	rc = i < 0 ? i : plan(s, b, x);
	if (rc)
		goto put_record;
	x->index = (uint32_t)i;
	x->rec = &s->my_records[i];
	record_reset(x->rec);
	*cts_len = describe(x, &d);
	memcpy(cts, &d, *cts_len);
	b->priv[0] = (uintptr_t)x;
	return 0;

put_record:
	if (i >= 0)
		record_put(s, (uint32_t)i);
free_xfer:
	free(x);
	return rc;
}

/* ---- the sender ---- */

static bool in_range(uint64_t off, uint64_t len, uint64_t max)
{
	return off <= max && len <= max - off;
}

static bool pieces_are(const struct cts_desc *d, uint64_t len)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < d->piece_cnt; i++)
		if (__builtin_add_overflow(sum, d->piece[i].len, &sum))
			return false;
	return sum == len;
}

static bool cts_fits(const struct shm *s, const struct cts_desc *d,
		     size_t desc_len, uint64_t len)
{
	size_t fixed = offsetof(struct cts_desc, piece);
	bool in_segment = d->push == PUSH_SEGMENT;

	if (desc_len < fixed || d->record >= RECORDS ||
	    d->piece_cnt > PIECES_MAX || d->push > PUSH_SEGMENT ||
	    (in_segment && (d->mode != MODE_MEMORY || d->piece_cnt != 1)) ||
	    desc_len != fixed + (in_segment ? sizeof(d->in_segment)
					    : d->piece_cnt * sizeof(*d->piece)) ||
	    d->chunk < 4096 || d->chunk > (64u << 20))
		return false;
	switch (d->mode) {
	case MODE_SHARED:
		return in_range(d->off, len, s->peers_heap_len);
	case MODE_STREAM:
		return d->slot_cnt && d->slot_cnt <= SLOTS_LEN / d->chunk &&
		       in_range(d->off, (uint64_t)d->chunk * d->slot_cnt,
				SLOTS_LEN);
	case MODE_MEMORY:
		return pieces_are(d, len);
	}
	return false;
}

/* Of the peer's area what it is to be written to. */
static bool has_addresses(struct shm *s, const struct xfer *x, uint64_t len)
{
	if (x->mode == MODE_SHARED)
		return area_heap(&s->peers, x->off, len);
	if (x->mode == MODE_STREAM)
		return area_slots(&s->peers, x->off, x->chunk * x->slot_cnt);
	return true;
}

/* By the kernel, or into what is attached here. */
static void plan_push(struct shm *s, const struct bulk *b, const struct cts_desc *d,
		      struct xfer *x)
{
	bool may = d->mode == MODE_MEMORY && !(b->flags & BULK_TIMED);

	x->push = d->mode == MODE_SHARED || (may && d->push == PUSH_MEMORY && s->can_cross);
	if (!may || d->push != PUSH_SEGMENT || !s->apart)
		return;
	x->target = d->in_segment.place;
	x->far = theirs_use(s, &x->target, b->len, true, &x->far_at);
	x->stores = x->push = x->far;
}

int bulk_start(void *ctx, struct bulk *b, const void *cts, size_t cts_len)
{
	struct shm *s = ctx;
	struct cts_desc d = { 0 };
	struct xfer *x;

	if (cts_len <= sizeof(d))
		memcpy(&d, cts, cts_len);
	if (cts_len > sizeof(d) || !cts_fits(s, &d, cts_len, b->len))
		return kedge_reason(-EPROTO, "the peer says where a message "
				    "may land, and it is not there");
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->mode = d.mode;
	x->rec = &s->peers_records[d.record];
	x->chunk = d.chunk;
	x->cnt = (b->len + x->chunk - 1) / x->chunk;
	x->from = (const char *)(uintptr_t)b->piece[0].addr;
	x->slot_cnt = d.slot_cnt;
	x->off = d.off;
	x->piece_cnt = d.piece_cnt;
	memcpy(x->piece, d.piece, x->piece_cnt * sizeof(*x->piece));
	if (!has_addresses(s, x, b->len)) {
		free(x);
		return -ENOMEM;
	}
	plan_push(s, b, &d, x);
	b->priv[0] = (uintptr_t)x;
	return 0;
}

/* ---- both ---- */

/*
 * No chunk is given out any more. The sender then need not wait: what the
 * receiver still reads is thrown away. The receiver waits for the chunks that
 * the sender has claimed and not done.
 */
int bulk_stop(void *ctx, struct bulk *b)
{
	struct xfer *x = xfer_of(b);
	uint64_t claimed, by_peer, over;

	(void)ctx;
	if (!x || x->mode == MODE_STREAM)
		return 0;
	claimed = atomic_fetch_or_explicit(&x->rec->claim, RECORD_CLOSED,
					   memory_order_relaxed) &
		  ~RECORD_CLOSED;
	if (!(b->flags & BULK_RECV) || !x->push)
		return 0;
	by_peer = (claimed < x->cnt ? claimed : x->cnt) - x->done - !!x->again + x->took_back;
	over = atomic_load_explicit(&x->rec->sender_done, memory_order_acquire) +
	       !!atomic_load_explicit(&x->rec->returned, memory_order_acquire);
	return over < by_peer ? -EBUSY : 0;
}

void bulk_end(void *ctx, struct bulk *b)
{
	struct shm *s = ctx;
	struct xfer *x = xfer_of(b);

	if (!x)
		return;
	if (b->flags & BULK_RECV) {
		/* A sender that is stopped amid a chunk would go on when this is the program's
		 * again, and the channel closed. */
		if (x->stores && bulk_stop(ctx, b) && peer_lives(s->peer))
			segment_revoke(&x->target, (void *)(uintptr_t)b->piece[0].addr,
				       b->len);
		record_put(s, x->index);
		if (x->mode == MODE_STREAM)
			slots_put(s, x->off);
	}
	if (x->far)
		theirs_unuse(x->far);
	free(x);
	b->priv[0] = 0;
}
