// SPDX-License-Identifier: BSD-2-Clause
/* In the place of torture/ucx.c in a build without the headers of a UCX that it knows. */
#include <errno.h>

#include "tools/torture/rig.h"

int ucx_open(struct rig *rig, struct ucx **u)
{
	(void)rig;
	(void)u;
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without UCX's headers");
}

void ucx_close(struct ucx *u)
{
	(void)u;
}

int ucx_get(struct ucx *u, const void *addr, size_t len, struct ucs_rcache_region **region,
	    uint64_t *handle)
{
	(void)u, (void)addr, (void)len, (void)region, (void)handle;
	return -EOPNOTSUPP;
}

void ucx_put(struct ucx *u, struct ucs_rcache_region *region)
{
	(void)u, (void)region;
}

void ucx_stats(struct ucx *u, struct kedge_cache_stats *stats)
{
	(void)u, (void)stats;
}
