/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rig under test: a device, a notifier and one cache that all
 * lanes share; or, with --naive, a cache that follows nothing; or, with
 * --libfabric or --ucx, the one of that library.
 */
#ifndef TORTURE_RIG_H
#define TORTURE_RIG_H

#include <pthread.h>
#include <stdbool.h>

#include <liburing.h>

#include <kedge/kedge.h>

struct dio_ops;
struct dio_rdma;
struct fid_mr;
struct libfabric;
struct naive;
struct naive_mr;
struct ucs_rcache_region;
struct ucx;

enum rig_cache { RIG_KEDGE, RIG_NAIVE, RIG_LIBFABRIC, RIG_UCX };

struct rig {
	const struct dio_ops *dio;
	const char *dio_name; /* which of its kind, or NULL; borrowed */
	struct io_uring ring;
	pthread_mutex_t ring_lock; /* submitting and reaping on ring */
	struct dio_rdma *rdma;	   /* instead of the two above */
	struct libfabric *ofi;	   /* beside them: its domain is the device */
	struct kedge_device *dev;
	struct kedge_notifier *nf;
	struct kedge_cache *cache;
	enum rig_cache which;
	struct naive *naive; /* instead of the three above, as is */
	struct libfabric *libfabric;
	struct ucx *ucx;
	struct kedge_notifier_info info;
	uint32_t flags; /* KEDGE_NOTIFIER_*, set before it is opened */
};

/* A registration, whoever gave it; copied out of the cache's. */
struct ref {
	const struct kedge_mr *mr;
	struct naive_mr *naive;
	struct fid_mr *libfabric;
	struct ucs_rcache_region *ucx;
	uint64_t handle;
	uint64_t shift; /* device position less address */
};

/* 0, or a negative errno that kedge_strerror() explains. */
int rig_open(struct rig *rig, const struct dio_ops *dio, const char *dio_name,
	     const char *backend, enum rig_cache which);
void rig_close(struct rig *rig);
int rig_get(struct rig *rig, const void *addr, size_t len, struct ref *ref);
void rig_put(struct rig *rig, struct ref *ref);
/* Zeros for the naive cache, which counts nothing. */
void rig_stats(struct rig *rig, struct kedge_cache_stats *stats);

/* naive.c */
int naive_open(struct rig *rig, struct naive **naive);
void naive_close(struct naive *nv);
int naive_get(struct naive *nv, const void *addr, size_t len,
	      struct naive_mr **mr, uint64_t *handle);
void naive_put(struct naive *nv, struct naive_mr *mr);

/* libfabric.c: registrations are made in the rig's ring. */
int libfabric_open(struct rig *rig, struct libfabric **f);
void libfabric_close(struct libfabric *f);
int libfabric_get(struct libfabric *f, const void *addr, size_t len,
		  struct fid_mr **mr, uint64_t *handle);
void libfabric_put(struct fid_mr *mr);
void libfabric_stats(struct libfabric *f, struct kedge_cache_stats *stats);

/* ucx.c: likewise. */
int ucx_open(struct rig *rig, struct ucx **u);
void ucx_close(struct ucx *u);
int ucx_get(struct ucx *u, const void *addr, size_t len, struct ucs_rcache_region **region,
	    uint64_t *handle);
void ucx_put(struct ucx *u, struct ucs_rcache_region *region);
void ucx_stats(struct ucx *u, struct kedge_cache_stats *stats);

#endif /* TORTURE_RIG_H */
