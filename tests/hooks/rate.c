// SPDX-License-Identifier: BSD-2-Clause
/*
 * Prints how many of a hundred gets hit where each round allocates, gets, puts and frees.
 * usage: rate malloc|calloc|realloc|aligned|new BYTES THREADS. The allocator is preloaded, or libc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "check.h"

#define ROUNDS 200

static struct kedge_cache *cache;
static const char *way;
static size_t bytes;
static void *(*op_new)(size_t); /* of libstdc++ */
static void (*op_delete)(void *);

static int reg(void *ctx, void *addr, size_t len, uint32_t access, struct kedge_device_mr *mr)
{
	static _Atomic uint64_t next;

	mr->handle = ++next;
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static char *allocate(void)
{
	void *p = NULL;

	if (!strcmp(way, "calloc"))
		p = calloc(bytes, 1);
	else if (!strcmp(way, "realloc"))
		p = realloc(malloc(bytes / 2), bytes);
	else if (!strcmp(way, "aligned"))
		p = aligned_alloc(4096, bytes);
	else if (!strcmp(way, "new"))
		p = op_new(bytes);
	else
		p = malloc(bytes);
	CHECK(p);
	return p;
}

static void *rounds(void *unused)
{
	const struct kedge_mr *mr;
	char *p;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		p = allocate();
		*(volatile char *)p = 1;
		CHECK(!kedge_cache_get(cache, p, bytes, KEDGE_ACCESS_LOCAL_WRITE, &mr));
		kedge_cache_put(cache, mr);
		if (!strcmp(way, "new"))
			op_delete(p);
		else
			free(p);
	}
	return NULL;
}

static void find_new(void)
{
	void *cpp = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);

	if (!cpp) {
		fprintf(stderr, "skipped: no libstdc++\n");
		exit(77);
	}
	*(void **)&op_new = dlsym(RTLD_DEFAULT, "_Znwm");
	*(void **)&op_delete = dlsym(RTLD_DEFAULT, "_ZdlPv");
	CHECK(op_new && op_delete);
}

int main(int argc, char **argv)
{
	struct kedge_device_ops ops = { .size = sizeof(ops), .name = "none", .reg = reg,
					.dereg = dereg };
	struct kedge_cache_stats st = { .size = sizeof(st) };
	struct kedge_device *dev;
	pthread_t t[16];
	int i, cnt;

	CHECK(argc == 4);
	way = argv[1];
	bytes = strtoul(argv[2], NULL, 0);
	cnt = atoi(argv[3]);
	CHECK(cnt > 0 && cnt <= 16);
	if (!strcmp(way, "new"))
		find_new();
	CHECK(!kedge_device_open(&ops, NULL, &dev));
	CHECK(!kedge_cache_open(dev, NULL, NULL, &cache));
	for (i = 0; i < cnt; i++)
		CHECK(!pthread_create(&t[i], NULL, rounds, NULL));
	for (i = 0; i < cnt; i++)
		pthread_join(t[i], NULL);
	CHECK(!kedge_cache_stats(cache, &st));
	printf("%.1f\n", 100.0 * (double)st.hits / (double)st.gets);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	return 0;
}
