/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UCX's own functions, of the libraries that the process has loaded, and whether kedge can serve
 * them. Programs load UCX in any way, also by libraries between: the search is in the libraries
 * themselves, and not in an order of symbols.
 */
#ifndef ADAPTER_UCX_FOUND_H
#define ADAPTER_UCX_FOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "way.h"

/* Minor versions of UCX 1, by their sources; docs/ucx.md says which were tried. */
#ifdef KEDGE_UCX_1_13
#define FOUND_FIRST 13u
#define FOUND_BY_HEADERS(minor) ((minor) <= 15) /* structures are those of 1.13's */
#else
#define FOUND_FIRST 14u
#define FOUND_BY_HEADERS(minor) false
#endif
#define FOUND_LAST 22u

struct found {
	ucx_fn create, get, destroy, put; /* never NULL */
	void (*vm_munmap)(void *addr, size_t len);
	void (*set_external_event)(int events);
	unsigned int minor; /* of UCX 1. 0: not all are there, or of no version that is known */
	uintptr_t ucp_start, ucp_end; /* libucp in memory */
	bool ucp_asks; /* it binds ucs_pgtable_lookup(), so its lookups come by */
};

/* The same each time; says once why kedge does not serve. Not while UCX is being loaded. */
const struct found *found(void);

/* That function of that library, or NULL. While UCX is being loaded, too. */
void *found_in(const char *library, const char *name);
#define IN_UCM "libucm.so.0"
#define IN_UCS "libucs.so.0"
#define IN_UCT "libuct.so.0"

/* libucp is there, of a version that is known. While UCX is being loaded. */
bool found_early(void);

/* True: that code is of a library, the file name of which begins so. */
bool found_is_of(const void *code, const char *begins);

/* The call of one that is missing: "not supported", and a caller does without a cache then. */
int8_t found_absent(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f,
		    uintptr_t g, uintptr_t h);

/* A line on standard error, behind the library's name. */
__attribute__((format(printf, 1, 2))) void found_say(const char *format, ...);

#endif /* ADAPTER_UCX_FOUND_H */
