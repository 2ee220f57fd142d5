// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lending memory to peers. Unless the application trusts them, a registration with
 * remote access is lent: it is made for one get, is in no index, and ends with
 * its put, its key with it. No other get has the same key, because a peer with a
 * key reaches all that the key covers.
 *
 * Where the device has memory windows, what is lent is a window over a kept
 * registration with local access, which it holds for as long as it is open.
 */
#include "cache/internal.h"

/* The rights that the local device needs: a peer's write is a write. */
uint32_t local_part(uint32_t access)
{
	uint32_t local = access & KEDGE_ACCESS_LOCAL_WRITE;

	if (access & (KEDGE_ACCESS_REMOTE_WRITE | KEDGE_ACCESS_REMOTE_ATOMIC))
		local |= KEDGE_ACCESS_LOCAL_WRITE;
	return local;
}

/* A region for a window over @base, to take over the caller's reference to it. */
static struct region *window_region(struct kedge_cache *c, uint32_t base,
				    uint64_t addr, uint64_t len,
				    uint32_t access)
{
	struct region *r;

	pthread_mutex_lock(&c->lock);
	r = region_new(c);
	if (r) {
		set_mr(r, addr, len);
		r->mr.access = access;
		cold_of(c, r)->base = base;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

static void window_forget(struct kedge_cache *c, struct region *r)
{
	pthread_mutex_lock(&c->lock);
	region_forget(c, r);
	pthread_mutex_unlock(&c->lock);
}

/* On success the caller's reference to @base is the window's. */
static int lend_window(struct kedge_cache *c, struct region *base,
		       uint64_t addr, uint64_t len, uint32_t access,
		       struct region **out)
{
	struct region *r = window_region(c, region_id(c, base), addr, len,
					 access);
	int rc;

	if (!r)
		return -ENOSPC;
	rc = device_bind(c->dev, &cold_of(c, base)->dev,
			 (void *)(uintptr_t)addr, len, access,
			 &cold_of(c, r)->dev);
	if (rc) {
		window_forget(c, r);
		return rc;
	}
	r->mr.device_handle = cold_of(c, r)->dev.handle;
	r->mr.offset = cold_of(c, r)->dev.offset;
	pthread_mutex_lock(&c->lock);
	lend_begin(c, r);
	pthread_mutex_unlock(&c->lock);
	*out = r;
	return 0;
}

/* A registration for this get alone. */
static int lend_region(struct kedge_cache *c, uint64_t addr, uint64_t len,
		       uint32_t access, struct region **out)
{
	uint64_t page = c->attr.flags & KEDGE_DEVICE_EXACT
				? 1
				: kedge__page_size();
	struct want w = { .start = round_down(addr, page),
			  .end = round_up(addr + len, page),
			  .access = access,
			  .hold = true,
			  .evict = true,
			  .lend = true };

	return cache_register(c, &w, out);
}

/* A cause that prevents a window need not prevent a registration. */
int lend_over(struct kedge_cache *c, struct region *base, uint64_t addr,
	      uint64_t len, uint32_t access, struct region **out)
{
	if (!lend_window(c, base, addr, len, access, out))
		return 0;
	region_put_slow(c, region_id(c, base), (uint32_t)-1);
	return lend_region(c, addr, len, access, out);
}

int lend(struct kedge_cache *c, uint64_t addr, uint64_t len, uint32_t access,
	 enum trust trust, struct region **out)
{
	struct region *base;

	if (!c->dev->ops.bind ||
	    get_kept(c, addr, len, local_part(access), trust, &base))
		return lend_region(c, addr, len, access, out);
	return lend_over(c, base, addr, len, access, out);
}
