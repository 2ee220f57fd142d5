// SPDX-License-Identifier: BSD-2-Clause
/* Registrations of a libfabric domain for kedge bench reg. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/reg.h"
#include "tools/common/ofi_domain.h"

static int raw_reg(struct reg_dev *d, void *addr, size_t len, uint64_t *handle)
{
	const struct ofi_domain *own = d->own;
	static _Atomic uint64_t key = 1ull << 20;
	struct fid_mr *mr;
	/* A provider whose keys are the program's takes any that is not in use. */
	int rc = fi_mr_reg(own->domain, addr, len, FI_SEND | FI_RECV, 0, key++, 0, &mr, NULL);

	if (rc)
		return rc;
	*handle = (uintptr_t)mr;
	return 0;
}

static void raw_dereg(struct reg_dev *d, uint64_t handle)
{
	struct fid_mr *mr = (struct fid_mr *)(uintptr_t)handle;

	fi_close(&mr->fid);
}

static void ofi_close(struct reg_dev *d)
{
	kedge_device_close(d->dev);
	ofi_domain_close(d->own);
	free(d->own);
}

int reg_ofi_open(const char *provider, struct reg_dev *d)
{
	struct ofi_domain *own = calloc(1, sizeof(*own));
	int rc;

	if (!own)
		return util_fail(-ENOMEM, "ofi");
	/* A cache of libfabric's would be what is measured, and below kedge's one too many. */
	setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
	rc = ofi_domain_open(provider ? provider : "verbs", own);
	if (rc)
		goto free_own;
	rc = ofi_domain_device(own, &d->dev);
	if (rc)
		goto close_domain;
	snprintf(d->model, sizeof(d->model), "%s", own->info->domain_attr->name);
	d->own = own;
	d->reg = raw_reg;
	d->dereg = raw_dereg;
	d->close = ofi_close;
	return CMD_OK;

close_domain:
	ofi_domain_close(own);
free_own:
	free(own);
	return util_fail(rc, "ofi");
}
