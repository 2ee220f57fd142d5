/* SPDX-License-Identifier: BSD-2-Clause */
/* For kedge's own libraries: what the device knows a registration by. */
#ifndef CACHE_PRIV_H
#define CACHE_PRIV_H

#include <kedge/cache.h>
#include <kedge/device.h>

#include "base/base.h"

/* The priv of the struct kedge_device_mr. @mr is held. */
KEDGE_PRIVATE uint64_t kedge__cache_priv(const struct kedge_cache *c,
					 const struct kedge_mr *mr);

/* True if a lookup would find a registration now; no transfer relies on the answer. */
KEDGE_PRIVATE bool kedge__cache_serves(struct kedge_cache *c, uint64_t start,
				       uint64_t end, uint32_t access);

/* Let @bytes of registrations go that nobody holds, the oldest first. False: none has
 * gone. */
KEDGE_PRIVATE bool kedge__cache_relieve(struct kedge_cache *c, uint64_t bytes);

/*
 * To have the cache keep a registration when its pages are moved elsewhere:
 *
 *   adopt(@from), while the pages are there and known to no other thread;
 *   moving(@to), right before mremap() moves some of them, moved() right after it with
 *   its result, both within the announcement of the change;
 *   end(), after that, in any case.
 *
 * adopt: @mr as the device's reg would have filled it; 0, or a negative errno where the
 * cache cannot follow. end: true: the registration is the cache's, which ends it by the
 * device's dereg, at once if another thread has changed the range meanwhile; @offset is
 * the device's position of @to's first byte. False: nothing was moved, or told so.
 */
struct kedge__adoption;
KEDGE_PRIVATE int kedge__cache_adopt(struct kedge_cache *c,
				     const struct kedge_device_mr *mr,
				     void *from, size_t len, uint32_t access,
				     struct kedge__adoption **out);
KEDGE_PRIVATE void kedge__cache_adopt_moving(struct kedge__adoption *a,
					     void *to, void *from, size_t len);
KEDGE_PRIVATE void kedge__cache_adopt_moved(struct kedge__adoption *a, int rc);
KEDGE_PRIVATE bool kedge__cache_adopt_end(struct kedge__adoption *a,
					  uint64_t offset);

#endif /* CACHE_PRIV_H */
