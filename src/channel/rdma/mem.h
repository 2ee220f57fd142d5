/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of a connection's: registrations and areas. The end of internal.h. */
#ifndef CHANNEL_RDMA_MEM_H
#define CHANNEL_RDMA_MEM_H

/* ---- mem.c: registrations ---- */

/* The cache of this connection's registrations: 0, or a negative errno. */
int kedge__rdma_cache(struct rdma *r);

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
/* Bytes that landed there go to their place if @out. */
void kedge__rdma_edge_give(struct rdma *r, const struct rdma_edge *e, bool out);
/* Its first byte as a peer names it. */
static inline uint64_t rdma_addr(const struct rdma *r, const void *at)
{
	return r->virt ? (uintptr_t)at : 0;
}
/* The local descriptor for a source, and what *@addr is in a post with it; *@cached to be
 * put when it is written. */
int kedge__rdma_source(struct rdma *r, uint64_t *addr, uint64_t len,
		       void **desc, const struct kedge_mr **cached);
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

/*
 * ---- adopt.c: registrations that go along with their pages ----
 *
 * The extent of an adopted one, which is the priv of its struct kedge_device_mr. Bytes
 * of it that are not the cache's region's are nobody's.
 */
struct rdma_whole {
	uint64_t addr;
	uint64_t len;
};

/* All 0: none. */
struct rdma_adoption {
	struct kedge__adoption *of;
	struct rdma_whole *whole;
};

/* Let the cache follow @reg, of [@at, @at + @at_len), when [@from, @from + @len) of it
 * is moved; if it can. */
void kedge__rdma_adopt(struct rdma *r, struct rdma_adoption *a, void *reg,
		       char *at, size_t at_len, char *from, size_t len);
/* kedge__pages_replace(), and it follows. */
int kedge__rdma_replace(struct rdma_adoption *a, char *to, char *from,
			size_t len);
/* After that, or instead: true if the registration is the cache's now. @offset: what
 * the device knows the first byte by that was moved. */
bool kedge__rdma_adopt_end(struct rdma_adoption *a, uint64_t offset);
/* Make the cache let go of registrations of @len bytes that nobody holds. False: it
 * has none. */
bool kedge__rdma_relieve(struct rdma *r, size_t len);

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
/* Give those back that no message has. False: there are none. */
bool kedge__rdma_areas_trim(struct rdma *r);
void kedge__rdma_areas_free(struct rdma *r);

#endif /* CHANNEL_RDMA_MEM_H */
