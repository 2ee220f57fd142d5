// SPDX-License-Identifier: BSD-2-Clause
/*
 * System V shared memory. Segments are marked for removal as soon as a keeper
 * is attached, so that none can be left behind.
 */
#include <errno.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "tools/torture/case.h"

static int segment(struct run *x, unsigned int i, size_t len)
{
	int id = shmget(IPC_PRIVATE, len, IPC_CREAT | 0600);
	void *keep;
	int err;

	if (id < 0)
		return why(x, -EOPNOTSUPP, "shmget: %s", strerror(errno));
	keep = shmat(id, NULL, 0);
	err = errno;
	shmctl(id, IPC_RMID, NULL);
	if (keep == (void *)-1)
		return why(x, -err, "shmat: %s", strerror(err));
	x->shm[i] = id;
	x->keep[i] = keep;
	return 0;
}

static void shm_fini(struct run *x)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (x->keep[i])
			shmdt(x->keep[i]);
	x->keep[0] = NULL;
	x->keep[1] = NULL;
	anon_fini(x);
}

static int setup_segments(struct run *x, size_t len)
{
	int rc = segment(x, 0, len);

	return rc ? rc : segment(x, 1, len);
}

/* Attach the segment whose turn it is where there is a hole. */
static int attach(struct run *x)
{
	long got;

	x->state = !x->state;
	got = CALL(x, SYS_shmat, x->shm[x->state], x->addr, 0, 0, 0, 0);
	if (got == (long)(uintptr_t)x->addr)
		return 0;
	if (got != -EINVAL)
		return why(x, (int)got, "shmat: %s", strerror((int)-got));
	x->hole = (struct span){ 0, x->len };
	return EV_AGAIN;
}

static int setup_attached(struct run *x)
{
	int rc = anon_setup(x);

	if (!rc)
		rc = setup_segments(x, x->len);
	if (rc)
		return rc;
	munmap(x->addr, x->len);
	return attach(x);
}

static int detach(struct run *x)
{
	long rc = CALL(x, SYS_shmdt, x->addr, 0, 0, 0, 0, 0);

	return rc ? why(x, (int)rc, "shmdt: %s", strerror((int)-rc)) : 0;
}

static int fire_shmdt(struct run *x)
{
	int rc = detach(x);

	return rc ? rc : attach(x);
}

/* Anonymous memory in its place, and the segment back before the next. */
static int prep_attached(struct run *x)
{
	if (!x->size)
		return 0;
	x->size = 0;
	munmap(x->addr, x->len);
	return attach(x);
}

static int fire_shmdt_anon(struct run *x)
{
	int rc = detach(x);

	x->size = 1;
	return rc ? rc : hole_fill(x, 0, x->len);
}

static int setup_remap(struct run *x)
{
	int rc = anon_setup(x);

	return rc ? rc : setup_segments(x, x->unit);
}

static int prep_remap(struct run *x)
{
	return anon_over(x, x->addr, x->len);
}

/* One page of it becomes a segment. */
static int fire_remap(struct run *x)
{
	uint8_t *at = x->addr + x->hot.off;
	long got;

	x->hot.len = x->unit;
	x->state = !x->state;
	got = CALL(x, SYS_shmat, x->shm[x->state], at, SHM_REMAP, 0, 0, 0);
	if (got == (long)(uintptr_t)at)
		return 0;
	return why(x, (int)got, "shmat: %s", strerror((int)-got));
}

const struct event ev_shm[] = {
	{ .name = "shmdt-shmat",
	  .routes = ROUTES_CALL,
	  .pages = P(4K),
	  .flags = EV_STALE,
	  .setup = setup_attached,
	  .fire = fire_shmdt,
	  .fini = shm_fini },
	{ .name = "shmdt-mmap",
	  .routes = ROUTES_CALL,
	  .pages = P(4K),
	  .flags = EV_STALE,
	  .setup = setup_attached,
	  .prep = prep_attached,
	  .fire = fire_shmdt_anon,
	  .fini = shm_fini },
	{ .name = "shmat-remap",
	  .routes = ROUTES_CALL,
	  .pages = P(4K) | P(THP),
	  .flags = EV_STALE | EV_PART | EV_REMAPSHM,
	  .setup = setup_remap,
	  .prep = prep_remap,
	  .fire = fire_remap,
	  .fini = shm_fini },
	{ .name = NULL },
};
