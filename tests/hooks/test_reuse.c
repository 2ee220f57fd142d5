// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ordinary program: malloc, get, put, free. What the allocator hands out again is a hit. With
 * the hooks, the kernel's notifier and a device that pins nothing.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "check.h"

#define ROUNDS 200

static struct kedge_notifier *nf;
static struct kedge_device *dev;
static struct kedge_cache *cache;

static int reg(void *ctx, void *addr, size_t len, uint32_t access, struct kedge_device_mr *mr)
{
	static _Atomic uint64_t next;

	mr->handle = ++next;
	mr->offset = 0;
	return 0;
}

static void dereg(void *ctx, const struct kedge_device_mr *mr)
{
}

static struct kedge_cache_stats stats(void)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };

	CHECK(!kedge_cache_stats(cache, &st));
	return st;
}

static uint32_t check_now(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	CHECK(!kedge_notifier_info(nf, &info));
	return info.check;
}

static void use(void *p, size_t len)
{
	const struct kedge_mr *mr;

	CHECK(!kedge_cache_get(cache, p, len, KEDGE_ACCESS_LOCAL_WRITE, &mr));
	kedge_cache_put(cache, mr);
}

/* As a program that has freed one large block: glibc maps none of that size any more. */
static void begin(void)
{
	free(malloc(24 << 20));
}

struct job {
	size_t len;
	void (*round)(size_t len);
};

static void *run_rounds(void *arg)
{
	const struct job *j = arg;
	int i;

	for (i = 0; i < ROUNDS; i++)
		j->round(j->len);
	return NULL;
}

/* In @threads threads beside the main one, or in that, for 0. Returns the hits of 100 gets. */
static unsigned int percent_of(void (*round)(size_t len), size_t len, unsigned int threads)
{
	struct kedge_cache_stats before = stats(), after;
	struct job j = { len, round };
	pthread_t t[4];
	unsigned int i;

	if (!threads)
		run_rounds(&j);
	for (i = 0; i < threads; i++)
		CHECK(!pthread_create(&t[i], NULL, run_rounds, &j));
	for (i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	after = stats();
	return (unsigned int)((after.hits - before.hits) * 100 / (after.gets - before.gets));
}

static void malloc_and_free(size_t len)
{
	char *p = malloc(len);

	CHECK(p);
	p[0] = 1;
	use(p, len);
	free(p);
}

static void aligned(size_t len)
{
	void *p;

	CHECK(!posix_memalign(&p, 4096, len));
	use(p, len);
	free(p);
}

static void zeroed(size_t len)
{
	char *p = calloc(len / 8, 8);

	CHECK(p);
	use(p, len);
	free(p);
}

static void grown(size_t len)
{
	char *p = malloc(len / 2);

	CHECK(p);
	use(p, len / 2);
	p = realloc(p, len);
	CHECK(p);
	use(p, len);
	free(p);
}

static void what_comes_back_is_a_hit(void)
{
	void (*const round[])(size_t len) = { malloc_and_free, aligned, zeroed, grown };
	const char *const name[] = { "malloc", "posix_memalign", "calloc", "realloc" };
	const size_t len[] = { 128 << 10, 1 << 20, 16 << 20 };
	const unsigned int threads[] = { 0, 1, 4 };
	unsigned int r, l, t, percent;

	for (r = 0; r < 4; r++)
		for (l = 0; l < 3; l++)
			for (t = 0; t < 3; t++) {
				percent = percent_of(round[r], len[l], threads[t]);
				if (percent < 90)
					fprintf(stderr, "%s of %zu bytes, %u threads: %u %%\n",
						name[r], len[l], threads[t], percent);
				CHECK(percent >= 90);
			}
}

static char *kept;

static void beside_the_kept_one(size_t len)
{
	char *p = malloc(len);

	CHECK(p);
	p[0] = 1;
	use(kept, len);
	free(p);
	use(kept, len);
}

static void what_is_kept_is_a_hit(void)
{
	const size_t len[] = { 65536, 128 << 10, 1 << 20 };
	unsigned int l;

	for (l = 0; l < 3; l++) {
		kept = malloc(len[l]);
		CHECK(kept);
		CHECK(percent_of(beside_the_kept_one, len[l], 0) >= 99);
		free(kept);
	}
}

/* A chunk that realloc() leaves shorter than those of which free() is announced. */
static void shrunk(size_t len)
{
	char *p = malloc(len);

	CHECK(p);
	p = realloc(p, 65000);
	CHECK(p);
	use(p, 65000);
	free(p);
}

static void a_shrunk_chunk_is_not_believed(void)
{
	percent_of(shrunk, 65536, 4);
	percent_of(shrunk, 1 << 20, 4);
	/* No change of memory that libc had promised to announce went by unannounced. */
	CHECK(check_now() == KEDGE_CHECK_LOAD);
}

static void a_trim_drops_what_is_free(void)
{
	struct kedge_cache_stats before;

	malloc_and_free(1 << 20);
	before = stats();
	CHECK(malloc_trim(0) >= 0);
	CHECK(stats().regions < before.regions);
}

int main(void)
{
	struct kedge_device_ops ops = {
		.size = sizeof(ops),
		.name = "none",
		.reg = reg,
		.dereg = dereg,
	};
	int rc = kedge_notifier_open(NULL, &nf);

	CHECK(!rc);
	if (check_now() != KEDGE_CHECK_LOAD) {
		fprintf(stderr, "skipped: lookups do not rely on the hooks here\n");
		return 77;
	}
	CHECK(!kedge_device_open(&ops, NULL, &dev));
	CHECK(!kedge_cache_open(dev, nf, NULL, &cache));
	begin();
	what_comes_back_is_a_hit();
	what_is_kept_is_a_hit();
	a_shrunk_chunk_is_not_believed();
	a_trim_drops_what_is_free();
	kedge_cache_close(cache);
	kedge_device_close(dev);
	kedge_notifier_close(nf);
	return 0;
}
