/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Versions of UCX are served in ways of their own: calls.c has the names that UCX binds, and hands
 * the calls of its caches to the way of the version that is loaded.
 *
 * Arguments are words here, as versions differ in what they are.
 */
#ifndef ADAPTER_UCX_WAY_H
#define ADAPTER_UCX_WAY_H

#include <stdint.h>

/* As many words as a call of any version has arguments, and more. UCX's status is a byte: the rest
 * of the register is whatever it is. */
typedef int8_t (*ucx_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
			 uintptr_t, uintptr_t);

/* UCX's codes, which are the same in all versions. */
enum {
	UCX_OK = 0,
	UCX_NO_MEMORY = -4,
	UCX_UNSUPPORTED = -22,
};

/* A memory handle, as UCX's memory domains give one for a registration, is of one of them. */
typedef struct uct_md *md_t;
typedef void *memh_t;

/**
 * struct way - the calls of UCX's caches, and what differs
 * @create:  ucs_rcache_create(), called by the code at @caller
 * @get:     ucs_rcache_get(), all words
 * @destroy: ucs_rcache_destroy()
 */
struct way {
	int (*create)(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache,
		      const void *caller);
	int (*get)(const uintptr_t words[8]);
	void (*destroy)(uintptr_t cache);
};

/* 1.13 to 1.15: its structures are those of 1.13's headers (rcache.c, in a build that has them). */
extern const struct way way_1_13;
/* 1.16 and later: no structure is known (later.c). */
extern const struct way way_later;

#endif /* ADAPTER_UCX_WAY_H */
