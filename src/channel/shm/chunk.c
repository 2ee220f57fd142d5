// SPDX-License-Identifier: BSD-2-Clause
/*
 * One chunk of a message, copied by the side that has claimed it: within memory that both
 * have mapped (a heap, or a segment that is attached), or by the kernel.
 *
 * A segment may be recalled at any moment. So what was copied out of one counts only if it
 * still is valid afterwards; else the kernel copies the chunk once more, from the address
 * itself.
 *
 * A chunk that was stored into the receiver's segment counts only if that still is valid, likewise:
 * the owner moves the generation before it makes the memory private, and there is a full fence
 * behind either side's first step. So it copies what was stored, or the sender finds the
 * generation moved, and leaves the chunk to the receiver, with all that follow. Without the
 * fences the sender could look before its stores are seen, and they were lost. A sender that is
 * stopped amid a chunk might go on storing when the receive has been cancelled, or the channel
 * closed: cancelling waits for it, as for any push, and what ends without waiting
 * takes the memory away from it first (bulk_end(), segment_revoke()). For that reason it never
 * has the kernel write there: nothing takes that away.
 */
#include <sys/uio.h>

#include "base/copy.h"
#include "channel/shm/bulk.h"

uint64_t chunk_len(const struct bulk *b, const struct xfer *x, uint64_t i)
{
	uint64_t left = b->len - i * x->chunk;

	return left < x->chunk ? left : x->chunk;
}

/* [off, off + len) of a message in its target's pieces, as an iovec. */
static size_t slice(const struct xfer *x, uint64_t off, uint64_t len,
		    struct iovec *v)
{
	uint64_t part;
	size_t n = 0, i;

	for (i = 0; i < x->piece_cnt && len; i++) {
		if (off >= x->piece[i].len) {
			off -= x->piece[i].len;
			continue;
		}
		part = x->piece[i].len - off;
		part = part < len ? part : len;
		v[n].iov_base = (void *)(uintptr_t)(x->piece[i].addr + off);
		v[n++].iov_len = part;
		len -= part;
		off = 0;
	}
	return n;
}

/* By the kernel. */
static int put_crossing(struct shm *s, struct xfer *x, const char *src, uint64_t off,
			uint64_t len)
{
	struct iovec v[PIECES_MAX];

	if (!x->pushed || x->pushed >= LOOK_EVERY) {
		int rc = cross_look(s);

		if (rc)
			return rc;
		x->pushed = 0;
	}
	x->pushed += len;
	return cross_write(s, src, v, slice(x, off, len, v), len);
}

/* -ESTALE: it was not the receiver's memory any more. */
static int store(struct shm *s, struct bulk *b, struct xfer *x, uint64_t off, uint64_t len)
{
	int rc = kedge__bulk_check(b);

	if (rc)
		return rc;
	copy_bytes(x->far_at + off, x->from + off, len);
	full_fence();
	if (!theirs_valid(x->far))
		return -ESTALE;
	s->attached += len;
	return 0;
}

int chunk_put(struct shm *s, struct bulk *b, struct xfer *x, uint64_t i)
{
	uint64_t off = i * x->chunk, len = chunk_len(b, x, i);
	const char *src = x->from + off;
	int rc;

	if (x->stores)
		return store(s, b, x, off, len);
	if (x->mode != MODE_SHARED)
		return put_crossing(s, x, src, off, len);
	rc = kedge__bulk_check(b);
	if (!rc)
		copy_bytes(area_heap(&s->peers, x->off + off, len), src, len);
	return rc;
}

int chunks_done(struct shm *s, struct xfer *x)
{
	int rc = x->pushed ? cross_look(s) : 0;

	x->pushed = 0;
	return rc ? rc : 1;
}

static void scatter(const struct xfer *x, uint64_t off, const char *src,
		    uint64_t len)
{
	struct iovec v[PIECES_MAX];
	size_t n = slice(x, off, len, v), i;

	for (i = 0; i < n; i++) {
		copy_bytes(v[i].iov_base, src, v[i].iov_len);
		src += v[i].iov_len;
	}
}

/* By a segment of the peer's. True: it was the peer's memory as it was read. */
static bool get_attached(struct shm *s, struct xfer *x, uint64_t off, uint64_t len)
{
	if (!x->far_at)
		return false;
	scatter(x, off, x->far_at + off, len);
	if (!theirs_valid(x->far)) {
		x->far_at = NULL;
		return false;
	}
	s->attached += len;
	return true;
}

static void get_shared(struct shm *s, struct xfer *x, uint64_t off, uint64_t len)
{
	const char *from = area_heap(&s->peers, x->src_off + off, len);

	if (x->mode == MODE_SHARED)
		copy_bytes(x->to + off, from, len);
	else
		scatter(x, off, from, len);
}

int chunk_get(struct shm *s, struct bulk *b, struct xfer *x, uint64_t i)
{
	uint64_t off = i * x->chunk, len = chunk_len(b, x, i);
	struct iovec v[1 + PIECES_MAX];
	int rc = x->src_off != NO_PAGES || x->far_at ? kedge__bulk_check(b) : 0;

	if (rc)
		return rc;
	if (x->src_off != NO_PAGES)
		get_shared(s, x, off, len);
	else if (!get_attached(s, x, off, len))
		return cross_read(s, v, slice(x, off, len, v + 1), x->src + off, len);
	return 0;
}
