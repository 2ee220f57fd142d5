/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of packets in memory that two processes share: one writes, the other
 * reads. The path of every short message is here, to be inlined, so that the
 * protocol sends and takes such a message without a call.
 *
 * A packet is there when the first of its cells says so: @seq is then the
 * position plus one, stored with release after everything else and loaded with
 * acquire before anything else. So a short packet is one cache line, which
 * moves once. Data of long packets may leave any bytes where a later packet
 * begins: before a packet is published, the cell behind it gets a @seq that
 * cannot be taken for one. That cell is free: one is always kept.
 *
 * A long packet may be shown before all of it is there (CELL_GROWS), so that both
 * processors copy at the same time. The writer finishes it before it begins
 * another, so one word says how far it is (grown): which packet, and how many
 * bytes. It is stored with release after those bytes, the first time before the
 * packet's @seq, and loaded with acquire before they are read. If it names another
 * packet, that is a later one, and this one is all there.
 *
 * The reader publishes how far it is (head, release) after it has read a packet
 * for the last time; the writer loads it (acquire) before it writes there again.
 *
 * While the reader keeps up, the writer goes back to the first cell after a lap of
 * RING_SOFT of them, so that few pages of a ring are ever touched; where the
 * reader is behind, it uses all. The reader does not know: it is told to go on
 * at the first cell (CELL_PAD) earlier.
 *
 * Laps grow with what goes through the ring, as far as a process has pages for them:
 * a line that the reader has still in its cache costs the writer a message to that
 * processor. Up to 16 KiB a message takes half as long then, where the two have no
 * cache in common. Where they have, a ring has to be larger than both of their own
 * caches (2 MiB on an EPYC): a stream of 3 KiB messages is faster by a third then,
 * and half as large is no better than small.
 *
 * Such a ring takes addresses, so a process has few of them (channel/shm/area.c); the others
 * have RING_SHORT cells. Positions are the same in both, and lap ends are: the
 * writer leaves out those up to RING_CELLS. Behind a short ring there is one more
 * cell, in which no packet begins but CELL_PAD.
 */
#ifndef CHANNEL_RING_H
#define CHANNEL_RING_H

#include <stdatomic.h>

#include "base/base.h"

#define RING_CACHE_LINE 64u
#define RING_CELLS	32768u
#define RING_MASK	(RING_CELLS - 1)
#define RING_SHORT	4096u
#define RING_SOFT	256u /* a lap, at first, while the reader keeps up */
#define RING_LAPS	16u  /* of a length, then they become longer */
#define RING_SPARE	(16u << 20) /* bytes that longer laps take in a process */
#define RING_HEAD_EVERY (RING_SOFT / 4) /* cells between two stores of head */
#define CELL		64u
#define RING_AT		65536u /* in an area, which begins with a ring_head */

/* One position of the ring. A packet takes neighbouring cells; what is in
 * @seq of the first one says that it is there. */
struct cell {
	_Atomic uint32_t seq;
	uint32_t len;
	uint8_t data[CELL - 8];
};

#define CELL_PAD   UINT32_MAX /* as a length: go on at the first cell */
#define CELL_GROWS (1u << 31) /* with a length: see ring_head.grown */

/* Written by the reader of a ring; @grown is of the ring to the other side. */
struct ring_head {
	_Atomic uint32_t head;	 /* the owner has read the ring up to here */
	uint8_t pad0[RING_CACHE_LINE - 4];
	_Atomic uint32_t asleep; /* the owner wants to be woken */
	uint8_t pad1[RING_CACHE_LINE - 4];
	/* The latest packet that was shown before all of it was there: the
	 * position of its first cell above, the bytes that are there below. */
	_Atomic uint64_t grown;
	uint8_t pad2[RING_CACHE_LINE - 8];
};

/* Both directions, as one side sees them. */
struct ring {
	/* Sending: positions count cells for ever, modulo 2^32. */
	struct cell *out;
	struct ring_head *peer_head;
	uint32_t out_pos;
	uint32_t out_head; /* what the peer had read when last looked at */
	uint32_t out_pad;  /* cells skipped by the last reserve */
	uint32_t out_end;  /* a packet that reaches this cell needs a decision */
	uint32_t out_grows; /* length of the packet that begin() showed, or 0 */
	uint32_t out_cells; /* RING_CELLS or RING_SHORT */
	uint32_t lap;	    /* cells, while the reader keeps up */
	uint32_t laps;	    /* of this length */
	bool fence;	    /* see ring_wake() */
	/* Receiving. */
	bool in_grows;	   /* not all of the packet that is out need be there */
	uint32_t in_pos;
	uint32_t in_max; /* RING_CELLS or RING_SHORT */
	uint32_t in_told;  /* what my_head->head says */
	uint32_t in_cells; /* of the packet that is out */
	uint32_t in_len;   /* and its length */
	const struct cell *in_at; /* at in_pos; or a cell that stays empty */
	struct cell *in;
	struct ring_head *my_head;

	int sock;	   /* a byte wakes its reader */
	int broken;	   /* what the peer did, or 0 */
	const char *broken_why;
};

/* The peer did something that ends the channel: @rc, which is returned. The
 * first reason stays. */
int ring_break(struct ring *r, int rc, const char *why);

/* Over the areas of both sides, where the rings have so many cells; and what it had
 * of the process's pages back. */
void ring_init(struct ring *r, char *mine, uint32_t in, char *peers,
	       uint32_t out);
void ring_fini(struct ring *r);

/* As a transport's operations of these names; @ctx is a ring. */
void *ring_reserve(void *ctx, size_t len);
void ring_commit(void *ctx, void *packet, size_t len);
void ring_begin(void *ctx, void *packet, size_t len, size_t have);
void ring_more(void *ctx, size_t have);
size_t ring_arrived(void *ctx, const void *packet);
const void *ring_next(void *ctx, size_t *len);
void ring_release(void *ctx, const void *packet);

/* Bytes that woke us before are taken, and the peer is asked to wake us. */
void ring_sleep(struct ring *r);
void ring_wake_peer(struct ring *r);

static inline uint32_t ring_cells(size_t len)
{
	return (uint32_t)((len + offsetof(struct cell, data) + CELL - 1) / CELL);
}

/* Free cells, without the one that is kept. */
static inline uint32_t ring_room(const struct ring *r)
{
	return RING_CELLS - 1 - (r->out_pos - r->out_head);
}

/*
 * A side that goes to sleep says so and then looks once more; a side that has
 * changed something looks at whether the other sleeps. At least one must see what
 * the other stored, so a full fence stands between store and load on each side.
 * The sleeper makes it for both with membarrier() where the kernel has that; else
 * this side pays (@fence).
 */
static inline void ring_wake(struct ring *r)
{
	if (unlikely(r->fence))
		full_fence();
	else
		compiler_fence();
	if (unlikely(atomic_load_explicit(&r->peer_head->asleep,
					  memory_order_relaxed)))
		ring_wake_peer(r);
}

static inline void ring_publish(struct ring *r, uint32_t pos, uint32_t len)
{
	struct cell *c = &r->out[pos & RING_MASK];

	c->len = len;
	atomic_store_explicit(&c->seq, pos + 1, memory_order_release);
}

/* @pos is where the reader will look next, and it sees an empty cell. */
static inline void ring_unpublish(struct ring *r, uint32_t pos)
{
	atomic_store_explicit(&r->out[pos & RING_MASK].seq, pos,
			      memory_order_relaxed);
}

/*
 * Room for a packet where that needs no look at what the peer has read; else
 * NULL: ring_reserve() may have it.
 */
static inline void *ring_reserve_short(struct ring *r, size_t len)
{
	uint32_t at = r->out_pos & RING_MASK, n = ring_cells(len);

	if (unlikely(at + n > r->out_end || ring_room(r) < n))
		return NULL;
	r->out_pad = 0;
	return r->out[at].data;
}

/*
 * Lines that the next packet needs, if it is like this one, come here while the peer
 * answers, and not while it waits: the last of its @cells, but not the first, at
 * which the peer looks; the cell that is made invisible; and, at the end of a lap,
 * how far the peer has read.
 */
static inline void ring_foresee(const struct ring *r, uint32_t cells)
{
	uint32_t end = r->out_pos + cells;

	__builtin_prefetch(&r->out[end & RING_MASK], 1);
	if (cells > 1)
		__builtin_prefetch(&r->out[(end - 1) & RING_MASK], 1);
	if (unlikely((r->out_pos & RING_MASK) + cells > r->out_end))
		__builtin_prefetch(&r->peer_head->head);
}

/* Commit what ring_reserve_short() gave. */
static inline void ring_commit_short(struct ring *r, size_t len)
{
	uint32_t pos = r->out_pos, end = pos + ring_cells(len);

	ring_unpublish(r, end);
	ring_publish(r, pos, (uint32_t)len);
	r->out_pos = end;
	ring_foresee(r, end - pos);
	ring_wake(r);
}

/* The next packet may be there. */
static inline bool ring_peek(const struct ring *r)
{
	return atomic_load_explicit(&r->in_at->seq, memory_order_acquire) ==
	       r->in_pos + 1;
}

/*
 * The length of the packet that ring_peek() has seen, if it has at most @max bytes
 * and all of it is there; else 0, and ring_next() knows. CELL_PAD and CELL_GROWS
 * are more than any @max.
 */
static inline uint32_t ring_short(const struct ring *r, uint32_t max)
{
	uint32_t len = *(const volatile uint32_t *)&r->in_at->len;

	if (unlikely(len > max ||
		     (r->in_pos & RING_MASK) + ring_cells(len) > r->in_max))
		return 0;
	return len;
}

/* On over @cells of them. */
static inline void ring_advance(struct ring *r, uint32_t cells)
{
	r->in_pos += cells;
	r->in_at = &r->in[r->in_pos & RING_MASK];
}

/* The packet, which took @cells, has been read for the last time. */
static inline void ring_release_short(struct ring *r, uint32_t cells)
{
	ring_advance(r, cells);
	if (r->in_pos - r->in_told < RING_HEAD_EVERY)
		return;
	r->in_told = r->in_pos;
	atomic_store_explicit(&r->my_head->head, r->in_pos,
			      memory_order_release);
	ring_wake(r);
}

#endif /* CHANNEL_RING_H */
