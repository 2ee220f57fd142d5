// SPDX-License-Identifier: BSD-2-Clause
/*
 * libfabric: a domain of its provider "verbs", which keeps registrations. Which monitor watches
 * memory for them is libfabric's business: FI_MR_CACHE_MONITOR, and plug-ins that it finds.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "tools/demo/caches/caches.h"

#define VERSION FI_VERSION(1, 14)
#define ACCESS	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Inline functions of libfabric's headers call these by name. */
struct calls {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	uint32_t (*version)(void);
};

static struct calls calls;
static struct fid_domain *domain;

static int load(void)
{
	void *lib = dlopen("libfabric.so.1", RTLD_NOW);

	if (!lib) {
		caches_say("libfabric is not installed (Debian's libfabric1): %s", dlerror());
		return -1;
	}
	return caches_find(lib, "fi_getinfo", &calls.getinfo) ||
	       caches_find(lib, "fi_dupinfo", &calls.dupinfo) ||
	       caches_find(lib, "fi_fabric", &calls.fabric) ||
	       caches_find(lib, "fi_version", &calls.version) ? -1 : 0;
}

static int ask(struct fi_info **info)
{
	struct fi_info *hints = calls.dupinfo(NULL);
	int rc = -FI_ENOMEM;

	if (!hints)
		return rc;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	hints->caps = FI_MSG | FI_RMA;
	hints->fabric_attr->prov_name = strdup("verbs");
	if (hints->fabric_attr->prov_name)
		rc = calls.getinfo(VERSION, NULL, NULL, 0, hints, info);
	return rc;
}

static int open_domain(void)
{
	struct fid_fabric *fabric;
	struct fi_info *info;
	int rc;

	if (load())
		return -1;
	rc = ask(&info);
	if (!rc)
		rc = calls.fabric(info->fabric_attr, &fabric, NULL);
	if (!rc)
		rc = fi_domain(fabric, info, &domain, NULL);
	if (rc)
		caches_say("libfabric opens no domain of its provider \"verbs\": %s",
			   strerror(-rc));
	return rc ? -1 : 0;
}

static const char *version(void)
{
	static char text[32];
	const uint32_t v = calls.version();

	snprintf(text, sizeof(text), "%u.%u", FI_MAJOR(v), FI_MINOR(v));
	return text;
}

/* The stand-in's key is the buffer's index and 1. */
static void *get(void *at, size_t len, unsigned int *index)
{
	struct fid_mr *mr;
	int rc = fi_mr_reg(domain, at, len, ACCESS, 0, 0, 0, &mr, NULL);

	if (rc) {
		caches_say("fi_mr_reg: %s", strerror(-rc));
		return NULL;
	}
	*index = (unsigned int)fi_mr_key(mr) - 1;
	return mr;
}

static void put(void *mr)
{
	fi_close(&((struct fid_mr *)mr)->fid);
}

const struct caches_ops caches_libfabric = {
	.name = "libfabric", .open = open_domain, .version = version, .get = get, .put = put,
};
