/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device as the library holds it: its author's ops table, copied and checked
 * once, and the context that every op is handed. What the ops promise is in
 * <kedge/device.h>; nothing is locked here, because each op may run on any
 * thread.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <kedge/device.h>

struct kedge_device {
	struct kedge_device_ops ops;
	void *ctx;
};

/*
 * Register the pages [addr, addr + len). 0 or a negative errno; @mr is only
 * meaningful after 0, where fields that the device left alone are 0.
 */
static inline int device_reg(struct kedge_device *dev, void *addr, size_t len,
			     uint32_t access, struct kedge_device_mr *mr)
{
	*mr = (struct kedge_device_mr){ 0 };
	return dev->ops.reg(dev->ctx, addr, len, access, mr);
}

/* End what device_reg() made. @mr is only read. */
static inline void device_dereg(struct kedge_device *dev,
				const struct kedge_device_mr *mr)
{
	dev->ops.dereg(dev->ctx, mr);
}

#endif /* DEVICE_DEVICE_H */
