// SPDX-License-Identifier: BSD-2-Clause
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <kedge/ofi_device.h>

#include "tools/common/ofi_domain.h"

#define VERSION FI_VERSION(1, 14)

/* Inline functions of libfabric's headers call these by name. */
struct calls {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
};

static int find(void *lib, const char *name, void *to)
{
	void *p = dlsym(lib, name);

	if (!p)
		return kedge_reason(-EOPNOTSUPP, "there is no %s", name);
	memcpy(to, &p, sizeof(p));
	return 0;
}

static int load(struct ofi_domain *d, struct calls *c)
{
	void *lib = dlopen("libfabric.so.1", RTLD_NOW);
	int rc;

	if (!lib)
		return kedge_reason(-EOPNOTSUPP, "libfabric cannot be loaded: %s", dlerror());
	rc = find(lib, "fi_getinfo", &c->getinfo);
	if (!rc)
		rc = find(lib, "fi_dupinfo", &c->dupinfo);
	if (!rc)
		rc = find(lib, "fi_freeinfo", &d->freeinfo);
	return rc ? rc : find(lib, "fi_fabric", &c->fabric);
}

static int ask(const char *provider, struct ofi_domain *d, const struct calls *c)
{
	struct fi_info *hints = c->dupinfo(NULL);
	int rc = -ENOMEM;

	if (!hints)
		return kedge_reason(rc, "no memory");
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	hints->caps = FI_MSG | FI_RMA;
	hints->fabric_attr->prov_name = strdup(provider);
	if (hints->fabric_attr->prov_name)
		rc = c->getinfo(VERSION, NULL, NULL, 0, hints, &d->info);
	d->freeinfo(hints);
	return rc ? kedge_reason(rc, "fi_getinfo: libfabric has no \"%s\" here: %s", provider,
				 strerror(-rc)) : 0;
}

int ofi_domain_open(const char *provider, struct ofi_domain *d)
{
	struct calls c = { NULL };
	int rc;

	*d = (struct ofi_domain){ NULL };
	rc = load(d, &c);
	if (!rc)
		rc = ask(provider, d, &c);
	if (rc)
		return rc;
	rc = c.fabric(d->info->fabric_attr, &d->fabric, NULL);
	if (!rc)
		rc = fi_domain(d->fabric, d->info, &d->domain, NULL);
	if (rc)
		ofi_domain_close(d);
	return rc ? kedge_reason(rc, "libfabric opens no domain: %s", strerror(-rc)) : 0;
}

void ofi_domain_close(struct ofi_domain *d)
{
	if (d->domain)
		fi_close(&d->domain->fid);
	if (d->fabric)
		fi_close(&d->fabric->fid);
	if (d->info)
		d->freeinfo(d->info);
	*d = (struct ofi_domain){ NULL };
}

int ofi_domain_device(const struct ofi_domain *d, struct kedge_device **dev)
{
	int (*open)(struct fid_domain *domain, const struct fi_info *info,
		    const struct kedge_ofi_device_opts *opts, struct kedge_device **dev) =
		NULL;
	void *lib = dlopen("libkedge-ofi.so.0", RTLD_NOW);
	int rc;

	if (!lib)
		return kedge_reason(-EOPNOTSUPP, "libkedge-ofi cannot be loaded: %s", dlerror());
	rc = find(lib, "kedge_device_open_ofi", &open);
	return rc ? rc : open(d->domain, d->info, NULL, dev);
}

int ofi_domain_standin(int ring_fd, uint64_t (**registered)(void))
{
	int (*use)(int fd) = NULL;
	int rc = find(RTLD_DEFAULT, "kedge_standin_use", &use);

	if (!rc && registered)
		rc = find(RTLD_DEFAULT, "kedge_standin_registered", registered);
	return rc ? kedge_reason(rc, "the stand-in for an RDMA adapter is not loaded: "
				 "LD_PRELOAD libkedge-standin-rdma.so") : use(ring_fd);
}
