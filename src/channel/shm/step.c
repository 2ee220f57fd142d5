// SPDX-License-Identifier: BSD-2-Clause
/*
 * The steps of a message under way. Both processors may work on it: chunks of it are
 * claimed from the record, by fetch_add. That alone gives a chunk to one side,
 * so no order is needed there; a chunk that is done is counted with release and
 * the count is loaded with acquire before the buffer is anybody else's. A chunk that a side has
 * claimed is its own until it is counted; one that the sender returns is the receiver's from
 * then on, and is counted by it alone. What the sender has stored may be in the buffer all the
 * same, as a generation moves for other reasons, too. So a chunk is returned with release and
 * taken back with acquire: those stores come before the receiver's, which are of the same bytes.
 * Without that they could be seen after the message is over, in a buffer that is used anew.
 */
#include <stdatomic.h>

#include "base/copy.h"
#include "channel/shm/bulk.h"

/* A chunk that neither side has claimed; or -EAGAIN. */
static int claim(struct xfer *x, uint64_t *i)
{
	uint64_t c = atomic_load_explicit(&x->rec->claim, memory_order_relaxed);

	if (c >= x->cnt)
		return -EAGAIN;
	c = atomic_fetch_add_explicit(&x->rec->claim, 1, memory_order_relaxed);
	if (c >= x->cnt)
		return -EAGAIN;
	*i = c;
	return 0;
}

/* The sender has stored in vain, which it does once in a message. */
static int take_back(struct xfer *x, uint64_t *i)
{
	uint64_t r = atomic_load_explicit(&x->rec->returned, memory_order_acquire);

	if (!r || r > x->cnt || x->took_back)
		return -EAGAIN;
	x->took_back = true;
	*i = r - 1;
	return 0;
}

static int next_chunk(struct xfer *x, bool recv, uint64_t *i)
{
	if (!x->again && !claim(x, i))
		return 0;
	if (!x->again)
		return recv && x->stores ? take_back(x, i) : -EAGAIN;
	*i = x->again - 1;
	x->again = 0;
	return 0;
}

/* Memory of a segment is not there for a moment, where its owner forks or makes it private and
 * may not have faults of the kernel's handled. */
static bool tries_again(struct xfer *x, uint64_t i)
{
	if (!x->may_be_away)
		return false;
	if (!x->until)
		x->until = clock_after_ns(AGAIN_NS);
	if (clock_ns() > x->until)
		return false;
	x->again = i + 1;
	return true;
}

static void count(struct shm *s, _Atomic uint64_t *done, struct xfer *x)
{
	x->done++;
	atomic_store_explicit(done, x->done, memory_order_release);
	ring_wake(&s->ring);
}

/*
 * A chunk that was claimed and cannot be done is over, too. The receiver waits
 * for those of the sender in stop(), so it is told; but the sender is not told
 * of the receiver's: to it all would seem to have landed.
 */
static void forgo(struct shm *s, bool recv, struct xfer *x)
{
	if (recv)
		x->done++;
	else
		count(s, &x->rec->sender_done, x);
}

/* A chunk could not be read. If the sender's buffer is gone since it gave up, its
 * ABORT has the reason, and waits, or will where there was no room. */
static int why_failed(const struct shm *s, const struct xfer *x)
{
	uint64_t c = atomic_load_explicit(&x->rec->claim, memory_order_acquire);

	return c & RECORD_CLOSED || ring_peek(&s->ring) ? -EAGAIN : x->failed;
}

static int give_back(struct shm *s, struct xfer *x, uint64_t i)
{
	x->push = false;
	atomic_store_explicit(&x->rec->returned, i + 1, memory_order_release);
	ring_wake(&s->ring);
	return 0;
}

static int step_chunks(struct shm *s, struct bulk *b, struct xfer *x)
{
	bool recv = b->flags & BULK_RECV;
	_Atomic uint64_t *mine = recv ? &x->rec->receiver_done
				      : &x->rec->sender_done;
	_Atomic uint64_t *other = recv ? &x->rec->sender_done
				       : &x->rec->receiver_done;
	int moved = -EAGAIN;
	uint64_t i;

	if ((recv ? x->pull : x->push) && !next_chunk(x, recv, &i)) {
		moved = recv ? chunk_get(s, b, x, i) : chunk_put(s, b, x, i);
		if (moved == -ESTALE && !recv && x->stores)
			return give_back(s, x, i);
		if (moved == -EFAULT && recv && tries_again(x, i))
			return 0;
		if (moved) {
			forgo(s, recv, x);
			x->failed = recv ? moved : 0;
			return recv ? why_failed(s, x) : moved;
		}
		count(s, mine, x);
	}
	return x->done + atomic_load_explicit(other, memory_order_acquire) >=
			       x->cnt
		       ? chunks_done(s, x) : moved;
}

static uint64_t slot_off(const struct xfer *x)
{
	return x->off + x->done % x->slot_cnt * x->chunk;
}

/* Slots are used in a circle; the sender is ahead of the receiver by at most
 * all of them. */
static int step_fill(struct shm *s, struct bulk *b, struct xfer *x)
{
	uint64_t drained = atomic_load_explicit(&x->rec->receiver_done,
						memory_order_acquire);
	int moved = -EAGAIN;

	if (x->done < x->cnt && x->done - drained < x->slot_cnt) {
		moved = kedge__bulk_check(b);
		if (moved)
			return moved;
		copy_bytes(area_slots(&s->peers, slot_off(x), x->chunk),
			   x->from + x->done * x->chunk,
			   chunk_len(b, x, x->done));
		count(s, &x->rec->sender_done, x);
		moved = 0;
	}
	return drained >= x->cnt ? 1 : moved;
}

static int step_drain(struct shm *s, struct bulk *b, struct xfer *x)
{
	uint64_t filled = atomic_load_explicit(&x->rec->sender_done,
					       memory_order_acquire);
	int moved = -EAGAIN;

	if (x->done < x->cnt && filled != x->done) {
		moved = kedge__bulk_check(b);
		if (moved)
			return moved;
		copy_bytes((char *)(uintptr_t)b->piece[0].addr +
				   x->done * x->chunk,
			   area_slots(&s->mine, slot_off(x), x->chunk),
			   chunk_len(b, x, x->done));
		count(s, &x->rec->receiver_done, x);
		moved = 0;
	}
	if (b->flags & BULK_FIN && x->done < x->cnt && filled == x->done)
		return kedge_reason(-EPROTO, "the peer says that all of a "
				    "message is there, and it is not");
	return x->done >= x->cnt ? 1 : moved;
}

int bulk_step(void *ctx, struct bulk *b)
{
	struct shm *s = ctx;
	struct xfer *x = xfer_of(b);

	if (x->failed)
		return why_failed(s, x);
	if (x->mode != MODE_STREAM)
		return b->flags & BULK_FIN ? 1 : step_chunks(s, b, x);
	return b->flags & BULK_RECV ? step_drain(s, b, x) : step_fill(s, b, x);
}
