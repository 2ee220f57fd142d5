// SPDX-License-Identifier: BSD-2-Clause
/*
 * The miss: a get that finds no region registers one, or lends one.
 */
#include "cache/internal.h"

static int do_get(struct kedge_cache *c, uint64_t addr, size_t len,
		  uint32_t access, enum trust trust, struct region **out)
{
	struct region *r;
	int rc = cache_check_args(c, addr, len, access);

	if (rc)
		return rc;
	rc = is_lent(c, access) ? lend(c, addr, len, access, trust, &r)
				: get_kept(c, addr, len, access, trust, &r);
	if (rc) {
		count_failure(c);
		return rc;
	}
	atomic_store_explicit(&r->used,
			      atomic_load_explicit(&c->epoch,
						   memory_order_relaxed),
			      memory_order_relaxed);
	if (modes_of(c) & MODE_VERIFY)
		verify_hit(c, r, addr, addr + len);
	*out = r;
	return 0;
}

int get_slow(struct kedge_cache *c, uint64_t addr, size_t len, uint32_t access,
	     enum trust trust, struct region **out)
{
	int saved = cancel_disable();
	int rc = do_get(c, addr, len, access, trust, out);

	cancel_restore(saved);
	return rc;
}
