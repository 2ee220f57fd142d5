// SPDX-License-Identifier: BSD-2-Clause
/* Open what is under test, and look up through it. */
#include <errno.h>
#include <string.h>

#include "tools/torture/dio.h"
#include "tools/torture/rig.h"

/* So few that eviction takes part, and pinned memory stays bounded. */
#define MAX_REGIONS 512
#define MAX_BYTES   (256u << 20)

static int open_kedge(struct rig *rig, const char *backend)
{
	struct kedge_notifier_opts no = { .size = sizeof(no),
					  .backend = backend,
					  .flags = rig->flags };
	/* A peer's keys are to be cached, or there is nothing to test. */
	struct kedge_cache_opts co = { .size = sizeof(co),
				       .flags = KEDGE_CACHE_TRUSTED_PEERS,
				       .max_regions = MAX_REGIONS,
				       .max_bytes = MAX_BYTES };
	int rc;

	rc = kedge_notifier_open(&no, &rig->nf);
	if (rc)
		return rc;
	rig->info.size = sizeof(rig->info);
	rc = kedge_notifier_info(rig->nf, &rig->info);
	if (rc)
		goto close_notifier;
	rc = rig->dio->kedge_open(rig, &rig->dev);
	if (rc)
		goto close_notifier;
	rc = kedge_cache_open(rig->dev, rig->nf, &co, &rig->cache);
	if (rc)
		goto close_device;
	return 0;

close_device:
	kedge_device_close(rig->dev);
close_notifier:
	kedge_notifier_close(rig->nf);
	return rc;
}

/* Blind spots of a library's cache are those of a notifier, where kedge watches for it. */
static int open_other(struct rig *rig)
{
	const bool ucx = rig->which == RIG_UCX;
	struct kedge_notifier *nf;
	int rc = ucx ? ucx_open(rig, &rig->ucx) : libfabric_open(rig, &rig->libfabric);

	if (rc)
		return rc;
	rig->info.size = sizeof(rig->info);
	rig->info.backend = "libfabric's";
	if (!kedge_notifier_open(NULL, &nf)) {
		kedge_notifier_info(nf, &rig->info);
		kedge_notifier_close(nf);
	}
	if (ucx)
		rig->info.backend = "UCX's";
	return 0;
}

static int open_cache(struct rig *rig, const char *backend)
{
	switch (rig->which) {
	case RIG_KEDGE:
		return open_kedge(rig, backend);
	case RIG_NAIVE:
		return naive_open(rig, &rig->naive);
	case RIG_LIBFABRIC:
	case RIG_UCX:
		return open_other(rig);
	}
	return -EINVAL;
}

int rig_open(struct rig *rig, const struct dio_ops *dio, const char *dio_name,
	     const char *backend, enum rig_cache which)
{
	const uint32_t flags = rig->flags;
	int rc;

	memset(rig, 0, sizeof(*rig));
	rig->flags = flags;
	rig->dio = dio;
	rig->dio_name = dio_name;
	rig->which = which;
	rc = -pthread_mutex_init(&rig->ring_lock, NULL);
	if (rc)
		return rc;
	rc = dio->rig_open(rig, dio_name);
	if (rc)
		goto destroy_lock;
	rc = open_cache(rig, backend);
	if (rc)
		goto close_dio;
	return 0;

close_dio:
	dio->rig_close(rig);
destroy_lock:
	pthread_mutex_destroy(&rig->ring_lock);
	return rc;
}

void rig_close(struct rig *rig)
{
	switch (rig->which) {
	case RIG_KEDGE:
		kedge_cache_close(rig->cache);
		kedge_device_close(rig->dev);
		kedge_notifier_close(rig->nf);
		break;
	case RIG_NAIVE:
		naive_close(rig->naive);
		break;
	case RIG_LIBFABRIC:
		libfabric_close(rig->libfabric);
		break;
	case RIG_UCX:
		ucx_close(rig->ucx);
		break;
	}
	rig->dio->rig_close(rig);
	pthread_mutex_destroy(&rig->ring_lock);
}

int rig_get(struct rig *rig, const void *addr, size_t len, struct ref *ref)
{
	int rc;

	memset(ref, 0, sizeof(*ref));
	if (rig->naive)
		return naive_get(rig->naive, addr, len, &ref->naive,
				 &ref->handle);
	if (rig->libfabric)
		return libfabric_get(rig->libfabric, addr, len,
				     &ref->libfabric, &ref->handle);
	if (rig->ucx)
		return ucx_get(rig->ucx, addr, len, &ref->ucx, &ref->handle);
	rc = kedge_cache_get(rig->cache, addr, len, rig->dio->access,
			     &ref->mr);
	if (rc)
		return rc;
	ref->handle = ref->mr->device_handle;
	ref->shift = ref->mr->offset - ref->mr->addr;
	return 0;
}

void rig_put(struct rig *rig, struct ref *ref)
{
	if (rig->naive)
		naive_put(rig->naive, ref->naive);
	else if (rig->libfabric)
		libfabric_put(ref->libfabric);
	else if (rig->ucx)
		ucx_put(rig->ucx, ref->ucx);
	else
		kedge_cache_put(rig->cache, ref->mr);
}

void rig_stats(struct rig *rig, struct kedge_cache_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	if (rig->libfabric)
		libfabric_stats(rig->libfabric, stats);
	else if (rig->ucx)
		ucx_stats(rig->ucx, stats);
	else if (!rig->naive)
		kedge_cache_stats(rig->cache, stats);
}
