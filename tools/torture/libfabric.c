// SPDX-License-Identifier: BSD-2-Clause
/*
 * libfabric's own cache of registrations, as the domains of its provider "verbs" have one, in the
 * place of kedge's. The adapter is the stand-in (tools/standin/), whose registrations are fixed
 * buffers of the test's ring.
 *
 * Which monitor watches memory for that cache is libfabric's business: FI_MR_CACHE_MONITOR, and
 * libkedge-fi where that is found.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <kedge/ofi_device.h>

#include "tools/torture/dio.h"
#include "tools/torture/rig.h"

#define VERSION FI_VERSION(1, 14)
#define ACCESS	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

struct libfabric {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	_Atomic uint64_t gets;
	uint64_t before; /* registrations that were made */
	uint64_t (*registered)(void);
	void (*freeinfo)(struct fi_info *info);
};

/* Inline functions of libfabric's headers call these by name. */
struct calls {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	int (*use)(int ring_fd);
};

static int find(void *lib, const char *name, void *to)
{
	void *p = dlsym(lib, name);

	if (!p)
		return kedge_reason(-EOPNOTSUPP, "there is no %s", name);
	memcpy(to, &p, sizeof(p));
	return 0;
}

/* It stays loaded. */
static int load(struct libfabric *f, struct calls *c)
{
	void *lib = dlopen("libfabric.so.1", RTLD_NOW);
	int rc;

	if (!lib)
		return kedge_reason(-EOPNOTSUPP, "libfabric cannot be loaded: %s", dlerror());
	rc = find(RTLD_DEFAULT, "kedge_standin_use", &c->use);
	if (rc)
		return kedge_reason(rc, "the stand-in for an RDMA adapter is not loaded: "
				    "LD_PRELOAD libkedge-standin-rdma.so");
	rc = find(RTLD_DEFAULT, "kedge_standin_registered", &f->registered);
	if (!rc)
		rc = find(lib, "fi_getinfo", &c->getinfo);
	if (!rc)
		rc = find(lib, "fi_dupinfo", &c->dupinfo);
	if (!rc)
		rc = find(lib, "fi_freeinfo", &f->freeinfo);
	return rc ? rc : find(lib, "fi_fabric", &c->fabric);
}

static int ask(struct libfabric *f, const struct calls *c)
{
	struct fi_info *hints = c->dupinfo(NULL);
	int rc = -ENOMEM;

	if (!hints)
		return kedge_reason(rc, "no memory");
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	hints->caps = FI_MSG | FI_RMA;
	hints->fabric_attr->prov_name = strdup("verbs");
	if (hints->fabric_attr->prov_name)
		rc = c->getinfo(VERSION, NULL, NULL, 0, hints, &f->info);
	f->freeinfo(hints);
	return rc ? kedge_reason(rc, "fi_getinfo: libfabric has no \"verbs\" here: %s",
				 strerror(-rc)) : 0;
}

static int open_domain(struct libfabric *f, const struct calls *c)
{
	int rc = ask(f, c);

	if (rc)
		return rc;
	rc = c->fabric(f->info->fabric_attr, &f->fabric, NULL);
	if (!rc)
		rc = fi_domain(f->fabric, f->info, &f->domain, NULL);
	return rc ? kedge_reason(rc, "libfabric opens no domain: %s", strerror(-rc)) : 0;
}

static void end(struct libfabric *f)
{
	if (f->domain)
		fi_close(&f->domain->fid);
	if (f->fabric)
		fi_close(&f->fabric->fid);
	if (f->info)
		f->freeinfo(f->info);
	free(f);
}

int libfabric_open(struct rig *rig, struct libfabric **out)
{
	struct libfabric *f = calloc(1, sizeof(*f));
	struct calls c = { NULL };
	int rc;

	if (!f)
		return kedge_reason(-ENOMEM, "no memory");
	rc = load(f, &c);
	if (!rc)
		rc = c.use(rig->ring.ring_fd);
	if (!rc)
		rc = open_domain(f, &c);
	if (rc) {
		end(f);
		return rc;
	}
	f->before = f->registered();
	*out = f;
	return 0;
}

void libfabric_close(struct libfabric *f)
{
	end(f);
}

int libfabric_get(struct libfabric *f, const void *addr, size_t len, struct fid_mr **mr,
		  uint64_t *handle)
{
	int rc = fi_mr_reg(f->domain, addr, len, ACCESS, 0, 0, 0, mr, NULL);

	if (rc)
		return kedge_reason(rc, "fi_mr_reg: %s", strerror(-rc));
	atomic_fetch_add(&f->gets, 1);
	*handle = fi_mr_key(*mr) - 1;
	return 0;
}

void libfabric_put(struct fid_mr *mr)
{
	fi_close(&mr->fid);
}

void libfabric_stats(struct libfabric *f, struct kedge_cache_stats *stats)
{
	const uint64_t made = f->registered() - f->before;

	stats->gets = atomic_load(&f->gets);
	stats->hits = stats->gets > made ? stats->gets - made : 0;
	stats->uncached = made;
}

/* ---- a domain as a device of kedge's cache ---- */

static int ofi_rig_open(struct rig *rig, const char *name)
{
	int rc = dio_uring.rig_open(rig, name);

	if (rc)
		return rc;
	rc = libfabric_open(rig, &rig->ofi);
	if (rc)
		dio_uring.rig_close(rig);
	return rc;
}

static void ofi_rig_close(struct rig *rig)
{
	libfabric_close(rig->ofi);
	dio_uring.rig_close(rig);
}

static int ofi_kedge_open(struct rig *rig, struct kedge_device **dev)
{
	int (*open)(struct fid_domain *domain, const struct fi_info *info,
		    const struct kedge_ofi_device_opts *opts, struct kedge_device **dev) =
		NULL;
	void *lib = dlopen("libkedge-ofi.so.0", RTLD_NOW);
	int rc;

	if (!lib)
		return kedge_reason(-EOPNOTSUPP, "libkedge-ofi cannot be loaded: %s", dlerror());
	rc = find(lib, "kedge_device_open_ofi", &open);
	return rc ? rc : open(rig->ofi->domain, rig->ofi->info, NULL, dev);
}

static int ofi_open(struct rig *rig, struct dio_port *port)
{
	return dio_uring.open(rig, port);
}

static void ofi_close(struct dio_port *port)
{
	dio_uring.close(port);
}

/* The key says which buffer of the ring it is. */
static int ofi_move(struct rig *rig, struct dio_port *port, const struct ref *ref,
		    uint8_t *const *at, const uint64_t *in, uint64_t *out, unsigned int cnt)
{
	struct ref buffer = *ref;

	buffer.handle = fi_mr_key(kedge_ofi_mr(ref->mr)) - 1;
	return dio_uring.move(rig, port, &buffer, at, in, out, cnt);
}

static int no_table(struct rig *rig, unsigned int slots)
{
	(void)rig;
	(void)slots;
	return kedge_reason(-EOPNOTSUPP, "a naive cache on libfabric's domains is not tested");
}

const struct dio_ops dio_ofi = {
	.name = "ofi",
	.access = KEDGE_ACCESS_ALL,
	.rig_open = ofi_rig_open,
	.rig_close = ofi_rig_close,
	.kedge_open = ofi_kedge_open,
	.table_open = no_table,
	.open = ofi_open,
	.close = ofi_close,
	.move = ofi_move,
};
