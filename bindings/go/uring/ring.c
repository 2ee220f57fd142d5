// SPDX-License-Identifier: BSD-2-Clause
/* An io_uring: see ring.h. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "ring.h"

struct go_ring_opened go_ring_open(unsigned int entries, uint32_t slots, uint32_t flags)
{
	const struct kedge_uring_opts opts = {
		.size = sizeof(opts), .flags = flags, .slots = slots,
	};
	struct go_ring_opened o = { .r = calloc(1, sizeof(*o.r)), .rc = -ENOMEM };

	if (!o.r)
		return o;
	o.rc = io_uring_queue_init(entries, &o.r->ring, 0);
	if (o.rc)
		goto free_ring;
	o.rc = kedge_device_open_uring(&o.r->ring, &opts, &o.r->dev);
	if (o.rc)
		goto exit_ring;
	return o;

exit_ring:
	o.why = strdup(kedge_strerror(o.rc));
	io_uring_queue_exit(&o.r->ring);
free_ring:
	free(o.r);
	o.r = NULL;
	return o;
}

void go_ring_close(struct go_ring *r)
{
	kedge_device_close(r->dev);
	io_uring_queue_exit(&r->ring);
	free(r);
}

static int wait_result(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int rc;

	do {
		rc = io_uring_wait_cqe(ring, &cqe);
	} while (rc == -EINTR);
	if (rc)
		return rc;
	rc = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return rc;
}

int go_ring_transfer(struct go_ring *r, int write, int fd, uintptr_t addr, size_t len,
		     int64_t offset, int index)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
	unsigned int n = len > INT_MAX ? INT_MAX & ~4095u : (unsigned int)len;
	int rc;

	if (!sqe)
		return -EAGAIN;
	if (write)
		io_uring_prep_write_fixed(sqe, fd, (void *)addr, n, (uint64_t)offset, index);
	else
		io_uring_prep_read_fixed(sqe, fd, (void *)addr, n, (uint64_t)offset, index);
	/* A signal of Go's scheduler may end the call; what it submitted is under way. */
	do {
		rc = io_uring_submit(&r->ring);
	} while (rc == -EINTR || rc == -EAGAIN);
	return rc < 0 ? rc : wait_result(&r->ring);
}
