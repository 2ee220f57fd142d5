/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lookups that libucp has inlined, from UCX 1.14 on. All of them ask ucs_pgtable_lookup() of
 * libucs for the region, without the locks of the cache, and go on to ucs_rcache_get() where there
 * is none. So the tables of caches that are watched are hidden from libucp: all lookups in them
 * come to ucs_rcache_get(), as in 1.13. Tables of other caches are asked as ever: libucp itself has
 * some, of memory of other processes, and has to be answered there.
 */
#ifndef ADAPTER_UCX_HIDDEN_H
#define ADAPTER_UCX_HIDDEN_H

#include <stdbool.h>
#include <stdint.h>

/* It is libucp's cache of memory that devices import of other processes. */
bool hidden_is_import(const char *name);

/* Make a cache by UCX's own call, in which libucp may look up, and note it. UCX's status. */
int hidden_create(uintptr_t params, uintptr_t name, uintptr_t stats, uintptr_t cache, bool hides);
/* Before it ends. None of that address is fine, too. */
void hidden_remove(uintptr_t cache);

/* A lookup in a table by the code at @caller: true, it has to find nothing there. */
bool hidden_from(const void *table, const void *caller);

/* False: that cache is hidden, and libucp has no call that would ask for its table. So it was built
 * in another way, and finds what has changed where this library is not. Its first lookup does not
 * tell: UCX asks for no table while an event waits to be met. */
bool hidden_is_asked(uintptr_t cache);

/* In a forked child: locks are in any state. */
void hidden_anew(void);

#endif /* ADAPTER_UCX_HIDDEN_H */
