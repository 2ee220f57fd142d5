// SPDX-License-Identifier: BSD-2-Clause
/* A program with a cache on a device that pins no memory; it says a word once it has used it, and
 * ends when there is no more to be read. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kedge/kedge.h>

static int reg(void *ctx, void *addr, size_t len, uint32_t access, struct kedge_device_mr *mr)
{
	(void)ctx, (void)addr, (void)len, (void)access;
	mr->handle = 1;
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
	(void)ctx, (void)mr;
}

int main(void)
{
	const struct kedge_device_ops ops = { .size = sizeof(ops), .name = "paper", .reg = reg,
					      .dereg = dereg };
	char *buffer = aligned_alloc(1 << 20, 1 << 20);
	const struct kedge_mr *mr;
	struct kedge_device *dev;
	struct kedge_cache *cache;
	int i;
	char c;

	if (!buffer || kedge_device_open(&ops, NULL, &dev) ||
	    kedge_cache_open(dev, NULL, NULL, &cache))
		return 1;
	for (i = 0; i < 10; i++) {
		if (kedge_cache_get(cache, buffer, 4096, 0, &mr))
			return 1;
		kedge_cache_put(cache, mr);
	}
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	kedge_cache_close(cache);
	kedge_device_close(dev);
	free(buffer);
	return 0;
}
