// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ring and its buffer table: made by us, or a part of the caller's.
 *
 * The ring is reached through a descriptor of our own. The number in the
 * caller's struct may be closed and given to another ring while we use it, and
 * we would then empty that ring's slots; and liburing's own register calls go by
 * a per-thread index once the caller has registered the ring's descriptor.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <liburing.h>

#include "base/base.h"
#include "device/proc.h"
#include "device/uring/internal.h"

/* The largest table of all kernels so far. */
#define TABLE_MAX 16384u
/* For each huge page that is registered the kernel looks at all slots, .4 ns at each. */
#define TABLE_DEFAULT 4096u
/* Linux 6.3; not in the liburing of every distribution. */
#define USE_REGISTERED_RING (1u << 31)

/* ---- the ring ---- */

/*
 * A descriptor of the ring: our own or, where the application has closed that
 * and perhaps opened something else under the number, the caller's. Another
 * ring's table would take the registration, and the ring's slot keep its old
 * pages. An inode of 0: what was given at the open can't be told (tests).
 */
static int ring_fd(const struct uring *u)
{
	if (!u->id.ino || fd_same(u->fd, &u->id))
		return u->fd;
	return fd_same(u->ring->ring_fd, &u->id) ? u->ring->ring_fd : -1;
}

/*
 * For a registration: -1 where the caller has closed the ring, which our own
 * descriptor does not tell. One look at the caller's says so and that it is the
 * ring, so it is the one to use; the ring outlives the device, and so does not
 * become another one before it is.
 */
static int open_ring_fd(const struct uring *u)
{
	int fd = u->ring->ring_fd;

	if (fd < 0)
		return ring_fd(u);
	if (!u->id.ino)
		return fcntl(fd, F_GETFD) < 0 ? -1 : u->fd;
	return fd_same(fd, &u->id) ? fd : -1;
}

static int call_by(const struct uring *u, int fd, unsigned int op, void *arg,
		   unsigned int nr)
{
	int rc;

	if (u->fd < 0) {
		/* On another thread the same index is another ring. */
		if (gettid() != u->tid)
			return -EEXIST;
		fd = u->ring->enter_ring_fd;
		op |= USE_REGISTERED_RING;
	} else if (fd < 0) {
		return -EBADF;
	}
	do
		rc = io_uring_register((unsigned int)fd, op, arg, nr);
	while (rc == -EINTR);
	return rc;
}

static int ring_call(const struct uring *u, unsigned int op, void *arg,
		     unsigned int nr)
{
	return call_by(u, u->fd < 0 ? -1 : ring_fd(u), op, arg, nr);
}

/* At open: what the number in the caller's struct names may be no ring. */
static int first_call(const struct uring *u, unsigned int op, void *arg,
		      unsigned int nr)
{
	int rc = ring_call(u, op, arg, nr);

	return rc == -EOPNOTSUPP ? -EBADF : rc;
}

/* Put [addr, addr + len) into a slot; 0, 0 empties it. 1 or an error. */
int kedge__uring_update(const struct uring *u, uint32_t slot, void *addr,
		       size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	struct io_uring_rsrc_update2 up = {
		.offset = u->first + slot,
		.data = (uintptr_t)&iov,
		.nr = 1,
	};

	int fd = -1;

	if (u->fd >= 0)
		fd = addr ? open_ring_fd(u) : ring_fd(u);
	return call_by(u, fd, IORING_REGISTER_BUFFERS_UPDATE, &up, sizeof(up));
}

/*
 * Ask for a slot without touching it: the kernel looks at the table before it
 * reads the buffer's description, which it cannot, so -EFAULT is yes.
 */
int kedge__uring_probe(const struct uring *u, uint32_t index)
{
	struct io_uring_rsrc_update2 up = {
		.offset = index,
		.data = ~UINT64_C(15),
		.nr = 1,
	};

	return first_call(u, IORING_REGISTER_BUFFERS_UPDATE, &up, sizeof(up));
}

int kedge__uring_ring_open(struct uring *u, struct io_uring *ring)
{
	u->ring = ring;
	u->tid = gettid();
	u->unbound = kedge__proc_has_ipc_lock();
	u->fd = -1;
	/* liburing's mark of a ring that only has a registered index. */
	if (ring->ring_fd < 0 && ring->enter_ring_fd >= 0)
		return 0;
	u->fd = fcntl(ring->ring_fd, F_DUPFD_CLOEXEC, 0);
	if (u->fd < 0)
		return kedge_reason(-errno,
				    errno == EBADF ? "the ring is closed"
						   : "no file descriptor left: "
						     "raise ulimit -n");
	fd_note(u->fd, &u->id);
	return 0;
}

void kedge__uring_ring_close(struct uring *u)
{
	if (u->fd >= 0 && (!u->id.ino || fd_same(u->fd, &u->id)))
		close(u->fd);
}

/* ---- the table ---- */

static int make_table(const struct uring *u, uint32_t nr)
{
	struct io_uring_rsrc_register reg = {
		.nr = nr,
		.flags = IORING_RSRC_REGISTER_SPARSE,
	};
	struct iovec *empty;
	int rc;

	rc = first_call(u, IORING_REGISTER_BUFFERS2, &reg, sizeof(reg));
	if (rc != -EINVAL || nr > TABLE_MAX)
		return rc;
	/* Linux 5.13 to 5.18 take a table of empty buffers instead. */
	empty = calloc(nr, sizeof(*empty));
	if (!empty)
		return -ENOMEM;
	rc = ring_call(u, IORING_REGISTER_BUFFERS, empty, nr);
	free(empty);
	/* Older ones take no empty buffer. */
	return rc == -EFAULT ? -EOPNOTSUPP : rc;
}

void kedge__uring_table_drop(const struct uring *u)
{
	int rc = ring_call(u, IORING_UNREGISTER_BUFFERS, NULL, 0);

	/* -ENXIO: the caller did it. */
	if (rc < 0 && rc != -ENXIO)
		kedge__log(KEDGE_LOG_ERROR,
			   "io_uring did not unregister the buffer table "
			   "(error %d): what is in it stays pinned until the "
			   "ring is closed",
			   -rc);
}

int kedge__uring_table_new(struct uring *u, uint32_t slots)
{
	uint32_t nr = slots ? slots : TABLE_DEFAULT;
	int rc = make_table(u, nr);

	while (rc == -EINVAL && !slots && nr > 1) {
		nr /= 2;
		rc = make_table(u, nr);
	}
	if (rc)
		return kedge__uring_table_refused(u, rc, nr);
	rc = kedge__uring_probe(u, nr - 1);
	if (rc != -EFAULT) {
		kedge__uring_table_drop(u);
		return kedge__uring_table_refused(
			u, rc == -EINVAL ? -EOPNOTSUPP : rc, nr);
	}
	u->made = true;
	u->slots = nr;
	return 0;
}

/* The number of slots that the table has from @first on; @first is one. */
static uint32_t count_slots(const struct uring *u, uint32_t first)
{
	uint64_t in = first, out = (uint64_t)first + TABLE_MAX, mid;

	while (out < UINT32_MAX && kedge__uring_probe(u, (uint32_t)out) == -EFAULT) {
		in = out;
		out *= 2;
	}
	while (out - in > 1) {
		mid = in + (out - in) / 2;
		if (kedge__uring_probe(u, (uint32_t)mid) == -EFAULT)
			in = mid;
		else
			out = mid;
	}
	return (uint32_t)(out - first);
}

int kedge__uring_table_use(struct uring *u, uint32_t first, uint32_t slots)
{
	uint32_t last;
	int rc;

	if (__builtin_add_overflow(first, slots ? slots - 1 : 0, &last))
		return kedge_reason(-EINVAL, "slots %u + %u wrap", first,
				    slots);
	rc = kedge__uring_probe(u, last);
	if (rc == -ENXIO)
		return kedge_reason(-EINVAL, "the ring has no buffer table: "
					     "clear KEDGE_URING_TABLE_EXISTS");
	if (rc == -EINVAL && kedge__uring_probe(u, 0) == -EINVAL)
		return kedge__uring_table_refused(u, -EOPNOTSUPP, 0);
	if (rc == -EINVAL || rc == -EOVERFLOW)
		return kedge_reason(-EINVAL,
				    "slot %u is not in the ring's buffer table",
				    last);
	if (rc != -EFAULT)
		return kedge__uring_table_refused(u, rc, 0);
	u->first = first;
	u->slots = slots ? slots : count_slots(u, first);
	return 0;
}
