/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of one size, without malloc: code that runs while a thread may sit in
 * munmap() inside an allocator must not call that allocator. Not locked; the
 * owner's lock guards it. Memory goes back to the system when the pool ends.
 */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>

struct pool {
	size_t size;
	void *free;
	void *chunks;
	char *next;
	char *end;
};

void pool_init(struct pool *p, size_t object_size);
void pool_fini(struct pool *p);
void *pool_get(struct pool *p); /* zeroed; NULL if the system has no memory */
void pool_put(struct pool *p, void *object);

#endif /* BASE_SLAB_H */
