// SPDX-License-Identifier: BSD-2-Clause
/* Devices: one that registers nothing, and those that are written in Go. */
#include <errno.h>
#include <string.h>

#include "_cgo_export.h"
#include "shim.h"

static struct go_device_opened opened(const struct kedge_device_ops *ops, void *ctx)
{
	struct go_device_opened o = { 0 };

	o.rc = kedge_device_open(ops, ctx, &o.dev);
	if (o.rc)
		o.why = strdup(kedge_strerror(o.rc));
	return o;
}

static int memory_reg(void *ctx, void *addr, size_t len, uint32_t access,
		      struct kedge_device_mr *mr)
{
	static _Atomic uint64_t number;

	/* relaxed: it is to differ from others, and orders nothing. */
	mr->handle = atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
	mr->offset = (uintptr_t)addr;
	return 0;
}

static void memory_dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

struct go_device_opened go_device_memory(void)
{
	const struct kedge_device_ops ops = {
		.size = sizeof(ops), .name = "memory",
		.reg = memory_reg, .dereg = memory_dereg,
	};

	return opened(&ops, NULL);
}

/* The device's own: the number of its object in Go, and a limit. */
struct go_device {
	uintptr_t id;
	uint64_t max_len;
};

static int reg(void *ctx, void *addr, size_t len, uint32_t access,
	       struct kedge_device_mr *mr)
{
	const struct go_device *d = ctx;
	uint64_t handle = 0, offset = 0;
	int rc = goDeviceReg(d->id, (uintptr_t)addr, len, access, &handle, &offset);

	mr->handle = handle;
	mr->offset = offset;
	return rc;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
	const struct go_device *d = ctx;

	goDeviceDereg(d->id, mr->handle);
}

static int query(void *ctx, struct kedge_device_attr *attr)
{
	const struct go_device *d = ctx;

	attr->max_len = d->max_len;
	attr->access = KEDGE_ACCESS_ALL;
	return 0;
}

struct go_device_opened go_device_open(uintptr_t id, uint64_t max_len)
{
	const struct kedge_device_ops ops = {
		.size = sizeof(ops), .name = "go",
		.reg = reg, .dereg = dereg, .query = query, .close = free,
	};
	struct go_device *d = malloc(sizeof(*d));
	struct go_device_opened o = { .rc = -ENOMEM };

	if (!d)
		return o;
	d->id = id;
	d->max_len = max_len;
	o = opened(&ops, d);
	if (o.rc)
		free(d);
	return o;
}

void go_device_why(int rc, const char *why)
{
	kedge_reason(rc, "%s", why);
}
