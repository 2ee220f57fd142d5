/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for UCX 1.14 and later, in four libraries as UCX has them, as far as registrations go:
 * libucp looks up in libucs's cache by code of its own, which this header has, as UCX's headers
 * have it inlined. libkedge-ucx knows none of these structures.
 *
 * A registration is a pipe that holds references to the pages, as an adapter pins them.
 */
#ifndef LATER_STANDIN_H
#define LATER_STANDIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE   ((size_t)4096)

/* UCX's status is a byte. What a call returns has more, as registers have: its caller takes the
 * byte. */
#define RETURN(x) return 0x5a00 | (uint8_t)(x)
#define STATUS(x) ((int8_t)(x))

/* ---- libucm ---- */

EXPORT void ucm_set_external_event(int events);
EXPORT void ucm_set_global_opts(const void *options);
EXPORT int ucm_set_event_handler(int events, int priority, void *fn, void *arg);
EXPORT void ucm_vm_munmap(void *at, size_t len);
EXPORT void *ucm_orig_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);

typedef void (*event_fn)(void *arg, uintptr_t start, uintptr_t end);
EXPORT void standin_handle(event_fn fn, void *arg); /* NULL: @arg's no more */
/* The next @n calls of ucm_orig_mmap() fail. */
EXPORT void standin_fail_maps(unsigned int n);
EXPORT int standin_hook_mode(void);
EXPORT int standin_external(void);

/* ---- libuct ---- */

struct uct_md {
	bool shares; /* one handle for all that begin in the same 1 MiB, as a cache has it */
	bool dummy;
	unsigned int fails; /* so many registrations */
};

struct dereg_params {
	uint64_t field_mask;
	unsigned int flags;
	void *memh;
	void *comp;
};

EXPORT int uct_md_mem_reg(struct uct_md *md, void *at, size_t len, unsigned int flags,
			  void **memh);
EXPORT int uct_md_mem_reg_v2(struct uct_md *md, void *at, size_t len, const void *params,
			     void **memh);
EXPORT int uct_md_mem_dereg(struct uct_md *md, void *memh);
EXPORT int uct_md_mem_dereg_v2(struct uct_md *md, const struct dereg_params *params);

/* The bytes of that registration, of pages that it has. */
EXPORT void standin_read(void *memh, size_t offset, void *to, size_t len);
EXPORT unsigned int standin_regs(void), standin_deregs(void);
/* Called within a registration, before the pages are taken, or @behind that. NULL: no more. */
EXPORT void standin_in_reg(void (*fn)(void *at, size_t len), bool behind);

/* ---- libucs ---- */

struct region {
	struct region *next;
	uintptr_t start, end;
	unsigned int refs;
	bool in_table;
	void *memh; /* libucp's: registered since */
	struct uct_md *md;
};

struct table {
	struct region *first;
};

struct event {
	struct event *next;
	uintptr_t start, end;
};

struct ucs_rcache {
	char name[64];
	pthread_rwlock_t table_lock;
	struct table table;
	pthread_mutex_t lock; /* of: */
	struct event *events;
};

EXPORT int ucs_rcache_create(const void *params, const char *name, void *stats,
			     struct ucs_rcache **cache);
EXPORT int ucs_rcache_get(struct ucs_rcache *cache, void *at, size_t len, size_t align, int prot,
			  void *arg, struct region **region);
EXPORT void ucs_rcache_region_put(struct ucs_rcache *cache, struct region *region);
EXPORT void ucs_rcache_destroy(struct ucs_rcache *cache);
EXPORT struct region *ucs_pgtable_lookup(const struct table *table, uintptr_t at);

/* ---- libucp ---- */

struct context {
	pthread_mutex_t mt_lock;
	struct ucs_rcache *cache;
	struct uct_md *md;
	_Atomic unsigned int lookups, inlined; /* hits of the latter kind */
};

EXPORT void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release);
EXPORT struct context *standin_open(const char *cache, struct uct_md *md);
EXPORT void standin_close(struct context *c);
/* NULL: an error. Held until it is put. */
EXPORT struct region *standin_get(struct context *c, void *at, size_t len);
EXPORT void standin_put(struct context *c, struct region *r);

#endif /* LATER_STANDIN_H */
