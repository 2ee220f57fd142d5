// SPDX-License-Identifier: BSD-2-Clause
/* The devices: io_uring is made to move a page through a registration. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <liburing.h>

#include <kedge/kedge.h>
#include <kedge/uring.h>

#include "base/base.h"
#include "tools/common/sys.h"
#include "tools/info/info.h"

#define MARK 0x6b

/* Why there is no ring at all, and what to do. */
static void no_ring(struct info_line *l, int rc)
{
	int64_t disabled = 0;

	sys_number("/proc/sys/kernel/io_uring_disabled", &disabled);
	l->state = INFO_MISSING;
	info_text(l, "io_uring_setup is refused: %s", strerror(-rc));
	if (disabled)
		info_todo(l, "kernel.io_uring_disabled is %" PRId64 ": sysctl "
			     "-w kernel.io_uring_disabled=0%s", disabled,
			  disabled == 1 ? ", or add this user to the group "
					  "kernel.io_uring_group" : "");
	else if (rc == -ENOMEM)
		info_todo(l, "raise RLIMIT_MEMLOCK: ulimit -l, or "
			     "LimitMEMLOCK= in the service");
	else if (sys_seccomp())
		info_todo(l, "a seccomp filter is in force: allow "
			     "io_uring_setup, io_uring_enter and "
			     "io_uring_register in the container's profile");
	else if (rc == -ENOSYS)
		info_todo(l, "use a kernel with io_uring (Linux 5.13 or "
			     "later, CONFIG_IO_URING=y)");
}

/* A page of @fd is read into @buf, which is registered. */
struct transfer {
	struct io_uring *ring;
	int fd;
	uint8_t *buf;
	size_t len;
};

/* One page of the file through the registered buffer. */
static int read_fixed(void *arg, const struct kedge_mr *mr)
{
	const struct transfer *t = arg;
	struct io_uring_sqe *sqe = io_uring_get_sqe(t->ring);
	struct io_uring_cqe *cqe;
	int rc;

	io_uring_prep_read_fixed(sqe, t->fd, t->buf, (unsigned int)t->len, 0,
				 (int)mr->device_handle);
	rc = io_uring_submit_and_wait(t->ring, 1);
	if (rc < 0)
		return rc;
	rc = io_uring_wait_cqe(t->ring, &cqe);
	if (rc < 0)
		return rc;
	rc = cqe->res == (int)t->len ? 0 : cqe->res < 0 ? cqe->res : -EIO;
	io_uring_cqe_seen(t->ring, cqe);
	if (!rc && (t->buf[0] != MARK || t->buf[t->len - 1] != MARK))
		rc = kedge_reason(-EIO, "what it read did not arrive in the "
					"buffer");
	return rc;
}

static int try_transfer(struct io_uring *ring, struct kedge_device *dev)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *buf = aligned_alloc(len, len);
	struct transfer t = { .ring = ring, .buf = buf, .len = len };
	int fd, rc;

	if (!buf)
		return -ENOMEM;
	fd = memfd_create("kedge-info", MFD_CLOEXEC);
	if (fd < 0) {
		rc = -errno;
		goto free_buf;
	}
	memset(buf, MARK, len);
	if (write(fd, buf, len) != (ssize_t)len) {
		rc = -EIO;
		goto close_fd;
	}
	memset(buf, 0, len);
	t.fd = fd;
	rc = info_register(dev, buf, len, read_fixed, &t);
close_fd:
	close(fd);
free_buf:
	free(buf);
	return rc;
}

static void describe(struct info_line *l, const struct kedge_device_attr *a)
{
	char slots[UTIL_HUMAN], max[UTIL_HUMAN], chunk[UTIL_HUMAN];

	info_text(l, "moved a page through a registered buffer; %s "
		     "registrations of up to %s, large areas in chunks of %s",
		  util_human_count(slots, a->max_regions),
		  util_human_bytes(max, a->max_len),
		  util_human_bytes(chunk, a->chunk_len));
	info_device_data(l, a);
}

static int try_device(struct io_uring *ring, struct info_line *l)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	struct kedge_device *dev;
	int rc;

	rc = kedge_device_open_uring(ring, NULL, &dev);
	if (rc)
		return rc;
	rc = kedge_device_query(dev, &attr);
	if (!rc)
		rc = try_transfer(ring, dev);
	if (!rc)
		describe(l, &attr);
	kedge_device_close(dev);
	return rc;
}

static void add_uring(struct info *info)
{
	struct info_line *l = info_add(info, INFO_DEVICES, "uring", INFO_OK);
	struct io_uring ring;
	int rc;

	rc = io_uring_queue_init(4, &ring, 0);
	if (rc) {
		no_ring(l, rc);
		return;
	}
	rc = try_device(&ring, l);
	if (rc) {
		l->state = INFO_MISSING;
		info_text(l, "%s", kedge_strerror(rc));
	}
	io_uring_queue_exit(&ring);
}

void info_devices(struct info *info)
{
	add_uring(info);
	info_verbs(info);
}
