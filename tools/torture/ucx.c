// SPDX-License-Identifier: BSD-2-Clause
/*
 * UCX's own cache of registrations (ucs_rcache), as its transports make one, in the place of
 * kedge's. A registration is a fixed buffer of the rig's ring, whose pages are pinned as an adapter
 * pins them.
 *
 * The library is loaded when it is tested, so that its patches of libc's code are in no other run.
 * Its calls are those that the process has first by that name: libkedge-ucx's, where that is
 * preloaded.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucm/api/ucm.h>
#include <ucp/api/ucp_version.h>
#include <ucs/memory/rcache.h>

#include "base/base.h"
#include "tools/torture/dio.h"
#include "tools/torture/rig.h"

/* Room for all that a change lets go of late; few enough regions that some make room. */
#define SLOTS	    2048u
#define MAX_REGIONS 512
#define MAX_BYTES   (256ul << 20)

/* Defaults of UCX's memory domains, as in tools/bench/cache_ucx.c. */
#define ALIGN	       64
#define EVENT_PRIORITY 1000
#define MAX_UNRELEASED (512ul << 20)

struct ucx_region {
	ucs_rcache_region_t super;
	unsigned int slot;
};

struct ucx {
	ucs_rcache_t *cache;
	struct rig *rig;
	pthread_mutex_t lock; /* guards: */
	bool used[SLOTS];
	_Atomic uint64_t gets, made;
	__typeof__(&ucs_rcache_create) create;
	__typeof__(&ucs_rcache_destroy) destroy;
	__typeof__(&ucs_rcache_get) get;
	__typeof__(&ucs_rcache_region_put) put;
	__typeof__(&ucs_status_string) text;
};

/* Of this thread's registration, as UCX has codes of its own. */
static _Thread_local int last;

/* ---- registrations ---- */

static int update(struct ucx *u, unsigned int slot, void *at, size_t len)
{
	struct iovec v = { at, len };
	__u64 tag = 0;
	int rc;

	rc = io_uring_register_buffers_update_tag(&u->rig->ring, slot, &v, &tag, 1);
	return rc < 0 ? rc : 0;
}

static unsigned int take_slot(struct ucx *u)
{
	unsigned int slot;

	pthread_mutex_lock(&u->lock);
	for (slot = 0; slot < SLOTS && u->used[slot]; slot++)
		;
	if (slot < SLOTS)
		u->used[slot] = true;
	pthread_mutex_unlock(&u->lock);
	return slot;
}

static void put_slot(struct ucx *u, unsigned int slot)
{
	pthread_mutex_lock(&u->lock);
	u->used[slot] = false;
	pthread_mutex_unlock(&u->lock);
}

static ucs_status_t mem_reg(void *ctx, ucs_rcache_t *cache, void *arg, ucs_rcache_region_t *region,
			    uint16_t flags)
{
	struct ucx_region *r = ucs_derived_of(region, struct ucx_region);
	struct ucx *u = ctx;

	last = -ENOSPC;
	r->slot = take_slot(u);
	if (r->slot == SLOTS)
		return UCS_ERR_NO_RESOURCE;
	last = update(u, r->slot, (void *)region->super.start,
		      region->super.end - region->super.start);
	if (last) {
		put_slot(u, r->slot);
		return UCS_ERR_IO_ERROR;
	}
	atomic_fetch_add(&u->made, 1);
	return UCS_OK;
}

static void mem_dereg(void *ctx, ucs_rcache_t *cache, ucs_rcache_region_t *region)
{
	struct ucx_region *r = ucs_derived_of(region, struct ucx_region);
	struct ucx *u = ctx;

	update(u, r->slot, NULL, 0);
	put_slot(u, r->slot);
}

static void dump_region(void *ctx, ucs_rcache_t *cache, ucs_rcache_region_t *region, char *buf,
			size_t max)
{
	snprintf(buf, max, "slot %u", ucs_derived_of(region, struct ucx_region)->slot);
}

static const ucs_rcache_ops_t ops = {
	.mem_reg = mem_reg,
	.mem_dereg = mem_dereg,
	.dump_region = dump_region,
};

/* ---- the library ---- */

/* The structures are those of the headers. */
static int check_version(void *ucp)
{
	void (*version)(unsigned int *major, unsigned int *minor, unsigned int *release) = NULL;
	unsigned int major, minor, release;
	void *p = dlsym(ucp, "ucp_get_version");

	memcpy(&version, &p, sizeof(p));
	if (!version)
		return kedge_reason(-EOPNOTSUPP, "this UCX does not say its version");
	version(&major, &minor, &release);
	if (major == UCP_API_MAJOR && minor == UCP_API_MINOR)
		return 0;
	return kedge_reason(-EOPNOTSUPP, "UCX %u.%u is installed, and this build has seen %u.%u: "
			    "build kedge again", major, minor, UCP_API_MAJOR, UCP_API_MINOR);
}

/* It stays loaded: its patches cannot be unloaded. Global, so that a preloaded one comes first. */
static int load(struct ucx *u)
{
	const struct {
		const char *name;
		void *to;
	} calls[] = {
		{ "ucs_rcache_create", &u->create },
		{ "ucs_rcache_destroy", &u->destroy },
		{ "ucs_rcache_get", &u->get },
		{ "ucs_rcache_region_put", &u->put },
		{ "ucs_status_string", &u->text },
	};
	void *ucp, *p;
	size_t i;

	/* Faults are events here, and the test's own handler takes them. */
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
	if (!ucp)
		return kedge_reason(-EOPNOTSUPP, "UCX cannot be loaded: %s", dlerror());
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		p = dlsym(RTLD_DEFAULT, calls[i].name);
		if (!p)
			return kedge_reason(-EOPNOTSUPP, "this UCX has no %s", calls[i].name);
		memcpy(calls[i].to, &p, sizeof(p));
	}
	return check_version(ucp);
}

static int create(struct ucx *u)
{
	const ucs_rcache_params_t params = {
		.region_struct_size = sizeof(struct ucx_region),
		.alignment = ALIGN,
		.max_alignment = (size_t)sysconf(_SC_PAGESIZE),
		.ucm_events = UCM_EVENT_VM_UNMAPPED,
		.ucm_event_priority = EVENT_PRIORITY,
		.ops = &ops,
		.context = u,
		.flags = UCS_RCACHE_FLAG_PURGE_ON_FORK,
		.max_regions = MAX_REGIONS,
		.max_size = MAX_BYTES,
		.max_unreleased = MAX_UNRELEASED,
	};
	ucs_status_t status = u->create(&params, "kedge-torture", NULL, &u->cache);

	return status == UCS_OK ? 0 : kedge_reason(-EOPNOTSUPP, "UCX makes no cache: %s",
						   u->text(status));
}

int ucx_open(struct rig *rig, struct ucx **out)
{
	struct ucx *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return kedge_reason(-ENOMEM, "no memory");
	u->rig = rig;
	pthread_mutex_init(&u->lock, NULL);
	rc = io_uring_register_buffers_sparse(&rig->ring, SLOTS);
	if (rc)
		rc = kedge_reason(rc, "no fixed buffers: %s", strerror(-rc));
	else
		rc = load(u);
	if (!rc)
		rc = create(u);
	if (rc) {
		free(u);
		return rc;
	}
	*out = u;
	return 0;
}

void ucx_close(struct ucx *u)
{
	u->destroy(u->cache);
	io_uring_unregister_buffers(&u->rig->ring);
	free(u);
}

int ucx_get(struct ucx *u, const void *addr, size_t len, struct ucs_rcache_region **region,
	    uint64_t *handle)
{
	ucs_status_t status;

	last = 0;
	status = u->get(u->cache, (void *)(uintptr_t)addr, len, PROT_READ | PROT_WRITE, NULL,
			region);
	if (status != UCS_OK)
		return kedge_reason(last ? last : -EIO, "ucs_rcache_get: %s", u->text(status));
	atomic_fetch_add(&u->gets, 1);
	*handle = ucs_derived_of(*region, struct ucx_region)->slot;
	return 0;
}

void ucx_put(struct ucx *u, struct ucs_rcache_region *region)
{
	u->put(u->cache, region);
}

void ucx_stats(struct ucx *u, struct kedge_cache_stats *stats)
{
	const uint64_t made = atomic_load(&u->made);

	stats->gets = atomic_load(&u->gets);
	stats->hits = stats->gets > made ? stats->gets - made : 0;
	stats->uncached = made;
}
