/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is under test: a device, a notifier and one cache that all
 * lanes share; or, with --naive, a cache that follows nothing.
 */
#ifndef TORTURE_RIG_H
#define TORTURE_RIG_H

#include <pthread.h>
#include <stdbool.h>

#include <liburing.h>

#include <kedge/kedge.h>

struct dio_ops;
struct dio_rdma;
struct naive;
struct naive_mr;

struct rig {
	const struct dio_ops *dio;
	const char *dio_name; /* which of its kind, or NULL; borrowed */
	struct io_uring ring;
	pthread_mutex_t ring_lock; /* submitting and reaping on ring */
	struct dio_rdma *rdma;	   /* instead of the two above */
	struct kedge_device *dev;
	struct kedge_notifier *nf;
	struct kedge_cache *cache;
	struct naive *naive; /* instead of the three above */
	struct kedge_notifier_info info;
	uint32_t flags; /* KEDGE_NOTIFIER_*, set before it is opened */
};

/* A registration, whoever gave it; copied out of the cache's. */
struct ref {
	const struct kedge_mr *mr;
	struct naive_mr *naive;
	uint64_t handle;
	uint64_t shift; /* device position less address */
};

/* 0, or a negative errno that kedge_strerror() explains. */
int rig_open(struct rig *rig, const struct dio_ops *dio, const char *dio_name,
	     const char *backend, bool naive);
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

#endif /* TORTURE_RIG_H */
