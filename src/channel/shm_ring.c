// SPDX-License-Identifier: BSD-2-Clause
/*
 * A ring of packets in shared memory: one writer, one reader, each in its own
 * process.
 *
 * A packet is there when the first of its cells says so: @seq is then the
 * position plus one, stored with release after everything else and loaded with
 * acquire before anything else. So a short packet is one cache line, which
 * moves once. Data of long packets may leave any bytes where a later packet
 * begins: before a packet is published, the cell behind it gets a @seq that
 * nobody takes for one. That cell is free: one is always kept.
 *
 * The reader publishes how far it is (head, release) after it has read a packet
 * for the last time; the writer loads it (acquire) before it writes there again.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "channel/packet.h"
#include "channel/shm.h"
#include "base/barrier.h"

#define MASK	    (RING_CELLS - 1)
#define HEAD_EVERY  (RING_CELLS / 8)

static uint32_t cells_of(size_t len)
{
	return (uint32_t)((len + offsetof(struct cell, data) + CELL - 1) / CELL);
}

/* Free cells, without the one that is kept. */
static uint32_t room(const struct shm *s)
{
	return RING_CELLS - 1 - (s->out_pos - s->out_head);
}

static void look_at_head(struct shm *s)
{
	uint32_t head = atomic_load_explicit(&s->peer_head->head,
					     memory_order_acquire);

	/* Between what it was and what was sent; else the peer lies. */
	if (s->out_pos - head > s->out_pos - s->out_head)
		s->broken = -EPROTO;
	else
		s->out_head = head;
}

void *ring_reserve(void *ctx, size_t len)
{
	struct shm *s = ctx;
	uint32_t at = s->out_pos & MASK, n = cells_of(len);

	s->out_pad = at + n > RING_CELLS ? RING_CELLS - at : 0;
	n += s->out_pad;
	if (unlikely(room(s) < n)) {
		look_at_head(s);
		if (room(s) < n)
			return NULL;
	}
	return s->out[(s->out_pos + s->out_pad) & MASK].data;
}

static void publish(struct shm *s, uint32_t pos, uint32_t len)
{
	struct cell *c = &s->out[pos & MASK];

	c->len = len;
	atomic_store_explicit(&c->seq, pos + 1, memory_order_release);
}

/* @pos is where the reader will look next, and sees nothing. */
static void unpublish(struct shm *s, uint32_t pos)
{
	atomic_store_explicit(&s->out[pos & MASK].seq, pos,
			      memory_order_relaxed);
}

void ring_commit(void *ctx, void *packet, size_t len)
{
	struct shm *s = ctx;
	uint32_t pos = s->out_pos + s->out_pad;

	(void)packet;
	unpublish(s, pos + cells_of(len));
	if (unlikely(s->out_pad)) {
		unpublish(s, pos);
		publish(s, s->out_pos, CELL_PAD);
	}
	publish(s, pos, (uint32_t)len);
	s->out_pos = pos + cells_of(len);
	ring_wake(s);
}

/* A length that the peer wrote: whether it can be, at @pos. */
static bool length_fits(uint32_t pos, uint32_t len)
{
	return len >= sizeof(struct packet_head) && len <= PACKET_MAX &&
	       (pos & MASK) + cells_of(len) <= RING_CELLS;
}

const void *ring_next(void *ctx, size_t *len)
{
	struct shm *s = ctx;
	struct cell *c;
	uint32_t n;

	for (;;) {
		c = &s->in[s->in_pos & MASK];
		if (atomic_load_explicit(&c->seq, memory_order_acquire) !=
		    s->in_pos + 1)
			return NULL;
		n = *(volatile uint32_t *)&c->len;
		if (likely(n != CELL_PAD))
			break;
		s->in_pos += RING_CELLS - (s->in_pos & MASK);
	}
	if (unlikely(!length_fits(s->in_pos, n) || s->broken)) {
		s->broken = -EPROTO;
		return NULL;
	}
	s->in_cells = cells_of(n);
	*len = n;
	return c->data;
}

void ring_release(void *ctx, const void *packet)
{
	struct shm *s = ctx;

	(void)packet;
	s->in_pos += s->in_cells;
	if (s->in_pos - s->in_told < HEAD_EVERY)
		return;
	s->in_told = s->in_pos;
	atomic_store_explicit(&s->my_head->head, s->in_pos,
			      memory_order_release);
	ring_wake(s);
}

/*
 * Who goes to sleep says so and then looks once more; who has changed something
 * looks at whether the other sleeps. Neither may see the old state of both, so
 * a full fence stands between store and load on each side. The sleeper makes it
 * for both with membarrier() where the kernel has that; else this side pays
 * (@fence).
 */
void ring_wake(struct shm *s)
{
	uint64_t one = 1;

	if (unlikely(s->fence))
		full_fence();
	else
		compiler_fence();
	if (likely(!atomic_load_explicit(&s->peer_head->asleep,
					 memory_order_relaxed)))
		return;
	atomic_store_explicit(&s->peer_head->asleep, 0, memory_order_relaxed);
	if (write(s->peer_wake_fd, &one, sizeof(one)) < 0)
		return; /* it is full: the peer is awake */
}

int ring_arm(void *ctx)
{
	struct shm *s = ctx;
	uint64_t cnt;
	size_t len;

	if (read(s->wake_fd, &cnt, sizeof(cnt)) < 0)
		cnt = 0; /* nobody woke us */
	atomic_store_explicit(&s->my_head->asleep, 1, memory_order_relaxed);
	barrier_heavy();
	if (s->broken)
		return s->broken;
	return ring_next(s, &len) ? 1 : 0;
}
