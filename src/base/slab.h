/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of one size, without malloc: code that runs while a thread may sit in
 * munmap() inside an allocator must not call that allocator. Not locked; the
 * owner's lock guards it. Memory goes back to the system when the slab ends.
 */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>

struct slab {
	size_t size;
	void *free;
	void *chunks;
	char *next;
	char *end;
};

void slab_init(struct slab *s, size_t object_size);
void slab_fini(struct slab *s);
void *slab_get(struct slab *s); /* zeroed; NULL if the system has no memory */
void slab_put(struct slab *s, void *object);

#endif /* BASE_SLAB_H */
