// SPDX-License-Identifier: BSD-2-Clause
/*
 * UCX's side of the cache benchmark: ucs_rcache as UCX's own InfiniBand memory
 * domain sets it up, with a device that does nothing.
 *
 * The library is loaded here, in the child that measures it, and not linked:
 * its constructors and its patches of libc's code stay out of every other
 * process. What is called through a pointer here is called through the
 * procedure linkage table on kedge's side: the same indirect jump.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ucp/api/ucp_version.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>

#include "tools/bench/cache.h"

/* Defaults of UCX's memory domains: UCX_*_RCACHE_ADDR_ALIGN, _MEM_PRIO,
 * _MAX_UNRELEASED. Limits on regions and bytes are infinite there. */
#define UCX_ALIGN	   64
#define UCX_EVENT_PRIORITY 1000
#define UCX_MAX_UNRELEASED (512ul << 20)

struct ucx_region {
	ucs_rcache_region_t super;
	uint64_t handle;
};

struct ucx_side {
	void *lib;
	ucs_rcache_t *cache;
	uint64_t regs;
	__typeof__(&ucs_rcache_create) create;
	__typeof__(&ucs_rcache_destroy) destroy;
	__typeof__(&ucs_rcache_get) get;
	__typeof__(&ucs_rcache_region_put) put;
	__typeof__(&ucs_status_string) status_string;
	void (*version)(unsigned int *major, unsigned int *minor,
			unsigned int *release);
};

static ucs_status_t null_reg(void *ctx, ucs_rcache_t *cache, void *arg,
			     ucs_rcache_region_t *region, uint16_t flags)
{
	struct ucx_side *s = ctx;

	__atomic_fetch_add(&s->regs, 1, __ATOMIC_RELAXED);
	((struct ucx_region *)region)->handle = region->super.start;
	return UCS_OK;
}

static void null_dereg(void *ctx, ucs_rcache_t *cache,
		       ucs_rcache_region_t *region)
{
}

static void null_dump(void *ctx, ucs_rcache_t *cache,
		      ucs_rcache_region_t *region, char *buf, size_t max)
{
	snprintf(buf, max, "null");
}

static const ucs_rcache_ops_t null_ops = {
	.mem_reg = null_reg,
	.mem_dereg = null_dereg,
	.dump_region = null_dump,
};

static int load(struct ucx_side *s, char why[WHY_LEN])
{
	const struct {
		const char *name;
		void *to;
	} syms[] = {
		{ "ucs_rcache_create", &s->create },
		{ "ucs_rcache_destroy", &s->destroy },
		{ "ucs_rcache_get", &s->get },
		{ "ucs_rcache_region_put", &s->put },
		{ "ucs_status_string", &s->status_string },
		{ "ucp_get_version", &s->version },
	};
	size_t i;
	void *p;

	/* libucp, as it knows the version; it brings libucs along. Global, so that libkedge-ucx
	 * comes before it where that is preloaded. */
	s->lib = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
	if (!s->lib) {
		snprintf(why, WHY_LEN, "cannot load UCX: %s", dlerror());
		return -ENOENT;
	}
	for (i = 0; i < ARRAY_SIZE(syms); i++) {
		p = dlsym(RTLD_DEFAULT, syms[i].name);
		if (!p) {
			snprintf(why, WHY_LEN, "the UCX installed has no %s",
				 syms[i].name);
			dlclose(s->lib);
			return -ENOENT;
		}
		memcpy(syms[i].to, &p, sizeof(p));
	}
	return 0;
}

/* The structs are those of the headers: another release may differ. */
static int check_version(struct ucx_side *s, struct side_info *info,
			 char why[WHY_LEN])
{
	unsigned int major, minor, release;

	s->version(&major, &minor, &release);
	snprintf(info->version, sizeof(info->version), "%u.%u.%u", major, minor,
		 release);
	if (major == UCP_API_MAJOR && minor == UCP_API_MINOR)
		return 0;
	snprintf(why, WHY_LEN,
		 "UCX %u.%u is installed, and this build has "
		 "seen %u.%u: build kedge again",
		 major, minor, UCP_API_MAJOR, UCP_API_MINOR);
	return -EOPNOTSUPP;
}

static int create(struct ucx_side *s, char why[WHY_LEN])
{
	const ucs_rcache_params_t params = {
		.region_struct_size = sizeof(struct ucx_region),
		.alignment = UCX_ALIGN,
		.max_alignment = (size_t)sysconf(_SC_PAGESIZE),
		.ucm_events = UCM_EVENT_VM_UNMAPPED,
		.ucm_event_priority = UCX_EVENT_PRIORITY,
		.ops = &null_ops,
		.context = s,
		.flags = UCS_RCACHE_FLAG_PURGE_ON_FORK,
		.max_regions = UINT64_MAX,
		.max_size = SIZE_MAX,
		.max_unreleased = UCX_MAX_UNRELEASED,
	};
	ucs_status_t status;

	status = s->create(&params, "kedge-bench", NULL, &s->cache);
	if (status == UCS_OK)
		return 0;
	snprintf(why, WHY_LEN, "cannot create UCX's cache: %s",
		 s->status_string(status));
	return -EIO;
}

static int side_open(const struct cache_cfg *cfg, void **ctx,
		     struct side_info *info, char why[WHY_LEN])
{
	struct ucx_side *s;
	int rc;

	s = calloc(1, sizeof(*s));
	if (!s) {
		snprintf(why, WHY_LEN, "no memory");
		return -ENOMEM;
	}
	rc = load(s, why);
	if (rc)
		goto free_side;
	rc = check_version(s, info, why);
	if (rc)
		goto free_side;
	rc = create(s, why);
	if (rc)
		goto free_side;
	snprintf(info->notifier, sizeof(info->notifier), "%s",
		 dlsym(RTLD_DEFAULT, "kedge_ucx_watches") ? "kedge" : "ucm");
	*ctx = s;
	return 0;

	/* Loaded it stays: its threads and patches cannot be unloaded. */
free_side:
	free(s);
	return rc;
}

static void side_close(void *ctx)
{
	struct ucx_side *s = ctx;

	s->destroy(s->cache);
	free(s);
}

static inline int get_put(const struct ucx_side *s, void *addr, size_t len)
{
	ucs_rcache_region_t *region;

	if (s->get(s->cache, addr, len, PROT_READ | PROT_WRITE, NULL,
		   &region) != UCS_OK)
		return -EIO;
	s->put(s->cache, region);
	return 0;
}

static int side_get_put(void *ctx, void *addr, size_t len)
{
	return get_put(ctx, addr, len);
}

static int run_get(void *ctx, struct walk *w, uint64_t n)
{
	/* A copy that no callee can change: pointers stay in registers. */
	const struct ucx_side s = *(struct ucx_side *)ctx;
	int rc = 0;

	while (n-- && !rc)
		rc = get_put(&s, walk_next(w), w->len);
	return rc;
}

static uint64_t registrations(void *ctx)
{
	return __atomic_load_n(&((struct ucx_side *)ctx)->regs,
			       __ATOMIC_RELAXED);
}

static const struct side ucx = {
	.name = "ucx",
	.open = side_open,
	.close = side_close,
	.get_put = side_get_put,
	.get_puts = run_get,
	/* UCX has no hints: a get of it all is its nearest. */
	.hints = run_get,
	.registrations = registrations,
};

const struct side *side_ucx(void)
{
	return &ucx;
}
