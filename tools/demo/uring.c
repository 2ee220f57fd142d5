// SPDX-License-Identifier: BSD-2-Clause
/* The demo's device: io_uring's fixed buffers. The kernel moves the data. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <liburing.h>

#include <kedge/uring.h>

#include "tools/demo/demo.h"

static int uring_open(struct demo_device *d, const struct demo_file *file,
		      const char *name)
{
	struct io_uring *ring;
	int rc;

	if (name)
		return kedge_reason(-EINVAL, "io_uring has no name");
	ring = malloc(sizeof(*ring));
	if (!ring)
		return kedge_reason(-ENOMEM, "no memory");
	/* A transfer at a time has one entry in each of the rings. */
	rc = io_uring_queue_init(DEMO_MAX_DEPTH, ring, 0);
	if (rc) {
		free(ring);
		return kedge_reason(rc, "cannot make an io_uring: %s; 'kedge "
				    "info' tells more", strerror(-rc));
	}
	snprintf(d->label, sizeof(d->label), "io_uring");
	d->ctx = ring;
	return 0;
}

static void uring_close(struct demo_device *d)
{
	io_uring_queue_exit(d->ctx);
	free(d->ctx);
}

/* An empty table: zeroed vectors are empty slots since Linux 5.13. */
static int uring_table_open(struct demo_device *d)
{
	struct iovec *iov = calloc(DEMO_SLOTS, sizeof(*iov));
	__u64 *tags = calloc(DEMO_SLOTS, sizeof(*tags));
	int rc = -ENOMEM;

	if (iov && tags)
		rc = io_uring_register_buffers_tags(d->ctx, iov, tags,
						    DEMO_SLOTS);
	free(tags);
	free(iov);
	if (rc < 0)
		return kedge_reason(rc, "io_uring makes no table of %u "
				    "buffers: %s", DEMO_SLOTS, strerror(-rc));
	return 0;
}

static void uring_table_close(struct demo_device *d)
{
	io_uring_unregister_buffers(d->ctx);
}

static int slot_update(struct demo_device *d, int slot, void *addr, size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	__u64 tag = 0;
	int rc;

	rc = io_uring_register_buffers_update_tag(d->ctx, (unsigned int)slot,
						  &iov, &tag, 1);
	return rc < 0 ? rc : 0;
}

static int uring_reg(struct demo_device *d, int slot, void *buf)
{
	return slot_update(d, slot, buf, DEMO_CHUNK);
}

/* The kernel counts the references of transfers in flight. */
static void uring_dereg(struct demo_device *d, int slot)
{
	slot_update(d, slot, NULL, 0);
}

static int uring_kedge_open(struct demo_device *d, struct kedge_device **dev)
{
	struct kedge_uring_opts uo = { .size = sizeof(uo),
				       .slots = DEMO_SLOTS };

	return kedge_device_open_uring(d->ctx, &uo, dev);
}

/* The ring has an entry for every transfer, so there is always one. */
static int uring_queue(struct demo_device *d, const struct demo_io *io)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(d->ctx);
	const struct demo_chunk *c = &io->chunk;
	const int index = io->reg->mr ? (int)io->reg->mr->device_handle :
					io->reg->slot;

	if (io->writing)
		io_uring_prep_write_fixed(sqe, d->file->dst, io->buf, c->len,
					  c->dst_off, index);
	else
		io_uring_prep_read_fixed(sqe, d->file->src, io->buf, c->len,
					 c->src_off, index);
	io_uring_sqe_set_data(sqe, io->tag);
	return 0;
}

static void uring_submit(struct demo_device *d)
{
	io_uring_submit(d->ctx);
}

static int uring_wait(struct demo_device *d)
{
	int rc = io_uring_submit_and_wait(d->ctx, 1);

	if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
		return kedge_reason(rc, "io_uring takes no transfer: %s",
				    strerror(-rc));
	return 0;
}

static bool uring_next(struct demo_device *d, void **tag, int *res)
{
	struct io_uring_cqe *cqe;

	if (io_uring_peek_cqe(d->ctx, &cqe))
		return false;
	*tag = io_uring_cqe_get_data(cqe);
	*res = cqe->res;
	io_uring_cqe_seen(d->ctx, cqe);
	return true;
}

int demo_uring_fd(const struct demo_device *d)
{
	const struct io_uring *ring = d->ctx;

	return ring->ring_fd;
}

const struct demo_device_ops demo_device_uring = {
	.name = "uring",
	.chunks = 320,
	.max_bytes = 256ull << 20,
	.open = uring_open,
	.close = uring_close,
	.table_open = uring_table_open,
	.table_close = uring_table_close,
	.reg = uring_reg,
	.dereg = uring_dereg,
	.kedge_open = uring_kedge_open,
	.queue = uring_queue,
	.submit = uring_submit,
	.wait = uring_wait,
	.next = uring_next,
};
