// SPDX-License-Identifier: BSD-2-Clause
/* The owner of kedge perf --region: it changes its region as it is told, and takes the time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/base.h"
#include "tools/perf/region/region.h"

#define SOON_MS 10000

/* The place of the machine's number in a handle. */
#define MACHINE_AT 16

struct owner {
	struct kedge_region *region;
	struct kedge_region **other;
	uint64_t others;
	struct kedge_handle *handle;
	uint64_t handles;
	char *copy;
	const char *node;
	struct raw_verbs *verbs;
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
	const struct kedge_handle_opts how = { .size = sizeof(how), .node = o->node };
	const uint64_t start = clock_ns(), first = o->handles;
	int rc = 0;

	for (; o->handles < n && !rc; o->handles += !rc)
		rc = kedge_region_advertise(o->region, &how, &o->handle[o->handles]);
	/* The other process is on this host, and would have the region mapped. */
	if (o->node && !rc)
		o->handle[o->handles - 1].bytes[MACHINE_AT] ^= 1;
	rep->ns = (double)(clock_ns() - start) / (double)(n - first);
	rep->handle = o->handle[o->handles - 1];
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

static int serve(struct owner *o, struct region_rep *rep)
{
	const struct kedge_handle_opts how = { .size = sizeof(how), .flags = KEDGE_HANDLE_SERVED };

	return kedge_region_advertise(o->region, &how, &rep->handle);
}

/* Small ones, each with a handle, of which the last one is told. */
static int create(struct owner *o, uint64_t n, struct region_rep *rep)
{
	const struct kedge_region_opts small = { .size = sizeof(small), .max_len = 65536 };
	const uint64_t start = clock_ns(), first = o->others;
	int rc = 0;

	for (; o->others < n && !rc; o->others += !rc) {
		rc = kedge_region_create(1, &small, &o->other[o->others]);
		if (rc)
			break;
		rc = kedge_region_advertise(o->other[o->others], NULL, &rep->handle);
		if (rc)
			kedge_region_close(o->other[o->others]);
	}
	rep->ns = (double)(clock_ns() - start) / (double)(n - first);
	return rc;
}

static int close_others(struct owner *o, uint64_t n, struct region_rep *rep)
{
	const uint64_t start = clock_ns(), first = o->others;

	while (o->others > n)
		kedge_region_close(o->other[--o->others]);
	rep->ns = (double)(clock_ns() - start) / (double)(first - n);
	return 0;
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
	case REG_SERVE:
		return serve(o, rep);
	case REG_CREATE:
		return create(o, req->n, rep);
	case REG_CLOSE:
		return close_others(o, req->n, rep);
	}
	return -EINVAL;
}

static int answer(int fd, int rc, struct region_rep *rep)
{
	rep->rc = rc;
	if (rc)
		snprintf(rep->why, sizeof(rep->why), "%s", kedge_strerror(rc));
	return proc_send(fd, rep, sizeof(*rep));
}

static int begin(struct owner *o, size_t len, struct region_rep *rep)
{
	const size_t copy = o->node ? len : REG_MOVED;
	int rc = kedge_region_create(len, NULL, &o->region);

	o->handle = calloc(REG_HANDLES, sizeof(*o->handle));
	o->other = calloc(REG_REGIONS, sizeof(*o->other));
	o->copy = malloc(copy);
	if (!rc && (!o->handle || !o->copy || !o->other))
		rc = -ENOMEM;
	if (rc)
		return rc;
	memset(o->copy, 1, copy);
	return advertise(o, 1, rep);
}

/* Once the other side has heard of the region: it meets this one then. */
static int begin_verbs(int fd, struct owner *o, const struct region_owner *how)
{
	struct region_rep rep = { .rc = 0 };
	int rc = raw_verbs_open(o->node, how->raw[1], o->copy, how->len, &o->verbs);

	return answer(fd, rc, &rep) ? -EPIPE : rc;
}

void region_owner_child(int fd, void *arg)
{
	const struct region_owner *how = arg;
	struct owner o = { .node = how->node };
	struct region_rep rep = { .rc = 0 };
	struct region_req req;
	struct rlimit fds;
	int rc;

	proc_pin(1);
	/* A region is a descriptor of a thread of kedge's. */
	if (!getrlimit(RLIMIT_NOFILE, &fds)) {
		fds.rlim_cur = fds.rlim_max;
		setrlimit(RLIMIT_NOFILE, &fds);
	}
	rc = begin(&o, how->len, &rep);
	if (!rc && !how->node)
		rc = raw_answer(how->raw[1], how->len);
	if (answer(fd, rc, &rep) || rc || (how->node && begin_verbs(fd, &o, how)))
		return;
	while (!proc_recv(fd, &req, sizeof(req))) {
		memset(&rep, 0, sizeof(rep));
		if (answer(fd, act(&o, &req, &rep), &rep))
			return;
	}
}
