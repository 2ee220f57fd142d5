// SPDX-License-Identifier: BSD-2-Clause
/*
 * Opening and closing a cache, and its limits' defaults.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/internal.h"
#include "notify/shared.h"

#define OPTS_V1		STRUCT_END(struct kedge_cache_opts, reserved)
#define REGIONS_DEFAULT (1u << 20)
#define IDS_SPARE	(1u << 16) /* for what is held or on its way out */
#define CHUNK_DEFAULT	((uint64_t)16 << 20)
/* A merge saves the fixed part of a registration, which is small beyond this. */
#define MERGE_DEFAULT ((uint64_t)64 << 10)
#define FLAGS_ALL	(KEDGE_CACHE_TRUSTED_PEERS | KEDGE_CACHE_RESYNC | \
			 KEDGE_CACHE_SINGLE_THREAD)

static _Atomic uint64_t serials; /* of caches in this process */

static size_t regions_len(const struct kedge_cache *c)
{
	return round_up((size_t)c->ids * sizeof(*c->regions),
			kedge__page_size());
}

static uint32_t cold_pieces(const struct kedge_cache *c)
{
	return (c->ids + COLD_CNT - 1) >> COLD_SHIFT;
}

static void free_cold(struct kedge_cache *c)
{
	uint32_t i;

	for (i = 0; i < cold_pieces(c) && c->cold[i]; i++)
		munmap(c->cold[i], COLD_CNT * sizeof(*c->cold[i]));
	free(c->cold);
}

/* The number of the line "Name:  number" of /proc/self/status; 0 without one. */
static uint64_t status_value(const char *name, int base)
{
	FILE *f = fopen("/proc/self/status", "re");
	size_t len = strlen(name);
	char line[128];
	uint64_t v = 0;

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':')
			v = strtoull(line + len + 1, NULL, base);
	fclose(f);
	return v;
}

#define CAP_IPC_LOCK_BIT 14

/* The bytes that RLIMIT_MEMLOCK leaves; 0 where it does not bind. */
static uint64_t memlock_left(void)
{
	struct rlimit rl;
	uint64_t used;

	if (getrlimit(RLIMIT_MEMLOCK, &rl) || rl.rlim_cur == RLIM_INFINITY ||
	    status_value("CapEff", 16) >> CAP_IPC_LOCK_BIT & 1)
		return 0;
	used = (status_value("VmLck", 10) + status_value("VmPin", 10)) << 10;
	/* 0 means unlimited, so return 1 when the limit is used up. */
	return used < rl.rlim_cur ? rl.rlim_cur - used : 1;
}

static uint32_t usable_cpus(void)
{
	cpu_set_t set;
	int n = 8;

	if (!sched_getaffinity(0, sizeof(set), &set))
		n = CPU_COUNT(&set);
	return n < 8 ? (uint32_t)n : 8;
}

#define AS_SHARE 16 /* of RLIMIT_AS, what all regions take at most */

/* As many as anyone needs, or what the process has address space for. */
static uint64_t default_regions(void)
{
	size_t each = sizeof(struct region) + sizeof(struct region_cold);
	struct rlimit rl;
	uint64_t fit;

	if (getrlimit(RLIMIT_AS, &rl) || rl.rlim_cur == RLIM_INFINITY)
		return REGIONS_DEFAULT;
	fit = rl.rlim_cur / AS_SHARE / each;
	if (fit < COLD_CNT)
		fit = COLD_CNT;
	return fit < REGIONS_DEFAULT ? fit : REGIONS_DEFAULT;
}

static int set_limits(struct kedge_cache *c,
		      const struct kedge_cache_opts *o)
{
	uint64_t max = o->max_regions, page = kedge__page_size();

	if (!max)
		max = c->attr.max_regions ? c->attr.max_regions
					  : default_regions();
	if (max > IDS_MAX)
		max = o->max_regions ? 0 : IDS_MAX;
	if (!max)
		return kedge_reason(-E2BIG, "a cache holds 16 Mi regions at "
					    "most");
	c->max_regions = (uint32_t)max;
	c->ids = c->max_regions + IDS_SPARE;
	c->max_bytes = o->max_bytes;
	if (!c->max_bytes && c->attr.flags & KEDGE_DEVICE_PINS)
		c->max_bytes = memlock_left();
	c->chunk_bytes = o->chunk_bytes	   ? o->chunk_bytes
			 : c->attr.chunk_len ? c->attr.chunk_len
					     : CHUNK_DEFAULT;
	if (c->attr.max_len && c->chunk_bytes > c->attr.max_len)
		c->chunk_bytes = c->attr.max_len;
	/* A power of two: chunks lie on multiples of it. */
	while (c->chunk_bytes & (c->chunk_bytes - 1))
		c->chunk_bytes &= c->chunk_bytes - 1;
	if (c->chunk_bytes < page)
		c->chunk_bytes = page;
	c->merge_bytes = o->merge_bytes ? o->merge_bytes : MERGE_DEFAULT;
	c->hint_threads = o->hint_threads ? o->hint_threads : usable_cpus();
	c->exclusive = c->attr.flags & KEDGE_DEVICE_EXCLUSIVE;
	/* Never destroyed: in a forked child that waits for threads of the parent's. */
	c->moved = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	return 0;
}

static int claim_notifier(struct kedge_cache *c, struct kedge_notifier *nf)
{
	c->own_nf = !nf;
	c->nf = nf;
	if (!nf)
		return kedge__notifier_get(&c->nf);
	return nf_owned(nf) ? 0 : nf_not_owned();
}

static void release_notifier(struct kedge_cache *c)
{
	if (c->own_nf)
		kedge__notifier_put(c->nf);
}

static int init(struct kedge_cache *c, struct kedge_device *dev,
		struct kedge_notifier *nf, const struct kedge_cache_opts *opts)
{
	int rc;

	c->dev = dev;
	c->trusted = opts->flags & KEDGE_CACHE_TRUSTED_PEERS;
	c->serial = atomic_fetch_add(&serials, 1) + 1;
	c->ids_used = 1;
	atomic_init(&c->epoch, 1);
	atomic_init(&c->seen, SEEN_NEVER);
	atomic_init(&c->handled, SEEN_NEVER);
	c->attr.size = sizeof(c->attr);
	rc = kedge_device_query(dev, &c->attr);
	if (rc)
		return rc;
	rc = set_limits(c, opts);
	if (rc)
		return rc;
	rc = -pthread_mutex_init(&c->lock, NULL);
	if (rc)
		return rc;
	rc = -ENOMEM;
	c->regions = reserve(regions_len(c));
	if (!c->regions)
		goto destroy_lock;
	c->cold = calloc(cold_pieces(c), sizeof(*c->cold));
	if (!c->cold)
		goto free_regions;
	c->last = c->regions;
	if (opts->flags & KEDGE_CACHE_SINGLE_THREAD)
		add_mode(c, MODE_SINGLE);
	else
		recs_init(c);
	rc = verify_open(c);
	if (rc)
		goto free_cold;
	rc = claim_notifier(c, nf);
	if (rc)
		goto close_verify;
	c->head = *(const struct kedge_notifier_head *)(const void *)c->nf;
	rc = opts->flags & KEDGE_CACHE_RESYNC ? resyncer_start(c) : 0;
	if (rc)
		goto release_nf;
	freed_init(c, opts->max_freed_bytes);
	return 0;

release_nf:
	release_notifier(c);
close_verify:
	if (c->pagemap_fd >= 0)
		close(c->pagemap_fd);
	tickets_close(c);
free_cold:
	free_cold(c);
free_regions:
	munmap(c->regions, regions_len(c));
destroy_lock:
	pthread_mutex_destroy(&c->lock);
	return rc;
}

int kedge_cache_open(struct kedge_device *dev, struct kedge_notifier *nf,
		     const struct kedge_cache_opts *user,
		     struct kedge_cache **out)
{
	struct kedge_cache_opts opts;
	struct kedge_cache *c;
	int rc, saved;

	if (!dev || !out)
		return kedge_reason(-EINVAL, "the device or the result pointer "
					     "is NULL");
	rc = kedge__opts_copy(&opts, sizeof(opts), OPTS_V1, user);
	if (rc)
		return rc;
	if (opts.flags & ~FLAGS_ALL || opts.reserved)
		return kedge_reason(-EINVAL, "unknown flag 0x%x",
				    opts.flags & ~FLAGS_ALL);
	if (opts.flags & KEDGE_CACHE_SINGLE_THREAD &&
	    opts.flags & KEDGE_CACHE_RESYNC)
		return kedge_reason(-EINVAL, "KEDGE_CACHE_RESYNC is a second "
				    "thread: not with "
				    "KEDGE_CACHE_SINGLE_THREAD");
	c = aligned_alloc(64, round_up(sizeof(*c), 64));
	if (!c)
		return -ENOMEM;
	memset(c, 0, sizeof(*c));
	saved = cancel_disable();
	rc = init(c, dev, nf, &opts);
	if (!rc)
		stats_add(&c->published, &cache_counters, c);
	cancel_restore(saved);
	if (rc) {
		free(c);
		return rc;
	}
	*out = c;
	return 0;
}

static void tell_held(struct kedge_cache *c, uint32_t cnt, uint32_t first)
{
	const struct region *r = &c->regions[first];
	char holder[256];

	ticket_holder(c, first, holder, sizeof(holder));
	kedge__log(KEDGE_LOG_ERROR,
		   "kedge_cache_close() with %u registrations held, the first of 0x%llx + %llu%s: "
		   "device %s keeps them, because a transfer may use them. Put them first",
		   cnt, (unsigned long long)r->mr.addr, (unsigned long long)r->mr.len, holder,
		   c->dev->ops.name);
}

static void tell_stuck(struct kedge_cache *c)
{
	if (nf_owned(c->nf) && c->stuck.cnt)
		kedge__log(KEDGE_LOG_ERROR,
			   "kedge_cache_close(): device %s has not ended %u registrations (error "
			   "%d); what it pins stays pinned until the device is closed",
			   c->dev->ops.name, c->stuck.cnt, -c->stuck.rc);
}

static void free_frames(struct kedge_cache *c)
{
	uint32_t id;

	for (id = 1; id < c->ids_used; id++)
		free(cold_at(c, id)->frames);
}

/* Regions that are still held are unwatched: the notifier may outlive the cache. */
static void end_held(struct kedge_cache *c)
{
	uint32_t id, cnt = 0, first = 0;

	if (!nf_owned(c->nf))
		return;
	pthread_mutex_lock(&c->lock);
	for (id = c->ids_used - 1; id; id--) {
		region_unwatch(c, &c->regions[id]);
		if (state_of(&c->regions[id]) == REGION_DYING) {
			cnt++;
			first = id;
		}
	}
	pthread_mutex_unlock(&c->lock);
	if (cnt)
		tell_held(c, cnt, first);
}

static void fini(struct kedge_cache *c)
{
	freed_fini(c);
	resyncer_stop(c);
	c->quiet = true;
	claim_thread(c);
	kedge_cache_flush(c); /* a no-op in a forked child */
	end_held(c);
	tell_stuck(c);
	/* With the registrations that have just ended. */
	stats_remove(&c->published);
	release_notifier(c);
	if (c->pagemap_fd >= 0)
		close(c->pagemap_fd);
	tickets_close(c);
	recs_free(c);
	index_free(c);
	free_frames(c);
	vouches_free(c);
	free_cold(c);
	munmap(c->regions, regions_len(c));
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void kedge_cache_close(struct kedge_cache *c)
{
	int saved;

	if (!c)
		return;
	saved = cancel_disable();
	fini(c);
	cancel_restore(saved);
}
