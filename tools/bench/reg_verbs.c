// SPDX-License-Identifier: BSD-2-Clause
/* RDMA memory regions for kedge bench reg. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/verbs.h>

#include "tools/bench/reg.h"
#include "tools/common/rdma/rdma.h"

static int raw_reg(struct reg_dev *d, void *addr, size_t len, uint64_t *handle)
{
	struct rdma_dev *rdma = d->own;
	struct ibv_mr *mr = ibv_reg_mr(rdma->pd, addr, len,
				       IBV_ACCESS_LOCAL_WRITE);

	if (!mr)
		return -errno;
	*handle = (uintptr_t)mr;
	return 0;
}

static void raw_dereg(struct reg_dev *d, uint64_t handle)
{
	ibv_dereg_mr((struct ibv_mr *)(uintptr_t)handle);
}

static void verbs_close(struct reg_dev *d)
{
	kedge_device_close(d->dev);
	rdma_dev_close(d->own);
	free(d->own);
}

int reg_verbs_open(const char *model, struct reg_dev *d)
{
	struct rdma_dev *rdma = calloc(1, sizeof(*rdma));
	int rc;

	if (!rdma)
		return util_fail(-ENOMEM, "verbs");
	rc = rdma_dev_open(rdma, model);
	if (rc)
		goto free_rdma;
	rc = kedge_device_open_verbs(rdma->pd, NULL, &d->dev);
	if (rc)
		goto close_rdma;
	snprintf(d->model, sizeof(d->model), "%s", rdma->name);
	d->own = rdma;
	d->reg = raw_reg;
	d->dereg = raw_dereg;
	d->close = verbs_close;
	return CMD_OK;

close_rdma:
	rdma_dev_close(rdma);
free_rdma:
	free(rdma);
	return util_fail(rc, "verbs");
}
