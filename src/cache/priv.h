/* SPDX-License-Identifier: BSD-2-Clause */
/* For kedge's own libraries: what the device knows a registration by. */
#ifndef CACHE_PRIV_H
#define CACHE_PRIV_H

#include <kedge/cache.h>

#include "base/base.h"

/* The priv of the struct kedge_device_mr. @mr is held. */
KEDGE_PRIVATE uint64_t kedge__cache_priv(const struct kedge_cache *c,
					 const struct kedge_mr *mr);

/* True if a lookup would find a registration now; no transfer relies on the answer. */
KEDGE_PRIVATE bool kedge__cache_serves(struct kedge_cache *c, uint64_t start,
				       uint64_t end, uint32_t access);

#endif /* CACHE_PRIV_H */
