// SPDX-License-Identifier: BSD-2-Clause
/*
 * A ring of packets in shared memory: what is seldom, or long. ring.h says how it
 * works.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/barrier.h"
#include "channel/protocol/packet.h"
#include "channel/ring.h"

#define DRAINS 16

int ring_break(struct ring *r, int rc, const char *why)
{
	static const struct cell nothing;

	if (r->broken)
		return r->broken;
	r->broken = rc;
	r->broken_why = why;
	/* No more packets are taken from a peer that lies. What had come of a
	 * peer that is gone is still good. */
	if (rc == -EPROTO)
		r->in_at = &nothing;
	return kedge_reason(rc, "%s", why);
}

static void look_at_head(struct ring *r)
{
	uint32_t head = atomic_load_explicit(&r->peer_head->head,
					     memory_order_acquire);

	/* Between what it was and what was sent; else the peer lies. */
	if (r->out_pos - head > r->out_pos - r->out_head)
		ring_break(r, -EPROTO, "the peer broke the ring");
	else
		r->out_head = head;
}

/* ---- laps ---- */

static _Atomic int64_t spare = RING_SPARE;

void ring_init(struct ring *r, char *mine, uint32_t in, char *peers,
	       uint32_t out)
{
	r->in_max = in;
	r->out_cells = out;
	r->in = (struct cell *)(void *)(mine + RING_AT);
	r->in_at = r->in;
	r->my_head = (struct ring_head *)(void *)mine;
	r->out = (struct cell *)(void *)(peers + RING_AT);
	r->peer_head = (struct ring_head *)(void *)peers;
	r->lap = RING_SOFT;
	r->out_end = r->lap;
}

void ring_fini(struct ring *r)
{
	if (r->lap)
		atomic_fetch_add_explicit(&spare, (r->lap - RING_SOFT) * CELL,
					  memory_order_relaxed);
	r->lap = 0;
}

static void lap_ends(struct ring *r)
{
	int64_t more = r->lap * CELL;

	if (++r->laps < RING_LAPS || r->lap == r->out_cells)
		return;
	r->laps = 0;
	if (atomic_fetch_sub_explicit(&spare, more, memory_order_relaxed) < more)
		atomic_fetch_add_explicit(&spare, more, memory_order_relaxed);
	else
		r->lap *= 2;
}

/*
 * A packet of @n cells at @at would reach @out_end: the cells that are left out
 * before it. Back to the first cell early only if the reader has little of what
 * was written since to read: what it has read there is the room.
 */
static __attribute__((noinline)) uint32_t skip(struct ring *r, uint32_t at,
					       uint32_t n)
{
	if (at + n <= r->out_cells) {
		look_at_head(r);
		if (r->out_pos - r->out_head + n > at / 2) {
			r->out_end *= 2;
			return 0;
		}
	}
	lap_ends(r);
	r->out_end = r->lap;
	return RING_CELLS - at;
}

void *ring_reserve(void *ctx, size_t len)
{
	struct ring *r = ctx;
	uint32_t at = r->out_pos & RING_MASK, n = ring_cells(len);

	r->out_pad = unlikely(at + n > r->out_end) ? skip(r, at, n) : 0;
	n += r->out_pad;
	if (unlikely(ring_room(r) < n)) {
		look_at_head(r);
		if (ring_room(r) < n)
			return NULL;
	}
	return r->out[(r->out_pos + r->out_pad) & RING_MASK].data;
}

/* @flags: CELL_GROWS or 0 */
static void show(struct ring *r, size_t len, uint32_t flags)
{
	uint32_t pos = r->out_pos + r->out_pad;

	ring_unpublish(r, pos + ring_cells(len));
	if (unlikely(r->out_pad)) {
		ring_unpublish(r, pos);
		ring_publish(r, r->out_pos, CELL_PAD);
	}
	ring_publish(r, pos, (uint32_t)len | flags);
	r->out_pos = pos + ring_cells(len);
	ring_foresee(r, ring_cells(len));
	ring_wake(r);
}

static void grow(struct ring *r, uint32_t pos, size_t have)
{
	atomic_store_explicit(&r->peer_head->grown, (uint64_t)pos << 32 | have,
			      memory_order_release);
}

void ring_begin(void *ctx, void *packet, size_t len, size_t have)
{
	struct ring *r = ctx;

	(void)packet;
	grow(r, r->out_pos + r->out_pad, have);
	r->out_grows = (uint32_t)len;
	show(r, len, CELL_GROWS);
}

void ring_more(void *ctx, size_t have)
{
	struct ring *r = ctx;

	grow(r, r->out_pos - ring_cells(r->out_grows), have);
}

void ring_commit(void *ctx, void *packet, size_t len)
{
	struct ring *r = ctx;

	(void)packet;
	if (likely(!r->out_grows)) {
		show(r, len, 0);
		return;
	}
	ring_more(r, len);
	r->out_grows = 0;
	/* The reader may have gone to sleep meanwhile. */
	ring_wake(r);
}

/* A length that the peer wrote: whether it can be, at in_pos. */
static bool length_fits(const struct ring *r, uint32_t len)
{
	return len >= sizeof(struct packet_head) && len <= PACKET_MAX &&
	       (r->in_pos & RING_MASK) + ring_cells(len) <= r->in_max;
}

const void *ring_next(void *ctx, size_t *len)
{
	struct ring *r = ctx;
	const struct cell *c;
	uint32_t n;

	for (;;) {
		c = r->in_at;
		if (!ring_peek(r))
			return NULL;
		n = *(const volatile uint32_t *)&c->len;
		if (likely(n != CELL_PAD))
			break;
		/* To the first cell it leads from others. */
		if (!(r->in_pos & RING_MASK))
			break;
		ring_advance(r, RING_CELLS - (r->in_pos & RING_MASK));
	}
	r->in_grows = n & CELL_GROWS;
	n &= ~CELL_GROWS;
	if (unlikely(!length_fits(r, n) || r->broken == -EPROTO)) {
		ring_break(r, -EPROTO, "the peer broke the ring");
		return NULL;
	}
	r->in_cells = ring_cells(n);
	r->in_len = n;
	*len = n;
	return c->data;
}

size_t ring_arrived(void *ctx, const void *packet)
{
	struct ring *r = ctx;
	uint64_t grown;

	(void)packet;
	if (!r->in_grows)
		return r->in_len;
	grown = atomic_load_explicit(&r->my_head->grown, memory_order_acquire);
	if ((uint32_t)(grown >> 32) != r->in_pos ||
	    (uint32_t)grown >= r->in_len)
		return r->in_len;
	return (uint32_t)grown < sizeof(struct packet_head)
		       ? sizeof(struct packet_head) : (uint32_t)grown;
}

void ring_release(void *ctx, const void *packet)
{
	struct ring *r = ctx;

	(void)packet;
	ring_release_short(r, r->in_cells);
}

/* A byte over the socket, sent without waiting: if there is no room for it, so
 * many lie there unread that the peer's socket is readable. */
void ring_wake_peer(struct ring *r)
{
	atomic_store_explicit(&r->peer_head->asleep, 0, memory_order_relaxed);
	/* Not send(), which is a cancellation point. */
	syscall(SYS_sendto, r->sock, "", (size_t)1,
		MSG_DONTWAIT | MSG_NOSIGNAL, NULL, (size_t)0);
}

/*
 * Bytes that woke us before. An honest peer sends one for each time that we
 * were asleep. Of one that floods us the rest stays, and so the socket readable:
 * that costs turns, but no wake-up is lost. Descriptors that come along are
 * dropped by the kernel, as there is no room for them.
 */
static void drain(const struct ring *r)
{
	char bytes[64];
	int i;

	for (i = 0; i < DRAINS; i++)
		if (recv(r->sock, bytes, sizeof(bytes), MSG_DONTWAIT) !=
		    sizeof(bytes))
			return;
}

void ring_sleep(struct ring *r)
{
	drain(r);
	atomic_store_explicit(&r->my_head->asleep, 1, memory_order_relaxed);
	barrier_heavy();
}
