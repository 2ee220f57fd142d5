// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cost of a lookup in UCX's cache, by UCX's own calls: a buffer is mapped for messages and
 * unmapped again, by which it stays registered in the cache. Says the median of many runs of a
 * hit in nanoseconds, how many registrations there were, and whether UCX has changed code of
 * libc's. With "miss" UCX is told before each that the buffer has gone.
 *
 *	real [HITS [miss]]
 *
 * The program's own uct_md_mem_reg_v2() comes before all others, and counts.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <ucp/api/ucp.h>

#define LEN  ((size_t)1 << 20)
#define RUNS 51

static _Atomic unsigned long regs;

__attribute__((visibility("default"))) int uct_md_mem_reg_v2(void *md, void *at, size_t len,
							     const void *params, void **memh);

int uct_md_mem_reg_v2(void *md, void *at, size_t len, const void *params, void **memh)
{
	static int (*next)(void *, void *, size_t, const void *, void **);

	atomic_fetch_add(&regs, 1);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "uct_md_mem_reg_v2");
	return next(md, at, len, params, memh);
}

static void die(const char *what)
{
	fprintf(stderr, "real: %s\n", what);
	exit(1);
}

static void hit(ucp_context_h context, void *at)
{
	ucp_mem_map_params_t p = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
			      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.address = at, .length = LEN, .memory_type = UCS_MEMORY_TYPE_HOST,
	};
	ucp_mem_h memh;

	if (ucp_mem_map(context, &p, &memh) != UCS_OK || ucp_mem_unmap(context, memh) != UCS_OK)
		die("a buffer cannot be mapped");
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static ucp_context_h open_ucx(void)
{
	ucp_params_t p = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA };
	ucp_context_h context = NULL;
	ucp_config_t *config;

	if (ucp_config_read(NULL, NULL, &config) != UCS_OK ||
	    ucp_init(&p, config, &context) != UCS_OK)
		die("UCX cannot be opened");
	ucp_config_release(config);
	return context;
}

/* UCX writes a jump there, or a load of where to jump to, with which no compiler begins it. */
static const char *code(void)
{
#if defined(__x86_64__)
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const unsigned char *at = libc ? dlsym(libc, "munmap") : NULL;

	if (!at)
		die("no libc");
	return at[0] == 0xe9 || (at[0] == 0x49 && at[1] == 0xbb) ? "changed" : "as it was";
#else
	return "not looked at";
#endif
}

static void (*vm_munmap)(void *at, size_t len); /* or NULL: all are hits */

/* Nanoseconds for each of so many. */
static double time_hits(ucp_context_h context, void *at, unsigned long hits)
{
	const double from = now();
	unsigned long i;

	for (i = 0; i < hits; i++) {
		if (vm_munmap)
			vm_munmap(at, LEN);
		hit(context, at);
	}
	return (now() - from) / (double)hits;
}

int main(int argc, char **argv)
{
	const unsigned long hits = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
	ucp_context_h context = open_ucx();
	unsigned int v[3], run;
	double took[RUNS];
	unsigned long first;
	void *at;

	if (argc > 2)
		*(void **)&vm_munmap = dlsym(RTLD_DEFAULT, "ucm_vm_munmap");
	ucp_get_version(&v[0], &v[1], &v[2]);
	at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		die("no memory");
	memset(at, 1, LEN);
	hit(context, at);
	first = regs;
	for (run = 0; run < RUNS; run++)
		took[run] = time_hits(context, at, hits);
	qsort(took, RUNS, sizeof(took[0]), by_value);
	printf("UCX %u.%u.%u: %.1f ns each, %lu registrations at first, %lu later, code %s\n",
	       v[0], v[1], v[2], took[RUNS / 2], first, regs - first, code());
	ucp_cleanup(context);
	return regs - first && !vm_munmap ? 2 : 0;
}
