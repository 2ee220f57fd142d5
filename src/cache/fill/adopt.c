// SPDX-License-Identifier: BSD-2-Clause
/*
 * Adopting a registration: its owner moves the pages that it names to other addresses,
 * and the cache has a registration of these, without the device's having done
 * anything.
 *
 * It is registering in another order. There the range is watched, the device pins what
 * is mapped, and the events are read. Here the pages are pinned, they are mapped to the
 * range, and the events since before that are read; notify/carry.c has the mover's own
 * change left out of them. So no event means the same: the pages that the device has
 * are those that are mapped.
 */
#include <stdlib.h>

#include "cache/internal.h"
#include "cache/priv.h"
#include "notify/carry.h"

struct kedge__adoption {
	struct kedge_cache *c;
	struct region *r; /* MAKING */
	struct carry carry;
	uint64_t start; /* of what is registered */
	uint64_t from, to;
	size_t len;
	bool moved;
	bool carried;
};

int kedge__cache_adopt(struct kedge_cache *c, const struct kedge_device_mr *dev,
		       void *from, size_t len, uint32_t access,
		       struct kedge__adoption **out)
{
	uint64_t start = (uintptr_t)from;
	struct kedge__adoption *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return -ENOMEM;
	rc = -EOPNOTSUPP; /* where it moves to, something may be registered */
	if (c->exclusive)
		goto free_it;
	a->c = c;
	a->start = start;
	rc = region_plan(c, start, start + len, access, &a->r);
	if (rc)
		goto free_it;
	cold_of(c, a->r)->dev = *dev;
	a->r->mr.device_handle = dev->handle;
	verify_record(c, a->r);
	rc = notify_carry_watch(&a->carry, c->nf, &cold_of(c, a->r)->watch,
				start, start + len);
	if (rc < 0) {
		region_drop_unmade(c, a->r);
		goto free_it;
	}
	*out = a;
	return 0;

free_it:
	free(a);
	return rc;
}

void kedge__cache_adopt_moving(struct kedge__adoption *a, void *to, void *from,
			       size_t len)
{
	a->from = (uintptr_t)from;
	a->to = (uintptr_t)to;
	a->len = len;
	notify_carry_begin(&a->carry, a->from, a->to, len);
}

void kedge__cache_adopt_moved(struct kedge__adoption *a, int rc)
{
	a->moved = !rc;
	a->carried = notify_carry_end(&a->carry);
}

bool kedge__cache_adopt_end(struct kedge__adoption *a, uint64_t offset)
{
	struct kedge_cache *c = a->c;
	struct region *r = a->r;
	bool moved = a->moved;

	if (!a->to) /* it was not to be */
		a->carried = notify_carry_end(&a->carry);
	cold_of(c, r)->watched = a->carried;
	if (moved) {
		cold_of(c, r)->dev.offset = offset;
		r->mr.offset = offset;
		region_place(c, r, a->to, a->len);
		verify_follow(c, r, a->from - a->start);
		region_finish(c, r, a->carried);
	} else {
		region_drop_unmade(c, r);
	}
	free(a);
	return moved;
}
