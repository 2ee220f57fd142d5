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

void pool_init(struct pool *p, size_t object_size)
{
	memset(p, 0, sizeof(*p));
	p->size = round_up(object_size, 16);
}

void pool_fini(struct pool *p)
{
	void *chunk = p->chunks, *before;

	while (chunk) {
		before = *(void **)chunk;
		own_unmap(chunk, CHUNK_LEN);
		chunk = before;
	}
	memset(p, 0, sizeof(*p));
}

static int add_chunk(struct pool *p)
{
	void *chunk = own_map(CHUNK_LEN);

	if (!chunk)
		return -ENOMEM;
	*(void **)chunk = p->chunks;
	p->chunks = chunk;
	p->next = (char *)chunk + 64;
	p->end = (char *)chunk + CHUNK_LEN;
	return 0;
}

void *pool_get(struct pool *p)
{
	void *object = p->free;

	if (object) {
		p->free = *(void **)object;
		return memset(object, 0, p->size);
	}
	if ((size_t)(p->end - p->next) < p->size && add_chunk(p))
		return NULL;
	object = p->next;
	p->next += p->size;
	return object;
}

void pool_put(struct pool *p, void *object)
{
	*(void **)object = p->free;
	p->free = object;
}
