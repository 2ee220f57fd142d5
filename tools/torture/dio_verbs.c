// SPDX-License-Identifier: BSD-2-Clause
/*
 * Transfers by RDMA. Each lane has a peer: the other end of a connection, with
 * memory of its own that the test never touches, which reads and writes the
 * application's words by address and rkey. Both ends are in this process; the
 * device knows nothing of that.
 *
 * A handle is a verbs device's: the rkey is its upper half.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kedge/verbs.h>

#include "tools/common/rdma/rdma.h"
#include "tools/torture/dio.h"

/* Far above what a transfer takes under emulation on a loaded machine. */
#define TIMEOUT_MS 20000

#define REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* @mr: the naive cache's */
struct dio_rdma {
	struct rdma_dev dev;
	struct ibv_mr **mr;
	unsigned int slots;
};

/* The peer's side of a transfer. */
struct stage {
	uint64_t in[DIO_MAX];
	uint64_t out[DIO_MAX];
};

struct dio_link {
	struct rdma_end app;
	struct rdma_end peer;
	struct ibv_mr *mr;
	struct stage *stage; /* on pages of its own */
};

static int verbs_rig_open(struct rig *rig, const char *name)
{
	struct dio_rdma *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return kedge_reason(-ENOMEM, "no memory");
	rc = rdma_dev_open(&r->dev, name);
	if (rc)
		free(r);
	else
		rig->rdma = r;
	return rc;
}

static void verbs_rig_close(struct rig *rig)
{
	rdma_dev_close(&rig->rdma->dev);
	free(rig->rdma);
}

static int verbs_kedge_open(struct rig *rig, struct kedge_device **dev)
{
	return kedge_device_open_verbs(rig->rdma->dev.pd, NULL, dev);
}

static int verbs_table_open(struct rig *rig, unsigned int slots)
{
	rig->rdma->mr = calloc(slots, sizeof(struct ibv_mr *));
	if (!rig->rdma->mr)
		return kedge_reason(-ENOMEM, "no memory");
	rig->rdma->slots = slots;
	return 0;
}

static void verbs_table_close(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < rig->rdma->slots; i++)
		if (rig->rdma->mr[i])
			ibv_dereg_mr(rig->rdma->mr[i]);
	free(rig->rdma->mr);
}

static int verbs_table_set(struct rig *rig, unsigned int slot, const void *addr,
			   size_t len, uint64_t *handle)
{
	struct ibv_mr **mr = &rig->rdma->mr[slot];

	if (*mr)
		ibv_dereg_mr(*mr);
	errno = ENOMEM;
	*mr = ibv_reg_mr(rig->rdma->dev.pd, (void *)(uintptr_t)addr, len,
			 IBV_ACCESS_LOCAL_WRITE | REMOTE);
	if (!*mr)
		return -errno;
	*handle = (uint64_t)(*mr)->rkey << 32 | (*mr)->lkey;
	return 0;
}

static int stage_open(struct dio_link *l, struct rdma_dev *dev)
{
	int rc;

	l->stage = mmap(NULL, sizeof(*l->stage), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l->stage == MAP_FAILED)
		return kedge_reason(-errno, "mmap: %s", strerror(errno));
	errno = ENOMEM;
	l->mr = ibv_reg_mr(dev->pd, l->stage, sizeof(*l->stage),
			   IBV_ACCESS_LOCAL_WRITE);
	if (l->mr)
		return 0;
	rc = kedge_reason(-errno, "RDMA device %s registers not a page: %s",
			  dev->name, strerror(errno));
	munmap(l->stage, sizeof(*l->stage));
	return rc;
}

static void stage_close(struct dio_link *l)
{
	ibv_dereg_mr(l->mr);
	munmap(l->stage, sizeof(*l->stage));
}

static int verbs_open(struct rig *rig, struct dio_port *port)
{
	struct rdma_dev *dev = &rig->rdma->dev;
	struct dio_link *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return kedge_reason(-ENOMEM, "no memory");
	rc = stage_open(l, dev);
	if (rc)
		goto free_link;
	rc = rdma_end_open(&l->app, dev, 1);
	if (rc)
		goto close_stage;
	rc = rdma_end_open(&l->peer, dev, DIO_MAX);
	if (rc)
		goto close_app;
	rc = rdma_pair(&l->app, &l->peer);
	if (rc)
		goto close_peer;
	port->link = l;
	return 0;

close_peer:
	rdma_end_close(&l->peer);
close_app:
	rdma_end_close(&l->app);
close_stage:
	stage_close(l);
free_link:
	free(l);
	return rc;
}

static void verbs_close(struct dio_port *port)
{
	struct dio_link *l = port->link;

	rdma_end_close(&l->peer);
	rdma_end_close(&l->app);
	stage_close(l);
	free(l);
}

/* One word each between @stage and the application's memory. */
static int words(struct dio_link *l, const struct ref *ref, uint8_t *const *at,
		 uint64_t *stage, unsigned int cnt, bool read)
{
	struct rdma_op op[DIO_MAX];
	unsigned int i;

	for (i = 0; i < cnt; i++)
		op[i] = (struct rdma_op){
			.read = read,
			.local = &stage[i],
			.lkey = l->mr->lkey,
			.len = sizeof(uint64_t),
			.remote = (uintptr_t)at[i] + ref->shift,
			.rkey = (uint32_t)(ref->handle >> 32),
		};
	return rdma_run(&l->peer, op, cnt, TIMEOUT_MS);
}

static int verbs_move(struct rig *rig, struct dio_port *port,
		      const struct ref *ref, uint8_t *const *at,
		      const uint64_t *in, uint64_t *out, unsigned int cnt)
{
	struct dio_link *l = port->link;
	int rc;

	memcpy(l->stage->in, in, cnt * sizeof(*in));
	rc = words(l, ref, at, l->stage->out, cnt, true);
	if (!rc)
		rc = words(l, ref, at, l->stage->in, cnt, false);
	if (rc) {
		/* A failure breaks the connection. */
		rdma_pair(&l->app, &l->peer);
		return rc;
	}
	memcpy(out, l->stage->out, cnt * sizeof(*out));
	return 0;
}

const struct dio_ops dio_verbs = {
	.name = "verbs",
	.access = KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_READ |
		  KEDGE_ACCESS_REMOTE_WRITE,
	.rig_open = verbs_rig_open,
	.rig_close = verbs_rig_close,
	.kedge_open = verbs_kedge_open,
	.table_open = verbs_table_open,
	.table_close = verbs_table_close,
	.table_set = verbs_table_set,
	.open = verbs_open,
	.close = verbs_close,
	.move = verbs_move,
};
