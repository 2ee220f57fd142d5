// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handles of this process. A handle names its slot, so it is found at once, however many
 * there are; the generation tells it from those that had the slot before. Slots are made in
 * blocks, which stay where they are.
 */
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/base.h"
#include "region/share/share.h"

#define BLOCK  1024u
#define BLOCKS 1024u
#define LAST   UINT32_MAX

/* Guarded by shares_lock. */
static struct slot *blocks[BLOCKS];
static uint32_t block_cnt;
static uint32_t first_free = LAST;

static int make_block(void)
{
	struct slot *b;
	uint32_t i;

	if (block_cnt == BLOCKS)
		return kedge_reason(-ENOSPC, "this process has %u handles, which are all that "
				    "it may: revoke some", BLOCK * BLOCKS);
	b = calloc(BLOCK, sizeof(*b));
	if (!b)
		return kedge_reason(-ENOMEM, "no memory for a handle");
	for (i = 0; i < BLOCK; i++) {
		b[i].index = block_cnt * BLOCK + i;
		b[i].next_free = i + 1 < BLOCK ? b[i].index + 1 : LAST;
	}
	first_free = b[0].index;
	blocks[block_cnt++] = b;
	return 0;
}

static struct slot *slot_at(uint32_t index)
{
	return index / BLOCK < block_cnt ? &blocks[index / BLOCK][index % BLOCK] : NULL;
}

struct slot *slot_make(struct kedge_region *r, int *rc)
{
	struct slot *s;

	*rc = first_free == LAST ? make_block() : 0;
	if (*rc)
		return NULL;
	s = slot_at(first_free);
	first_free = s->next_free;
	s->region = r;
	s->revoked = false;
	list_init(&s->conns);
	list_add_tail(&r->slots, &s->node);
	randombytes_buf(s->key, sizeof(s->key));
	return s;
}

/* The generation is the next one's: a peer that shows this handle is told of that. */
void slot_free(struct slot *s)
{
	list_remove(&s->node);
	sodium_memzero(s->key, sizeof(s->key));
	s->region = NULL;
	s->generation++;
	s->next_free = first_free;
	first_free = s->index;
}

int slot_find(const struct handle_words *w, struct slot **out)
{
	struct slot *s = slot_at(w->slot);

	if (!s || w->generation > s->generation ||
	    (w->generation == s->generation && !s->region))
		return -EKEYREJECTED;
	if (w->generation < s->generation)
		return -EKEYREVOKED;
	if (sodium_memcmp(w->key, s->key, sizeof(s->key)) != 0)
		return -EKEYREJECTED;
	if (s->revoked)
		return -EKEYREVOKED;
	*out = s;
	return s->expires && clock_ns() >= s->expires ? -EKEYEXPIRED : 0;
}

void slots_forget(void)
{
	while (block_cnt)
		free(blocks[--block_cnt]);
	first_free = LAST;
}
