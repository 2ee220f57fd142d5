// SPDX-License-Identifier: BSD-2-Clause
/* A plug-in that uses a cache, and has closed all when it returns. */
#include <stdint.h>

#include <kedge/kedge.h>

static int reg(void *ctx, void *addr, size_t len, uint32_t access,
	       struct kedge_device_mr *mr)
{
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static const struct kedge_device_ops ops = {
	.size = sizeof(ops),
	.name = "plugin",
	.reg = reg,
	.dereg = dereg,
};

__attribute__((visibility("default"))) int plugin_use(void *mem);

int plugin_use(void *mem)
{
	const struct kedge_mr *mr;
	struct kedge_device *dev;
	struct kedge_cache *c;
	int rc = kedge_device_open(&ops, NULL, &dev);

	if (rc)
		return rc;
	rc = kedge_cache_open(dev, NULL, NULL, &c);
	if (!rc) {
		rc = kedge_cache_get(c, mem, 1, 0, &mr);
		if (!rc)
			kedge_cache_put(c, mr);
		kedge_cache_close(c);
	}
	kedge_device_close(dev);
	return rc;
}
