// SPDX-License-Identifier: BSD-2-Clause
/*
 * A user of the installed library, in C11: its own device, and memory that is
 * unmapped and mapped again at the same address between two gets.
 */
#include <kedge/kedge.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LEN (64u * 1024)

struct counts {
	int reg;
	int dereg;
};

static int count_reg(void *ctx, void *addr, size_t len, uint32_t access,
		     struct kedge_device_mr *mr)
{
	struct counts *counts = ctx;

	(void)addr;
	(void)len;
	(void)access;
	mr->handle = (uint64_t)++counts->reg;
	return 0;
}

static void count_dereg(void *ctx, const struct kedge_device_mr *mr)
{
	struct counts *counts = ctx;

	(void)mr;
	counts->dereg++;
}

static void *map_at(void *addr)
{
	return mmap(addr, LEN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1,
		    0);
}

/* The device's handle for the buffer, or 0 with a message. */
static uint64_t handle_of(struct kedge_cache *cache, void *buf)
{
	const struct kedge_mr *mr;
	uint64_t handle;
	int rc;

	memset(buf, 1, LEN);
	rc = kedge_cache_get(cache, buf, LEN, KEDGE_ACCESS_LOCAL_WRITE, &mr);
	if (rc) {
		fprintf(stderr, "get: %s\n", kedge_strerror(rc));
		return 0;
	}
	handle = mr->device_handle;
	kedge_cache_put(cache, mr);
	return handle;
}

static int use(struct kedge_notifier *nf, struct kedge_cache *cache)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	uint64_t first, again, after;
	void *buf = map_at(NULL);
	int bad;

	if (buf == MAP_FAILED || kedge_notifier_info(nf, &info))
		return 1;
	first = handle_of(cache, buf);
	again = handle_of(cache, buf);
	if (munmap(buf, LEN) || map_at(buf) != buf)
		return 1;
	after = handle_of(cache, buf);
	printf("%s: handles %d, %d, after a new mapping %d\n", info.backend,
	       (int)first, (int)again, (int)after);
	bad = !first || !again || !after || after == again;
	/* Where something is watched the second get is a hit. */
	if (info.level >= KEDGE_LEVEL_ORDERED && first != again)
		bad = 1;
	munmap(buf, LEN);
	return bad;
}

int main(void)
{
	struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "count",
		.reg = count_reg,
		.dereg = count_dereg,
	};
	struct counts counts = { 0, 0 };
	struct kedge_notifier *nf;
	struct kedge_device *dev;
	struct kedge_cache *cache;
	int bad = 1;

	if (kedge_device_open(&ops, &counts, &dev))
		return 1;
	if (kedge_notifier_open(NULL, &nf))
		goto close_device;
	if (kedge_cache_open(dev, nf, NULL, &cache))
		goto close_notifier;
	bad = use(nf, cache);
	kedge_cache_close(cache);
	if (counts.reg != counts.dereg) {
		fprintf(stderr, "%d registered, %d deregistered\n", counts.reg,
			counts.dereg);
		bad = 1;
	}
close_notifier:
	kedge_notifier_close(nf);
close_device:
	kedge_device_close(dev);
	return bad;
}
