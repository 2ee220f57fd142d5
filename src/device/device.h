/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device as the library holds it: its author's ops table, copied and checked
 * once, and the context that every op is handed. What the ops promise is in
 * <kedge/device.h>; there is no lock, because each op may run on any thread.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <kedge/device.h>

/* The table at the end: it may grow. */
struct kedge_device {
	void *ctx;
	struct kedge_device_ops ops;
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

/* End what device_reg() made. @mr is only read. 0, or a negative errno, and it has not ended. */
static inline int device_dereg(struct kedge_device *dev,
			       const struct kedge_device_mr *mr)
{
	if (dev->ops.try_dereg)
		return dev->ops.try_dereg(dev->ctx, mr);
	dev->ops.dereg(dev->ctx, mr);
	return 0;
}

/* As the op of that name; -EOPNOTSUPP where the device lacks it. */
static inline int device_replace(struct kedge_device *dev,
				 struct kedge_device_mr *mr, void *addr,
				 size_t len, void *changed, size_t changed_len)
{
	if (!dev->ops.replace)
		return -EOPNOTSUPP;
	return dev->ops.replace(dev->ctx, mr, addr, len, changed, changed_len);
}

static inline int device_bind(struct kedge_device *dev,
			      const struct kedge_device_mr *mr, void *addr,
			      size_t len, uint32_t access,
			      struct kedge_device_mr *window)
{
	*window = (struct kedge_device_mr){ 0 };
	return dev->ops.bind(dev->ctx, mr, addr, len, access, window);
}

static inline void device_unbind(struct kedge_device *dev,
				 const struct kedge_device_mr *window)
{
	dev->ops.unbind(dev->ctx, window);
}

/* As the op of that name, which the device has. */
static inline void device_preserve(struct kedge_device *dev,
				   const struct kedge_device_mr *mr,
				   uint64_t start, uint64_t end, uint32_t flags)
{
	dev->ops.preserve(dev->ctx, mr, (void *)(uintptr_t)start, end - start,
			  flags);
}

#endif /* DEVICE_DEVICE_H */
