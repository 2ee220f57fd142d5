// SPDX-License-Identifier: BSD-2-Clause
/*
 * Devices: what can register memory, behind the ops table of its author. The
 * table is copied and checked once, at open, so that it may be older or newer
 * than this library and needs no check on the way to a registration.
 */
#include <stdlib.h>

#include "base/base.h"
#include "device/device.h"

#define OPS_V1	STRUCT_END(struct kedge_device_ops, close)
#define ATTR_V1 STRUCT_END(struct kedge_device_attr, reserved)

static int check_ops(const struct kedge_device_ops *ops)
{
	if (ops->reserved)
		return kedge_reason(-E2BIG,
				    "the device ops set a field of a newer "
				    "version: .reserved must be 0");
	if (!ops->name)
		return kedge_reason(-EINVAL, "the device ops have no .name");
	if (!ops->reg || (!ops->dereg && !ops->try_dereg))
		return kedge_reason(-EINVAL, "device %s has no .%s op",
				    ops->name, ops->reg ? "dereg" : "reg");
	if (!ops->bind != !ops->unbind)
		return kedge_reason(-EINVAL, "device %s has no .%s op",
				    ops->name, ops->bind ? "unbind" : "bind");
	return 0;
}

int kedge_device_open(const struct kedge_device_ops *user, void *ctx,
		      struct kedge_device **out)
{
	struct kedge_device_ops ops;
	struct kedge_device *dev;
	int rc;

	if (!user || !out)
		return kedge_reason(-EINVAL, "%s is NULL",
				    user ? "the result pointer"
					 : "the device ops pointer");
	rc = kedge__opts_copy(&ops, sizeof(ops), OPS_V1, user);
	if (rc)
		return rc;
	rc = check_ops(&ops);
	if (rc)
		return rc;

	dev = malloc(sizeof(*dev));
	if (!dev)
		return kedge_reason(-ENOMEM, "no memory for device %s",
				    ops.name);
	dev->ops = ops;
	dev->ops.size = sizeof(ops);
	dev->ctx = ctx;
	*out = dev;
	return 0;
}

void kedge_device_close(struct kedge_device *dev)
{
	if (!dev)
		return;
	if (dev->ops.close)
		dev->ops.close(dev->ctx);
	free(dev);
}

int kedge_device_query(struct kedge_device *dev, struct kedge_device_attr *user)
{
	/* Ours, not the caller's: the op may fill all that it knows of. */
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	uint32_t have;
	int rc;

	if (!dev || !user)
		return kedge_reason(-EINVAL, "%s is NULL",
				    dev ? "the result pointer" : "the device");
	memcpy(&have, user, sizeof(have));
	if (have < ATTR_V1)
		return kedge_reason(-EINVAL,
				    "result of %u bytes: set .size to sizeof",
				    have);
	if (dev->ops.query) {
		rc = dev->ops.query(dev->ctx, &attr);
		if (rc)
			return rc;
	} else {
		/* A device without query refuses in reg what it cannot give. */
		attr.access = KEDGE_ACCESS_ALL;
	}
	return kedge__info_copy(user, ATTR_V1, &attr, sizeof(attr));
}

const char *kedge_device_name(const struct kedge_device *dev)
{
	return dev ? dev->ops.name : "";
}
