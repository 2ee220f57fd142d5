// SPDX-License-Identifier: BSD-2-Clause
/* The check of a call's arguments, and of the process that makes it. */
#include "cache/internal.h"

int cache_check_args(struct kedge_cache *c, uint64_t addr, size_t len,
		      uint32_t access)
{
	uint64_t end;

	if (!len || __builtin_add_overflow(addr, len, &end) ||
	    end > UINT64_MAX - kedge__page_size())
		return kedge_reason(-EINVAL, "an empty range, or one that "
					     "wraps: 0x%llx + %zu",
				    (unsigned long long)addr, len);
	if (access & ~KEDGE_ACCESS_ALL)
		return kedge_reason(-EINVAL, "unknown access flag 0x%x",
				    access & ~KEDGE_ACCESS_ALL);
	if (!nf_owned(c->nf))
		return nf_not_owned();
	if (c->attr.access && access & ~c->attr.access)
		return kedge_reason(-EOPNOTSUPP,
				    "%s gives no access 0x%x", c->dev->ops.name,
				    access & ~c->attr.access);
	return 0;
}
