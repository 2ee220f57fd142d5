// SPDX-License-Identifier: BSD-2-Clause
/*
 * Registrations. A provider that does not pin (tcp) moves data by the
 * process's own addresses: what is registered is a name for a range, made for
 * one flow and ended with it.
 *
 * Where it pins, memory of the application goes through a cache: sources are
 * kept, and what a peer may write is lent, so it ends with its put.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/priv.h"
#include "channel/rdma/internal.h"

/* ---- the device of a provider that pins, and its cache ---- */

static int dev_reg(void *ctx, void *addr, size_t len, uint32_t access,
		   struct kedge_device_mr *mr)
{
	struct rdma *r = ctx;
	void *reg;
	int rc = r->port->reg(r, addr, len, access, &reg);

	if (rc)
		return rc;
	mr->handle = (uintptr_t)reg;
	mr->offset = rdma_addr(r, addr);
	return 0;
}

static int dev_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct rdma *r = ctx;
	int rc = r->port->dereg(r, (void *)(uintptr_t)mr->handle);

	if (!rc)
		free((struct rdma_whole *)(uintptr_t)mr->priv);
	return rc;
}

static int dev_query(void *ctx, struct kedge_device_attr *attr)
{
	attr->flags = KEDGE_DEVICE_PINS | KEDGE_DEVICE_EXACT;
	attr->access = KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_WRITE;
	return 0;
}

int kedge__rdma_cache(struct rdma *r)
{
	static const struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "rdma",
		.reg = dev_reg,
		.try_dereg = dev_dereg,
		.query = dev_query,
	};
	int rc;

	if (r->cache)
		return 0;
	rc = kedge_device_open(&ops, r, &r->dev);
	if (rc)
		return rc;
	rc = kedge_cache_open(r->dev, NULL, NULL, &r->cache);
	if (!rc)
		return 0;
	kedge_device_close(r->dev);
	r->dev = NULL;
	return rc;
}

static void *reg_of(const struct kedge_mr *mr)
{
	return (void *)(uintptr_t)mr->device_handle;
}

/* NULL: all that is registered is the region's. */
static const struct rdma_whole *whole_of(const struct rdma *r,
					 const struct kedge_mr *mr)
{
	return (const void *)(uintptr_t)kedge__cache_priv(r->cache, mr);
}

/* The device knows a byte by this number. */
static uint64_t position(const struct kedge_mr *mr, uint64_t addr)
{
	return mr->offset + (addr - mr->addr);
}

/* ---- what a flow may touch ---- */

int kedge__rdma_mapped(uint64_t addr, uint64_t len)
{
	const uint64_t start = round_down(addr,
					  (uint64_t)sysconf(_SC_PAGESIZE));
	uint64_t end;

	if (__builtin_add_overflow(addr, len, &end))
		return kedge_reason(-EFAULT, "the buffer wraps");
	/* It only looks at mappings, not at pages: Linux writes back
	 * without being asked. */
	if (msync((void *)(uintptr_t)start, end - start, MS_ASYNC))
		return kedge_reason(-EFAULT, "a part of the buffer is not "
					     "mapped");
	return 0;
}

int kedge__rdma_lend(struct rdma *r, uint64_t addr, uint64_t len,
		    struct rdma_mr *mr)
{
	void *at = (void *)(uintptr_t)addr;
	const struct rdma_block *b;
	int rc;

	*mr = (struct rdma_mr){ .addr = rdma_addr(r, at) };
	if (!r->pins) {
		rc = r->port->reg(r, at, len, KEDGE_ACCESS_REMOTE_WRITE,
				  &mr->reg);
		if (!rc)
			mr->key = r->port->key(mr->reg);
		return rc;
	}
	b = kedge__rdma_block_of(r, addr, len);
	if (b) {
		mr->addr = b->mr.addr + (addr - (uintptr_t)b->at);
		mr->key = b->mr.key;
		return 0;
	}
	rc = kedge__rdma_cache(r);
	if (!rc)
		rc = kedge_cache_get(r->cache, at, len,
				     KEDGE_ACCESS_REMOTE_WRITE, &mr->cached);
	if (rc)
		return rc;
	mr->addr = position(mr->cached, addr);
	mr->key = r->port->key(reg_of(mr->cached));
	return 0;
}

/* Over all that is registered, where the rest of it is nobody's: some devices grant
 * no other windows. */
static int grant(struct rdma *r, struct rdma_mr *mr, uint64_t addr,
		 uint64_t len)
{
	const struct rdma_whole *whole = whole_of(r, mr->cached);
	struct rdma_whole span = { mr->addr, len };

	if (whole && mr->cached->addr == addr && mr->cached->len == len)
		span = *whole;
	return r->port->grant(r, reg_of(mr->cached), span.addr, span.len,
			      &mr->key, &mr->window);
}

int kedge__rdma_lend_window(struct rdma *r, uint64_t addr, uint64_t len,
			    struct rdma_mr *mr)
{
	int rc;

	*mr = (struct rdma_mr){ 0 };
	rc = kedge__rdma_cache(r);
	if (!rc)
		rc = kedge_cache_get(r->cache, (void *)(uintptr_t)addr, len,
				     KEDGE_ACCESS_LOCAL_WRITE, &mr->cached);
	if (rc)
		return rc;
	mr->addr = position(mr->cached, addr);
	rc = grant(r, mr, addr, len);
	if (rc)
		kedge__rdma_lend_end(r, mr);
	return rc;
}

bool kedge__rdma_registered(struct rdma *r, uint64_t addr, uint64_t len)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const uint64_t first = round_up(addr, page);
	const uint64_t last = round_down(addr + len, page);

	return r->cache && r->windows && len >= WINDOW_MIN && last > first &&
	       kedge__cache_serves(r->cache, first, last,
				   KEDGE_ACCESS_LOCAL_WRITE);
}

bool kedge__rdma_lend_over(struct rdma *r, struct rdma_mr *mr)
{
	if (mr->window && r->port->revoke(r, mr->window, false))
		return false;
	mr->window = NULL;
	return true;
}

void kedge__rdma_lend_end(struct rdma *r, struct rdma_mr *mr)
{
	if (mr->window)
		r->port->revoke(r, mr->window, true);
	if (mr->reg)
		r->port->dereg(r, mr->reg);
	if (mr->cached)
		kedge_cache_put(r->cache, mr->cached);
	*mr = (struct rdma_mr){ 0 };
}

int kedge__rdma_source(struct rdma *r, uint64_t *addr, uint64_t len,
		       void **desc, const struct kedge_mr **cached)
{
	const struct rdma_block *b;
	int rc;

	*desc = NULL;
	*cached = NULL;
	if (!r->local_desc)
		return 0;
	b = kedge__rdma_block_of(r, *addr, len);
	if (b) {
		*desc = r->port->desc(b->mr.reg);
		return 0;
	}
	rc = kedge__rdma_cache(r);
	if (!rc)
		rc = kedge_cache_get(r->cache, (void *)(uintptr_t)*addr, len,
				     KEDGE_ACCESS_LOCAL_READ, cached);
	if (rc)
		return rc;
	*desc = r->port->desc(reg_of(*cached));
	/* Else a post of ours names bytes by their addresses. */
	if (whole_of(r, *cached))
		*addr = position(*cached, *addr);
	return 0;
}

/* ---- memory of ours ---- */

bool kedge__rdma_edge_take(struct rdma *r, uint32_t *slot, uint64_t *addr,
			   uint64_t *key)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (!r->edges)
		r->edges = kedge__rdma_block_open(r, EDGE_CNT * page, true);
	if (!r->edges || r->edges_used == UINT64_MAX)
		return false;
	*slot = (uint32_t)__builtin_ctzll(~r->edges_used);
	r->edges_used |= UINT64_C(1) << *slot;
	*addr = r->edges->mr.addr + *slot * page;
	*key = r->edges->mr.key;
	return true;
}

void kedge__rdma_edge_give(struct rdma *r, const struct rdma_edge *e, bool out)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (out)
		memcpy(e->to, r->edges->at + e->slot * page, e->len);
	r->edges_used &= ~(UINT64_C(1) << e->slot);
}

struct rdma_block *kedge__rdma_block_open(struct rdma *r, size_t len, bool reg)
{
	struct rdma_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	list_init(&b->node);
	b->len = len;
	b->at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->at == MAP_FAILED)
		goto free_block;
	/* A child would take pages from under the device. */
	if (madvise(b->at, len, MADV_DONTFORK))
		goto unmap;
	if (!reg && !r->pins)
		return b;
	if (r->port->reg(r, b->at, len,
			 KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_WRITE,
			 &b->mr.reg))
		goto unmap;
	b->mr.addr = rdma_addr(r, b->at);
	b->mr.key = r->port->key(b->mr.reg);
	return b;

unmap:
	munmap(b->at, len);
free_block:
	free(b);
	return NULL;
}

void kedge__rdma_block_close(struct rdma *r, struct rdma_block *b)
{
	list_remove(&b->node);
	if (b->mr.reg)
		r->port->dereg(r, b->mr.reg);
	munmap(b->at, b->len);
	free(b);
}

struct rdma_block *kedge__rdma_block_of(const struct rdma *r, uint64_t addr,
				      uint64_t len)
{
	struct rdma_block *b;
	struct list *l;

	for (l = r->heap.next; l != &r->heap; l = l->next) {
		b = list_entry(l, struct rdma_block, node);
		if (addr >= (uintptr_t)b->at && len <= b->len &&
		    addr - (uintptr_t)b->at <= b->len - len)
			return b;
	}
	return NULL;
}

void *kedge__rdma_heap_alloc(void *ctx, size_t len)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct rdma *r = ctx;
	struct rdma_block *b;

	if (!len || len > r->heap_max - r->heap_used)
		return NULL;
	len = round_up(len, page);
	if (len > r->heap_max - r->heap_used || r->err)
		return NULL;
	b = kedge__rdma_block_open(r, len, false);
	if (!b)
		return NULL;
	r->heap_used += len;
	list_add_tail(&r->heap, &b->node);
	return b->at;
}

void kedge__rdma_heap_free(void *ctx, void *p)
{
	struct rdma *r = ctx;
	struct rdma_block *b = kedge__rdma_block_of(r, (uintptr_t)p, 1);

	if (!b)
		return;
	r->heap_used -= b->len;
	kedge__rdma_block_close(r, b);
}

void kedge__rdma_mem_fini(struct rdma *r)
{
	struct list *heads[] = { &r->heap, &r->spare_windows };
	struct list *l, *tmp;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(heads); i++)
		list_for_each_safe(l, tmp, heads[i])
			kedge__rdma_block_close(
				r, list_entry(l, struct rdma_block, node));
	if (r->edges)
		kedge__rdma_block_close(r, r->edges);
	if (!r->cache)
		return;
	kedge_cache_close(r->cache);
	kedge_device_close(r->dev);
}
