// SPDX-License-Identifier: BSD-2-Clause
/* Files that lose their pages behind the mapping's back. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/torture/case.h"

/* Bits of an event's arg. */
#define FILE_DISK    (1 << 0) /* a file; else a memfd */
#define FILE_PRIVATE (1 << 1)

/* FALLOC_FL_*, as the kernel numbers them */
#define KEEP_SIZE  0x01
#define PUNCH_HOLE 0x02
#define COLLAPSE   0x08
#define ZERO_RANGE 0x10

static int open_disk(struct run *x)
{
	static const char *const dirs[] = { "/var/tmp", "/tmp", "." };
	const char *dir = getenv("TMPDIR");
	size_t i;

	if (dir && *dir)
		x->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	for (i = 0; x->fd < 0 && i < sizeof(dirs) / sizeof(dirs[0]); i++)
		x->fd = open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (x->fd < 0)
		return why(x, -EOPNOTSUPP, "no folder takes a nameless file");
	if (ftruncate(x->fd, (off_t)x->len))
		return why(x, -errno, "ftruncate: %s", strerror(errno));
	return 0;
}

/* Kernels differ in which mapped files may be pinned. */
static int try_device(struct run *x)
{
	struct rig *rig = &x->lane->t->rig;
	struct ref ref;
	int rc = rig_get(rig, x->addr, x->len, &ref);

	if (!rc)
		rig_put(rig, &ref);
	if (rc == -EOPNOTSUPP || rc == -EFAULT)
		return why(x, -EOPNOTSUPP, "the device takes no such memory");
	return 0;
}

static int setup_file(struct run *x)
{
	int rc = anon_setup(x);

	if (!rc)
		rc = x->ev->arg & FILE_DISK ? open_disk(x) : memfd_setup(x);
	if (rc)
		return rc;
	munmap(x->addr, x->len);
	rc = hole_fill_fd(x, 0, x->len,
			  x->ev->arg & FILE_PRIVATE ? MAP_PRIVATE : MAP_SHARED,
			  x->fd);
	return rc ? rc : try_device(x);
}

static int called(struct run *x, const char *what, long rc)
{
	if (!rc)
		return 0;
	/* IORING_OP_FTRUNCATE is of Linux 6.9. */
	if (x->row->route == ROUTE_URING && rc == -EINVAL)
		rc = -EOPNOTSUPP;
	return why(x, (int)rc, "%s: %s", what, strerror((int)-rc));
}

static int fire_truncate(struct run *x)
{
	long rc = CALL(x, SYS_ftruncate, x->fd, x->hot.off, 0, 0, 0, 0);

	if (!rc)
		rc = CALL(x, SYS_ftruncate, x->fd, x->len, 0, 0, 0, 0);
	return called(x, "ftruncate", rc);
}

static int fire_punch(struct run *x)
{
	return called(x, "fallocate",
		      CALL(x, SYS_fallocate, x->fd, PUNCH_HOLE | KEEP_SIZE,
			   x->hot.off, x->hot.len, 0, 0));
}

static int fire_zero(struct run *x)
{
	return called(x, "fallocate",
		      CALL(x, SYS_fallocate, x->fd, ZERO_RANGE | KEEP_SIZE,
			   x->hot.off, x->hot.len, 0, 0));
}

/* Pages behind the part that goes move down. */
static int fire_collapse(struct run *x)
{
	long rc;

	/* It can't take a file's last page along. */
	if (x->hot.off + x->hot.len == x->len)
		x->hot.len -= x->unit;
	if (!x->hot.len) {
		x->hot.off -= x->unit;
		x->hot.len = x->unit;
	}
	rc = CALL(x, SYS_fallocate, x->fd, COLLAPSE, x->hot.off, x->hot.len, 0,
		  0);
	if (!rc)
		rc = CALL(x, SYS_ftruncate, x->fd, x->len, 0, 0, 0, 0);
	x->hot.len = x->len - x->hot.off;
	return called(x, "fallocate", rc);
}

#define FILED(ev_name, ev_flags, ev_arg, ev_fire)                       \
	{                                                               \
		.name = ev_name, .routes = ROUTES_FILE, .pages = P(4K), \
		.flags = ev_flags | EV_PART, .arg = ev_arg,             \
		.setup = setup_file, .fire = ev_fire, .fini = anon_fini \
	}

/* A private mapping keeps the copies that were written to when a hole is
 * punched, and loses them when the file is truncated. */
const struct event ev_file[] = {
	FILED("ftruncate-memfd", EV_STALE, 0, fire_truncate),
	FILED("ftruncate-memfd-private", EV_STALE, FILE_PRIVATE, fire_truncate),
	FILED("ftruncate-file", EV_STALE, FILE_DISK, fire_truncate),
	FILED("ftruncate-file-private", EV_STALE, FILE_DISK | FILE_PRIVATE,
	      fire_truncate),
	FILED("punch-memfd", EV_STALE, 0, fire_punch),
	FILED("punch-memfd-private", 0, FILE_PRIVATE, fire_punch),
	FILED("punch-file", EV_STALE, FILE_DISK, fire_punch),
	FILED("punch-file-private", 0, FILE_DISK | FILE_PRIVATE, fire_punch),
	FILED("zero-range-file", EV_STALE, FILE_DISK, fire_zero),
	FILED("collapse-range-file", EV_STALE, FILE_DISK, fire_collapse),
	{ .name = NULL },
};
