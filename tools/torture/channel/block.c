// SPDX-License-Identifier: BSD-2-Clause
/*
 * Buffers in segments. A rank has a few blocks, each a segment and the buffer of one operation
 * at a time, which the peer attaches and has attached still when the operation is over. Then
 * the block is used again, emptied, unmapped, or a segment no more; and what is not used has
 * bytes in it that nobody may change.
 */
#include <string.h>
#include <sys/mman.h>

#include <kedge/segment.h>

#include "tools/torture/channel/chan.h"

#define FILL 0x5a

static const size_t lens[CHAN_BLOCKS] = { 96u << 10, 96u << 10, 96u << 10, 640u << 10,
					  640u << 10, 640u << 10, 1u << 20, 2u << 20 };

/* There is none on a system that converts no memory. */
static bool make(struct chan_block *b, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return false;
	b->base = p;
	b->len = len;
	return true;
}

static bool share(struct chan_block *b)
{
	struct kedge_segment_info i = { .size = sizeof(i) };

	if (!b->segment && kedge_segment_make(b->base, b->len, NULL, &b->segment))
		return false;
	return !kedge_segment_info(b->segment, &i) && i.backend != KEDGE_SEGMENT_COPY;
}

static bool is_filled(const struct chan_block *b)
{
	return b->base[0] == FILL && !memcmp(b->base, b->base + 1, b->len - 1);
}

uint8_t *chan_block_get(struct chan_rank *r, size_t need)
{
	struct chan_block *b;
	size_t i;

	for (i = 0; i < CHAN_BLOCKS; i++) {
		b = &r->block[i];
		if (b->used || lens[i] < need || (!b->base && !make(b, lens[i])) || !share(b))
			continue;
		if (b->filled && !is_filled(b))
			chan_wrong(r->tally, "memory of an operation that is over was written "
				   "to, in a segment");
		b->used = true;
		b->filled = false;
		return b->base;
	}
	return NULL;
}

static void drop(struct chan_block *b)
{
	if (b->base)
		munmap(b->base, b->len);
	kedge_segment_remove(b->segment);
	*b = (struct chan_block){ .base = NULL };
}

static void empty(struct chan_rank *r, struct chan_block *b)
{
	size_t i;

	madvise(b->base, b->len, MADV_DONTNEED);
	for (i = 0; i < b->len; i += 512)
		if (b->base[i]) {
			chan_wrong(r->tally, "a segment that was emptied has data");
			return;
		}
}

static void fill(struct chan_block *b)
{
	memset(b->base, FILL, b->len);
	b->filled = true;
}

void chan_block_put(struct chan_rank *r, const uint8_t *base)
{
	struct chan_block *b = r->block;

	while (b->base != base)
		b++;
	b->used = false;
	switch (util_rng_below(&r->rng, 32)) {
	case 0:
		r->tally->maps++;
		drop(b);
		break;
	case 1:
		r->tally->maps++;
		empty(r, b);
		break;
	case 2: /* private memory again, with what is in it */
		fill(b);
		kedge_segment_remove(b->segment);
		b->segment = NULL;
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		fill(b);
	}
}

void chan_blocks_drop(struct chan_rank *r)
{
	size_t i;

	for (i = 0; i < CHAN_BLOCKS; i++)
		drop(&r->block[i]);
}
