// SPDX-License-Identifier: BSD-2-Clause
/*
 * malloc and its kin: large chunks are memory of which libkedge is told that it
 * goes only as announced (heap.c). What has no wrapper here (valloc, pvalloc) is
 * memory that lookups ask the kernel about: dearer, and as right.
 *
 * The dynamic linker itself allocates through malloc() and calloc() here, before
 * any constructor and while it looks these names up for us. It takes a refusal
 * then for what it says, and no call of its own depends on it.
 */
#include <malloc.h>
#include <stdlib.h>

#include "hooks/hooks.h"

static void *first_malloc(size_t len);
static void *first_calloc(size_t cnt, size_t len);
static void *first_memalign(size_t align, size_t len);
static void *first_aligned_alloc(size_t align, size_t len);
static int first_posix_memalign(void **out, size_t align, size_t len);

/* Words replaced whole, as in struct kedge__real. */
static void *(*real_malloc)(size_t) = first_malloc;
static void *(*real_calloc)(size_t, size_t) = first_calloc;
static void *(*real_memalign)(size_t, size_t) = first_memalign;
static void *(*real_aligned_alloc)(size_t, size_t) = first_aligned_alloc;
static int (*real_posix_memalign)(void **, size_t,
				  size_t) = first_posix_memalign;

static __thread int resolving __attribute__((tls_model("initial-exec")));

#define RESOLVE(name)                                                          \
	do {                                                                   \
		void *next = kedge__next(#name);                               \
		if (next)                                                      \
			__atomic_store_n((void **)(void *)&real_##name, next,  \
					 __ATOMIC_RELAXED);                    \
	} while (0)

/* 0: in the middle of it. */
__attribute__((constructor(101))) static int resolve(void)
{
	if (resolving)
		return 0;
	resolving = 1;
	RESOLVE(malloc);
	RESOLVE(calloc);
	RESOLVE(memalign);
	RESOLVE(aligned_alloc);
	RESOLVE(posix_memalign);
	resolving = 0;
	return 1;
}

static void *none(void)
{
	errno = ENOMEM;
	return NULL;
}

static void *first_malloc(size_t len)
{
	return resolve() && real_malloc != first_malloc ? real_malloc(len)
							: none();
}

static void *first_calloc(size_t cnt, size_t len)
{
	return resolve() && real_calloc != first_calloc ? real_calloc(cnt, len)
							: none();
}

static void *first_memalign(size_t align, size_t len)
{
	return resolve() && real_memalign != first_memalign
		       ? real_memalign(align, len)
		       : none();
}

static void *first_aligned_alloc(size_t align, size_t len)
{
	return resolve() && real_aligned_alloc != first_aligned_alloc
		       ? real_aligned_alloc(align, len)
		       : none();
}

static int first_posix_memalign(void **out, size_t align, size_t len)
{
	return resolve() && real_posix_memalign != first_posix_memalign
		       ? real_posix_memalign(out, align, len)
		       : ENOMEM;
}

KEDGE_API void *malloc(size_t len)
{
	if (likely(len < LARGE))
		return real_malloc(len);
	return kedge__new_chunk(real_malloc(len));
}

KEDGE_API void *calloc(size_t cnt, size_t len)
{
	size_t bytes;

	/* The real calloc() refuses a product that overflows. */
	if (likely(!__builtin_mul_overflow(cnt, len, &bytes) && bytes < LARGE))
		return real_calloc(cnt, len);
	return kedge__new_chunk(real_calloc(cnt, len));
}

KEDGE_API void *memalign(size_t align, size_t len)
{
	if (likely(len < LARGE))
		return real_memalign(align, len);
	return kedge__new_chunk(real_memalign(align, len));
}

KEDGE_API void *aligned_alloc(size_t align, size_t len)
{
	if (likely(len < LARGE))
		return real_aligned_alloc(align, len);
	return kedge__new_chunk(real_aligned_alloc(align, len));
}

KEDGE_API int posix_memalign(void **out, size_t align, size_t len)
{
	int rc = real_posix_memalign(out, align, len);

	if (!rc && unlikely(len >= LARGE))
		kedge__new_chunk(*out);
	return rc;
}
