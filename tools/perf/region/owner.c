// SPDX-License-Identifier: BSD-2-Clause
/* The owner of kedge perf --region: it changes its region as it is told, and takes the time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "tools/perf/region/region.h"

#define SOON_MS 10000

struct owner {
	struct kedge_region *region;
	struct kedge_handle *handle;
	uint64_t handles;
	char *copy;
};

static int move(struct owner *o, struct region_rep *rep)
{
	struct kedge_region_info i = { .size = sizeof(i) };
	uint64_t pause = 0, start;
	int rc = kedge_region_query(o->region, &i);

	if (!rc)
		rc = kedge_region_move(o->region, NULL, SOON_MS, &pause);
	if (rc)
		return rc;
	rep->ns = (double)pause;
	/* Once before: the first use of a mapping costs something by itself. */
	memcpy(o->copy, (const void *)(uintptr_t)i.addr, REG_MOVED);
	start = clock_ns();
	memcpy(o->copy, (const void *)(uintptr_t)i.addr, REG_MOVED);
	rep->beside_ns = (double)(clock_ns() - start);
	return 0;
}

static int grow(struct owner *o, uint64_t len, struct region_rep *rep)
{
	const uint64_t start = clock_ns();
	int rc = kedge_region_grow(o->region, len);

	rep->ns = (double)(clock_ns() - start);
	return rc;
}

static int advertise(struct owner *o, uint64_t n, struct region_rep *rep)
{
	const uint64_t start = clock_ns(), first = o->handles;
	int rc = 0;

	for (; o->handles < n && !rc; o->handles += !rc)
		rc = kedge_region_advertise(o->region, NULL, &o->handle[o->handles]);
	rep->ns = (double)(clock_ns() - start) / (double)(n - first);
	return rc;
}

static int revoke(struct owner *o, uint64_t n, struct region_rep *rep)
{
	const uint64_t start = clock_ns(), first = o->handles;
	int rc = 0;

	for (; o->handles > n && !rc; o->handles -= !rc)
		rc = kedge_region_revoke(o->region, &o->handle[o->handles - 1]);
	rep->ns = (double)(clock_ns() - start) / (double)(first - n);
	return rc;
}

static int act(struct owner *o, const struct region_req *req, struct region_rep *rep)
{
	switch (req->kind) {
	case REG_MOVE:
		return move(o, rep);
	case REG_GROW:
		return grow(o, req->n, rep);
	case REG_ADVERTISE:
		return advertise(o, req->n, rep);
	case REG_REVOKE:
		return revoke(o, req->n, rep);
	case REG_TRIM:
		return kedge_region_trim(o->region, req->n);
	}
	return -EINVAL;
}

static int answer(int fd, struct owner *o, int rc, struct region_rep *rep)
{
	rep->rc = rc;
	if (rc)
		snprintf(rep->why, sizeof(rep->why), "%s", kedge_strerror(rc));
	if (o->handles)
		rep->handle = o->handle[o->handles - 1];
	return proc_send(fd, rep, sizeof(*rep));
}

static int begin(struct owner *o, size_t len, struct region_rep *rep)
{
	int rc = kedge_region_create(len, NULL, &o->region);

	o->handle = calloc(REG_HANDLES, sizeof(*o->handle));
	o->copy = malloc(REG_MOVED);
	if (!rc && (!o->handle || !o->copy))
		rc = -ENOMEM;
	if (rc)
		return rc;
	memset(o->copy, 1, REG_MOVED);
	return advertise(o, 1, rep);
}

void region_owner_child(int fd, void *arg)
{
	const struct region_owner *how = arg;
	struct owner o = { .region = NULL };
	struct region_rep rep = { .rc = 0 };
	struct region_req req;
	int rc;

	proc_pin(1);
	rc = begin(&o, how->len, &rep);
	if (answer(fd, &o, rc, &rep) || rc)
		return;
	while (!proc_recv(fd, &req, sizeof(req))) {
		memset(&rep, 0, sizeof(rep));
		if (answer(fd, &o, act(&o, &req, &rep), &rep))
			return;
	}
}
