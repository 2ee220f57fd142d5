// SPDX-License-Identifier: BSD-2-Clause
/*
 * free and realloc of chunks so large that the allocator may give their pages
 * back at once: glibc does it by calls within itself that no symbol leads to.
 *
 * Mostly it does not: the chunk is handed out again, and its registration is as
 * good as before. So libkedge is told that the chunk is given up, which changes
 * no registration (KEDGE_HOOK_TELL_ONLY). Only a chunk that libc has mapped for
 * itself is announced as unmapped, for that is what free() does.
 *
 * The allocator is the next one in the search order, glibc's or a preloaded one.
 * Other libraries' constructors may free before ours has looked it up, hence
 * the first functions.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#include "hooks/hooks.h"

static void first_free(void *ptr);
static void *first_realloc(void *ptr, size_t len);
static size_t no_size(void *ptr);

/* Words replaced whole, as in struct kedge__real. */
static void (*real_free)(void *) = first_free;
static void *(*real_realloc)(void *, size_t) = first_realloc;
static size_t (*real_size)(void *) = no_size;

/* dlsym() may free what an earlier error left behind. */
static __thread int resolving __attribute__((tls_model("initial-exec")));

/* The allocator is libc's: it unmaps by calls that no symbol leads to. */
static int is_libcs;

static size_t no_size(void *ptr)
{
	return 0;
}

/*
 * Sizes are asked for only of the library that has free(): another would read
 * a chunk that is not its own.
 */
static int same_library(void *a, void *b)
{
	Dl_info ia, ib;

	return a && b && dladdr(a, &ia) && dladdr(b, &ib) &&
	       ia.dli_fbase == ib.dli_fbase;
}

#define SET(fn, next)                                                          \
	__atomic_store_n((void **)(void *)&(fn), next, __ATOMIC_RELAXED)

/*
 * A sanitizer's malloc_usable_size() must not be called before the sanitizer has begun,
 * and its free() is, by the dynamic linker. Its chunks are not told of: with one, lookups
 * ask (announce_hooked()).
 */
static int sanitized(void)
{
	static const char *const init[] = { "__asan_init", "__hwasan_init", "__msan_init",
					    "__tsan_init" };
	unsigned int i;

	for (i = 0; i < sizeof(init) / sizeof(init[0]); i++)
		if (dlsym(RTLD_DEFAULT, init[i]))
			return 1;
	return 0;
}

__attribute__((constructor(101))) static void resolve(void)
{
	void *next_free, *next_realloc, *next_size;

	resolving = 1;
	next_free = kedge__next("free");
	next_realloc = kedge__next("realloc");
	next_size = kedge__next("malloc_usable_size");
	/* munmap() would be the wrong question: allocators may have one, as tcmalloc has. */
	__atomic_store_n(&is_libcs, same_library(next_free, kedge__next("getauxval")),
			 __ATOMIC_RELAXED);
	if (!sanitized() && same_library(next_free, next_size))
		SET(real_size, next_size);
	if (next_realloc)
		SET(real_realloc, next_realloc);
	if (next_free)
		SET(real_free, next_free);
	resolving = 0;
}

/* A few bytes lost, once, where there is no free() to be had. */
static void first_free(void *ptr)
{
	if (resolving)
		return;
	resolve();
	if (real_free != first_free)
		real_free(ptr);
}

static void *first_realloc(void *ptr, size_t len)
{
	if (!resolving) {
		resolve();
		if (real_realloc != first_realloc)
			return real_realloc(ptr, len);
	}
	errno = ENOMEM;
	return NULL;
}

/*
 * glibc's chunk with a mapping of its own ends where a page ends, any other 8 bytes
 * behind a multiple of 16. Another allocator's is unmapped by a call that is
 * announced, or that the kernel tells of.
 */
static int own_mapping(const void *ptr, size_t len)
{
	return __atomic_load_n(&is_libcs, __ATOMIC_RELAXED) &&
	       !(((uintptr_t)ptr + len) & (kedge__hooks_page() - 1));
}

static int kind_of_free(const void *ptr, size_t len)
{
	return own_mapping(ptr, len)
		? KEDGE_EVENT_UNMAP
		: KEDGE_EVENT_UNMAP | KEDGE_HOOK_TELL_ONLY;
}

/*
 * A large chunk stays until it is freed, which is announced. One that has a
 * mapping of its own begins behind the allocator's word on it, in a page that
 * no other chunk shares.
 */
void *kedge__new_chunk(void *chunk)
{
	size_t len = chunk ? real_size(chunk) : 0, before;

	if (len < LARGE)
		return chunk;
	if (!own_mapping(chunk, len)) {
		kedge_hook_allocated(chunk, len);
		return chunk;
	}
	before = (uintptr_t)chunk & (kedge__hooks_page() - 1);
	kedge_hook_mapped((char *)chunk - before, len + before);
	return chunk;
}

KEDGE_API void free(void *ptr)
{
	struct kedge_hook hook;
	size_t len;

	if (unlikely(!ptr)) {
		/* libkedge asks so whether calls come here. */
		kedge_hook_begin(&hook, KEDGE_EVENT_UNMAP, NULL, 0);
		return;
	}
	len = real_size(ptr);
	if (likely(len < LARGE)) {
		real_free(ptr);
		return;
	}
	kedge_hook_begin(&hook, kind_of_free(ptr, len), ptr, len);
	real_free(ptr);
	kedge_hook_end(&hook);
}

/* An mremap() of a chunk's own mapping, which kedge must not have split. */
static int kind_of_realloc(const void *ptr, size_t len)
{
	return own_mapping(ptr, len)
		? KEDGE_EVENT_REMAP | KEDGE_HOOK_ONE_MAPPING
		: KEDGE_EVENT_REMAP | KEDGE_HOOK_TELL_ONLY;
}

/* A mapping of its own that loses no page stays as it is. */
static int stays(const void *ptr, size_t had, size_t len)
{
	return len && len <= had && had - len < kedge__hooks_page() &&
	       own_mapping(ptr, had);
}

KEDGE_API void *realloc(void *ptr, size_t len)
{
	struct kedge_hook hook;
	size_t had;
	void *at;

	had = ptr ? real_size(ptr) : 0;
	if (likely(had < LARGE)) {
		at = real_realloc(ptr, len);
		return likely(len < LARGE) ? at : kedge__new_chunk(at);
	}
	if (stays(ptr, had, len))
		return real_realloc(ptr, len);
	kedge_hook_begin(&hook, kind_of_realloc(ptr, had), ptr, had);
	at = real_realloc(ptr, len);
	kedge_hook_end(&hook);
	/* The old chunk is the caller's still where there was no memory. */
	kedge__new_chunk(at || !len ? at : ptr);
	return at;
}

/* Drops whole pages of any free chunk, wherever those are. */
KEDGE_API int malloc_trim(size_t pad)
{
	static int (*real)(size_t);
	struct kedge_hook hook;
	void *next;
	int rc;

	if (!__atomic_load_n(&real, __ATOMIC_RELAXED)) {
		next = kedge__next("malloc_trim");
		if (!next)
			return 0;
		SET(real, next);
	}
	kedge_hook_begin(&hook, KEDGE_EVENT_REMOVE | KEDGE_HOOK_TELL_ONLY, NULL, EVERYTHING_LEN);
	rc = real(pad);
	kedge_hook_end(&hook);
	return rc;
}
