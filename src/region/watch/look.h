/* SPDX-License-Identifier: BSD-2-Clause */
/* Mappings at a region's addresses, as the kernel lists them. */
#ifndef REGION_WATCH_LOOK_H
#define REGION_WATCH_LOOK_H

#include "region/internal.h"

/*
 * @LOOK_OWN:   the region's file, where it belongs, readable and writable
 * @LOOK_SHUT:  the same with another protection
 * @LOOK_KEPT:  private memory that no one may touch: as the region keeps addresses
 * @LOOK_NONE:  no mapping
 * @LOOK_OTHER: another mapping
 */
enum look { LOOK_OWN, LOOK_SHUT, LOOK_KEPT, LOOK_NONE, LOOK_OTHER };

/* Bytes [@from, @to) of the region. It may change the mapping there. Nonzero ends the look. */
typedef int look_fn(void *arg, enum look is, uint64_t from, uint64_t to);

/*
 * By a thread with the keeper's table of descriptors, with the region's lock or in its stead: 0,
 * what @fn returned, or a negative errno with its reason.
 */
int look_through(const struct kedge_region *r, uint64_t from, uint64_t to, look_fn *fn, void *arg);

/* Changes of the mapping are not told of: no peer has the memory, nor a lease of it, and each
 * access is done here, behind a look. */
bool look_is_needed(const struct kedge_region *r);
/* The access has bytes of [@from, @to). */
typedef bool look_touches_fn(const void *arg, uint64_t from, uint64_t to);
/* By a thread with the keeper's table of descriptors, with shares_lock, before an access of bytes
 * of [@from, @to): 0; -ENODATA if *@gap, of which it has bytes, is not the region's own; or another
 * negative errno, and it cannot be known. Dropped pages are not looked for, as the program and
 * peers find the same there: zero. */
int look_at_access(const struct kedge_region *r, uint64_t from, uint64_t to,
		   look_touches_fn *touches, const void *arg, struct gap *gap);

/* As look_through(): [@from, @to) is the region's own, at its addresses, and no page is missing in
 * the file: 0; or -ENODATA, and the reason names the first range that is not. */
int look_is_whole(const struct kedge_region *r, uint64_t from, uint64_t to);
/* -ENODATA with that reason. */
int look_missing(uint64_t from, uint64_t to);

/* Likewise. Call @fn for each range of [@from, @to) without pages in the file, of which there are
 * some for certain if the file has fewer than the region. */
int look_for_holes(const struct kedge_region *r, uint64_t from, uint64_t to,
		   int (*fn)(void *arg, uint64_t from, uint64_t to), void *arg);

#endif /* REGION_WATCH_LOOK_H */
