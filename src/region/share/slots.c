// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handles of this process. A handle names its slot, so it is found at once, however many
 * there are; the generation tells it from those that had the slot before. One that came with its
 * region from another process has that one's name and slot as well (alias.c). Slots are made in
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

struct sig_lock shares_lock = SIG_LOCK_INIT; /* guards: */
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
	r->counts.handles++;
	randombytes_buf(s->key, sizeof(s->key));
	return s;
}

/* The generation is the next one's: a peer that shows this handle is told of that. */
void slot_free(struct slot *s)
{
	list_remove(&s->node);
	alias_remove(s);
	sodium_memzero(s->key, sizeof(s->key));
	if (s->region)
		s->region->counts.handles--;
	s->region = NULL;
	s->left = NULL;
	s->generation++;
	s->next_free = first_free;
	first_free = s->index;
}

int slot_look(uint64_t name, uint32_t index, uint32_t generation, struct slot **out)
{
	struct slot *s = alias_find(name, index, generation);

	if (s) {
		*out = s;
		return 0;
	}
	s = slot_at(index);
	if (!s || generation > s->generation ||
	    (generation == s->generation && !s->region && !s->left))
		return -EKEYREJECTED;
	*out = s;
	return generation < s->generation ? -EKEYREVOKED : 0;
}

int slot_state(const struct slot *s)
{
	if (s->left)
		return clock_ns() < s->left->until ? REGION_MOVED : -EKEYREVOKED;
	if (s->revoked)
		return -EKEYREVOKED;
	return s->expires && clock_ns() >= s->expires ? -EKEYEXPIRED : 0;
}

uint64_t part_of(const struct slot *s, uint64_t len)
{
	if (len <= s->offset)
		return 0;
	return len - s->offset < s->len ? len - s->offset : s->len;
}

int slot_find(const struct handle_words *w, struct slot **out)
{
	struct slot *s;
	int rc = slot_look(w->name, w->slot, w->generation, &s);

	if (!rc && sodium_memcmp(w->key, s->key, sizeof(s->key)) != 0)
		rc = -EKEYREJECTED;
	if (rc)
		return rc;
	rc = slot_state(s);
	if (rc != -EKEYREVOKED)
		*out = s;
	return rc;
}

void slots_forget(void)
{
	while (block_cnt)
		free(blocks[--block_cnt]);
	first_free = LAST;
}
