// SPDX-License-Identifier: BSD-2-Clause
/*
 * A free list over mapped chunks. A chunk starts with a link to the chunk
 * before it; a free object starts with a link to the next free one.
 */
#include <string.h>

#include "base/base.h"
#include "base/process/own.h"
#include "base/slab.h"

#define CHUNK_LEN ((size_t)256 << 10)

void slab_init(struct slab *s, size_t object_size)
{
	memset(s, 0, sizeof(*s));
	s->size = round_up(object_size, 16);
}

void slab_fini(struct slab *s)
{
	void *chunk = s->chunks, *before;

	while (chunk) {
		before = *(void **)chunk;
		own_unmap(chunk, CHUNK_LEN);
		chunk = before;
	}
	memset(s, 0, sizeof(*s));
}

static int add_chunk(struct slab *s)
{
	void *chunk = own_map(CHUNK_LEN);

	if (!chunk)
		return -ENOMEM;
	*(void **)chunk = s->chunks;
	s->chunks = chunk;
	s->next = (char *)chunk + 64;
	s->end = (char *)chunk + CHUNK_LEN;
	return 0;
}

void *slab_get(struct slab *s)
{
	void *object = s->free;

	if (object) {
		s->free = *(void **)object;
		return memset(object, 0, s->size);
	}
	if ((size_t)(s->end - s->next) < s->size && add_chunk(s))
		return NULL;
	object = s->next;
	s->next += s->size;
	return object;
}

void slab_put(struct slab *s, void *object)
{
	*(void **)object = s->free;
	s->free = object;
}
