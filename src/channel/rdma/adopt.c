// SPDX-License-Identifier: BSD-2-Clause
/* A landing area's registration follows its pages: what the cache is told around the
 * move, and what of the registration is left to others. */
#include <stdlib.h>

#include "cache/priv.h"
#include "channel/rdma/internal.h"
#include "pages/swap.h"

void kedge__rdma_adopt(struct rdma *r, struct rdma_adoption *a, void *reg,
		       char *at, size_t at_len, char *from, size_t len)
{
	struct kedge_device_mr mr = { .handle = (uintptr_t)reg };

	/* Without windows a peer has its own registration for each message. */
	if (!r->windows || a->of || kedge__rdma_cache(r))
		return;
	a->whole = malloc(sizeof(*a->whole));
	if (!a->whole)
		return;
	*a->whole = (struct rdma_whole){ (uintptr_t)at, at_len };
	mr.priv = (uintptr_t)a->whole;
	if (!kedge__cache_adopt(r->cache, &mr, from, len,
				KEDGE_ACCESS_LOCAL_WRITE, &a->of))
		return;
	free(a->whole);
	*a = (struct rdma_adoption){ 0 };
}

static void moving(void *ctx, void *to, void *from, size_t len)
{
	kedge__cache_adopt_moving(ctx, to, from, len);
}

static void moved(void *ctx, int rc)
{
	kedge__cache_adopt_moved(ctx, rc);
}

int kedge__rdma_replace(struct rdma_adoption *a, char *to, char *from,
			size_t len)
{
	struct kedge__move_calls calls = { moving, moved, a->of };

	return kedge__pages_replace(to, from, len, a->of ? &calls : NULL);
}

bool kedge__rdma_adopt_end(struct rdma_adoption *a, uint64_t offset)
{
	bool taken = a->of && kedge__cache_adopt_end(a->of, offset);

	if (!taken)
		free(a->whole);
	*a = (struct rdma_adoption){ 0 };
	return taken;
}

bool kedge__rdma_relieve(struct rdma *r, size_t len)
{
	return r->cache && kedge__cache_relieve(r->cache, len);
}
