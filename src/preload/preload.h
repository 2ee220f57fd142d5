/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A coherent cache behind an unmodified verbs program: the functions of libibverbs
 * that we stand in for, as libibverbs has them, and a cache for each protection
 * domain.
 */
#ifndef PRELOAD_PRELOAD_H
#define PRELOAD_PRELOAD_H

#include <infiniband/verbs.h>

#include <kedge/verbs.h>

/* verbs.h has macros of these names. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* libibverbs' own. NULL where this libibverbs is too old to have it. */
struct real {
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len,
				 int access);
	struct ibv_mr *(*reg_mr_iova)(struct ibv_pd *pd, void *addr, size_t len,
				      uint64_t iova, int access);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr,
				       size_t len, uint64_t iova,
				       unsigned int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	int (*rereg_mr)(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t len, int access);
	int (*dealloc_pd)(struct ibv_pd *pd);
	void (*unimport_pd)(struct ibv_pd *pd);
	int (*close_device)(struct ibv_context *context);
	struct ibv_context *(*open_device)(struct ibv_device *device);
};

const struct real *real(void);

/*
 * The region that a program gets in place of libibverbs' own. Providers look
 * behind their struct ibv_mr for what libibverbs keeps there (a kind, and access
 * flags): what they find in room is that of an ordinary region.
 */
struct shadow {
	struct ibv_mr mr;
	char room[64];
	struct domain *domain;
	const struct kedge_mr *held;
	struct ibv_mr *own; /* instead, after a rereg */
	unsigned int access;
};

/*
 * domain.c: make @s a registration of [addr, addr + len). False: the cache
 * cannot be had or refuses; libibverbs may do better, and has its own errors.
 */
bool shadow_register(struct shadow *s, struct ibv_pd *pd, void *addr,
		     size_t len, unsigned int access);
void shadow_release(struct shadow *s);
/* Drop regions that are not held, so that others may pin. */
void domains_flush(void);
/* The process registers memory, so it has something to report. */
void domains_used(void);
/* The process's notifier; NULL: it cannot watch. */
struct kedge_notifier *domains_notifier(void);
/* report.c: the process has registered memory, so a report is to come at its end. */
void report_began(void);
/* Once, at the end: the counters of all caches that there were. False: the program has registered
 * no memory. */
bool domains_total(struct kedge_cache_stats *out);
/*
 * Before a domain goes: end its caches. With regions in use libibverbs refuses,
 * and they stay, or it goes all the same (@surely).
 */
void pd_end(const struct ibv_pd *pd, bool surely);
/* Before a device is closed, which is never refused. */
void device_end(const struct ibv_context *context);

/* True while this thread is inside kedge: then libibverbs is meant. */
extern __thread bool inside;

#endif /* PRELOAD_PRELOAD_H */
