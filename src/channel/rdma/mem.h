/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of a connection's: registrations and areas. The end of internal.h. */
#ifndef CHANNEL_RDMA_MEM_H
#define CHANNEL_RDMA_MEM_H

/* ---- mem.c: registrations ---- */

/* For one flow: the peer may write [@addr, @addr + @len). */
int kedge__rdma_lend(struct rdma *r, uint64_t addr, uint64_t len,
		    struct rdma_mr *mr);
void kedge__rdma_lend_end(struct rdma *r, struct rdma_mr *mr);
/* The same for whole pages, by a window over a registration that is kept: -EOPNOTSUPP
 * where that cannot be. */
int kedge__rdma_lend_window(struct rdma *r, uint64_t addr, uint64_t len,
			    struct rdma_mr *mr);
/* True if a window over what is registered already would do. */
bool kedge__rdma_registered(struct rdma *r, uint64_t addr, uint64_t len);
/* True when the peer's right has ended. */
bool kedge__rdma_lend_over(struct rdma *r, struct rdma_mr *mr);
/* A page of ours that the peer may write: its number and its name, or false. */
bool kedge__rdma_edge_take(struct rdma *r, uint32_t *slot, uint64_t *addr,
			   uint64_t *key);
/* What landed there goes to its place if @out. */
void kedge__rdma_edge_give(struct rdma *r, const struct rdma_edge *e, bool out);
/* Its first byte as a peer names it. */
static inline uint64_t rdma_addr(const struct rdma *r, const void *at)
{
	return r->virt ? (uintptr_t)at : 0;
}
/* The local descriptor for a source; *@cached to be put when it is written. */
int kedge__rdma_source(struct rdma *r, uint64_t addr, uint64_t len, void **desc,
		      const struct kedge_mr **cached);
/* -EFAULT where a part of it is not mapped at all. */
int kedge__rdma_mapped(uint64_t addr, uint64_t len);
/* Memory of ours, by a key of its own where @reg or the provider pins. */
struct rdma_block *kedge__rdma_block_open(struct rdma *r, size_t len, bool reg);
void kedge__rdma_block_close(struct rdma *r, struct rdma_block *b);
/* The heap's, that holds this range; or NULL. */
struct rdma_block *kedge__rdma_block_of(const struct rdma *r, uint64_t addr,
				      uint64_t len);
void *kedge__rdma_heap_alloc(void *ctx, size_t len);
void kedge__rdma_heap_free(void *ctx, void *p);
void kedge__rdma_mem_fini(struct rdma *r);

/* ---- area.c ---- */

void *kedge__rdma_area_take(void *ctx, const char *buf, size_t len,
			    char **addr);
bool kedge__rdma_area_meanwhile(void *ctx, void *area, char *to, size_t len);
int kedge__rdma_area_move(void *ctx, void *area, char *to, char *from,
			  size_t len);
void kedge__rdma_area_give(void *ctx, void *area, bool quiet);
/* The registration of the area that holds this range, and all that it covers; or
 * NULL. */
void *kedge__rdma_area_reg(struct rdma *r, uint64_t addr, uint64_t len,
			   struct rdma_target *all);
void kedge__rdma_areas_free(struct rdma *r);

#endif /* CHANNEL_RDMA_MEM_H */
