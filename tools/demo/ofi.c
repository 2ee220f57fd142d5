// SPDX-License-Identifier: BSD-2-Clause
/*
 * The demo's device: registrations of a domain of libfabric's, over the stand-in for an RDMA
 * adapter (tools/standin/), which makes them fixed buffers of this ring; the ring moves the data.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/ofi_device.h>

#include "tools/common/ofi_domain.h"
#include "tools/demo/demo.h"

#define ACCESS (FI_SEND | FI_RECV | FI_READ | FI_WRITE)

struct ofi {
	struct demo_device ring;
	struct ofi_domain domain;
	struct fid_mr *mr[DEMO_SLOTS]; /* of raw registrations */
};

static int ofi_open(struct demo_device *d, const struct demo_file *file, const char *name)
{
	struct ofi *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return kedge_reason(-ENOMEM, "no memory");
	o->ring = (struct demo_device){ .ops = &demo_device_uring, .file = file };
	rc = demo_device_uring.open(&o->ring, file, name);
	if (rc)
		goto free_o;
	rc = ofi_domain_standin(demo_uring_fd(&o->ring), NULL);
	/* The cache is to be kedge's, or none. */
	setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
	if (!rc)
		rc = ofi_domain_open("verbs", &o->domain);
	if (rc)
		goto close_ring;
	snprintf(d->label, sizeof(d->label), "a domain of libfabric's, over a stand-in");
	d->ctx = o;
	return 0;

close_ring:
	demo_device_uring.close(&o->ring);
free_o:
	free(o);
	return rc;
}

static void ofi_close(struct demo_device *d)
{
	struct ofi *o = d->ctx;

	ofi_domain_close(&o->domain);
	demo_device_uring.close(&o->ring);
	free(o);
}

/* The stand-in has made the table. */
static int ofi_table_open(struct demo_device *d)
{
	struct ofi *o = d->ctx;

	memset(o->mr, 0, sizeof(o->mr));
	return 0;
}

static void ofi_dereg(struct demo_device *d, int slot)
{
	struct ofi *o = d->ctx;

	if (o->mr[slot])
		fi_close(&o->mr[slot]->fid);
	o->mr[slot] = NULL;
}

static void ofi_table_close(struct demo_device *d)
{
	int i;

	for (i = 0; i < (int)DEMO_SLOTS; i++)
		ofi_dereg(d, i);
}

static int ofi_reg(struct demo_device *d, int slot, void *buf)
{
	struct ofi *o = d->ctx;

	/* As in a table of the kernel's: what was in the slot is gone. */
	ofi_dereg(d, slot);
	return fi_mr_reg(o->domain.domain, buf, DEMO_CHUNK, ACCESS, 0, 0, 0, &o->mr[slot], NULL);
}

static int ofi_kedge_open(struct demo_device *d, struct kedge_device **dev)
{
	struct ofi *o = d->ctx;

	return ofi_domain_device(&o->domain, dev);
}

/* The key says which buffer of the ring it is. */
static int ofi_queue(struct demo_device *d, const struct demo_io *io)
{
	struct ofi *o = d->ctx;
	struct fid_mr *mr = io->reg->mr ? kedge_ofi_mr(io->reg->mr) : o->mr[io->reg->slot];
	const struct demo_reg reg = { .slot = (int)fi_mr_key(mr) - 1 };
	struct demo_io by_ring = *io;

	by_ring.reg = &reg;
	return demo_device_uring.queue(&o->ring, &by_ring);
}

static void ofi_submit(struct demo_device *d)
{
	struct ofi *o = d->ctx;

	demo_device_uring.submit(&o->ring);
}

static int ofi_wait(struct demo_device *d)
{
	struct ofi *o = d->ctx;

	return demo_device_uring.wait(&o->ring);
}

static bool ofi_next(struct demo_device *d, void **tag, int *res)
{
	struct ofi *o = d->ctx;

	return demo_device_uring.next(&o->ring, tag, res);
}

const struct demo_device_ops demo_device_ofi = {
	.name = "ofi",
	.access = KEDGE_ACCESS_LOCAL_READ | KEDGE_ACCESS_LOCAL_WRITE,
	.chunks = 320,
	.max_bytes = 256ull << 20,
	.open = ofi_open,
	.close = ofi_close,
	.table_open = ofi_table_open,
	.table_close = ofi_table_close,
	.reg = ofi_reg,
	.dereg = ofi_dereg,
	.kedge_open = ofi_kedge_open,
	.queue = ofi_queue,
	.submit = ofi_submit,
	.wait = ofi_wait,
	.next = ofi_next,
};
