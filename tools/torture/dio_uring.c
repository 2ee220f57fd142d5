// SPDX-License-Identifier: BSD-2-Clause
/*
 * Transfers with fixed buffers. The file on the other end is a pipe: the
 * kernel serves it on the submitting thread, where a memfd would wake a
 * worker for each. One chain of linked requests does all of a round's words.
 *
 * The pipes don't block, so that a chain that breaks off can't hang the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <kedge/uring.h>

#include "tools/torture/dio.h"

#define RING_ENTRIES 64

static int uring_rig_open(struct rig *rig, const char *name)
{
	int rc;

	if (name)
		return kedge_reason(-EINVAL, "io_uring has no name");
	rc = io_uring_queue_init(RING_ENTRIES, &rig->ring, 0);
	if (rc)
		return kedge_reason(rc, "io_uring_setup: %s; the test needs "
				    "io_uring", strerror(-rc));
	return 0;
}

static void uring_rig_close(struct rig *rig)
{
	io_uring_queue_exit(&rig->ring);
}

static int uring_kedge_open(struct rig *rig, struct kedge_device **dev)
{
	return kedge_device_open_uring(&rig->ring, NULL, dev);
}

static int uring_table_open(struct rig *rig, unsigned int slots)
{
	return io_uring_register_buffers_sparse(&rig->ring, slots);
}

static void uring_table_close(struct rig *rig)
{
	io_uring_unregister_buffers(&rig->ring);
}

static int uring_table_set(struct rig *rig, unsigned int slot, const void *addr,
			   size_t len, uint64_t *handle)
{
	struct iovec iov = { (void *)(uintptr_t)addr, len };
	__u64 tag = 0;
	int rc = io_uring_register_buffers_update_tag(&rig->ring, slot, &iov,
						      &tag, 1);

	*handle = slot;
	return rc < 0 ? rc : 0;
}

static int uring_open(struct rig *rig, struct dio_port *port)
{
	int err;

	if (pipe2(port->out, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	if (pipe2(port->in, O_CLOEXEC | O_NONBLOCK)) {
		err = -errno;
		close(port->out[0]);
		close(port->out[1]);
		return err;
	}
	return 0;
}

static void uring_close(struct dio_port *port)
{
	close(port->out[0]);
	close(port->out[1]);
	close(port->in[0]);
	close(port->in[1]);
}

static void drain(int fd)
{
	uint64_t junk[DIO_MAX];

	while (read(fd, junk, sizeof(junk)) > 0 || errno == EINTR)
		;
}

static struct io_uring_sqe *sqe_linked(struct io_uring *ring, bool last)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	/* The ring has room for every chain: it is empty between chains. */
	memset(sqe, 0, sizeof(*sqe));
	sqe->user_data = last;
	return sqe;
}

static void queue(struct rig *rig, struct dio_port *port, const struct ref *ref,
		  uint8_t *const *at, unsigned int cnt)
{
	struct io_uring_sqe *sqe;
	unsigned int i;
	uint8_t *pos;

	for (i = 0; i < cnt; i++) {
		pos = (uint8_t *)((uintptr_t)at[i] + ref->shift);
		sqe = sqe_linked(&rig->ring, false);
		io_uring_prep_write_fixed(sqe, port->out[1], pos,
					  sizeof(uint64_t), (uint64_t)-1,
					  (int)ref->handle);
		sqe->flags |= IOSQE_IO_LINK;
		sqe = sqe_linked(&rig->ring, i + 1 == cnt);
		io_uring_prep_read_fixed(sqe, port->in[0], pos,
					 sizeof(uint64_t), (uint64_t)-1,
					 (int)ref->handle);
		if (i + 1 < cnt)
			sqe->flags |= IOSQE_IO_LINK;
	}
}

/* Every completion of the chain; the first failure is what it returns. */
static int reap(struct io_uring *ring, unsigned int cnt)
{
	struct io_uring_cqe *cqe;
	int rc, status = 0;

	while (cnt) {
		rc = io_uring_wait_cqe(ring, &cqe);
		if (rc == -EINTR || rc == -EAGAIN)
			continue;
		if (rc)
			return rc;
		/* The request that broke the chain counts, not those that it cancelled. */
		if (cqe->res != sizeof(uint64_t) &&
		    (!status || status == -ECANCELED))
			status = cqe->res < 0 ? cqe->res : -EIO;
		io_uring_cqe_seen(ring, cqe);
		cnt--;
	}
	return status;
}

static int transfer(struct rig *rig, struct dio_port *port,
		    const struct ref *ref, uint8_t *const *at, unsigned int cnt)
{
	int rc;

	pthread_mutex_lock(&rig->ring_lock);
	queue(rig, port, ref, at, cnt);
	do
		rc = io_uring_submit_and_wait(&rig->ring, 2 * cnt);
	while (rc == -EINTR || rc == -EAGAIN);
	rc = rc < 0 ? rc : reap(&rig->ring, 2 * cnt);
	pthread_mutex_unlock(&rig->ring_lock);
	return rc;
}

static int uring_move(struct rig *rig, struct dio_port *port,
		      const struct ref *ref, uint8_t *const *at,
		      const uint64_t *in, uint64_t *out, unsigned int cnt)
{
	const ssize_t bytes = (ssize_t)(cnt * sizeof(uint64_t));
	int rc = 0;

	if (write(port->in[1], in, (size_t)bytes) != bytes)
		rc = -EIO;
	if (!rc)
		rc = transfer(rig, port, ref, at, cnt);
	if (!rc && read(port->out[0], out, (size_t)bytes) != bytes)
		rc = -EIO;
	if (rc) {
		drain(port->in[0]);
		drain(port->out[0]);
	}
	return rc;
}

const struct dio_ops dio_uring = {
	.name = "uring",
	.access = KEDGE_ACCESS_LOCAL_WRITE,
	.rig_open = uring_rig_open,
	.rig_close = uring_rig_close,
	.kedge_open = uring_kedge_open,
	.table_open = uring_table_open,
	.table_close = uring_table_close,
	.table_set = uring_table_set,
	.open = uring_open,
	.close = uring_close,
	.move = uring_move,
};
