// SPDX-License-Identifier: BSD-2-Clause
/*
 * A UCX 1.13 that has no memory for the events it has to keep: it drops no region, for so many
 * events or for ever. Beside it the program that looks up in it, which must not get what has
 * changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <ucs/memory/rcache.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef FAKE_UCS
/* One region, of which UCX has as much as libkedge-ucx reads. */
static ucs_rcache_params_t own;
static ucs_rcache_region_t *kept;
static unsigned int deaf, events;

EXPORT void fake_be_deaf(unsigned int to);
EXPORT void fake_event(void *at, size_t len);

void fake_be_deaf(unsigned int to)
{
	deaf = to;
	events = 0;
}

void fake_event(void *at, size_t len)
{
	if (kept && events++ >= deaf && kept->super.start < (uintptr_t)at + len &&
	    (uintptr_t)at < kept->super.end)
		kept->flags = 0;
}

EXPORT ucs_status_t ucs_rcache_create(const ucs_rcache_params_t *params, const char *name,
				      ucs_stats_node_t *stats, ucs_rcache_t **cache)
{
	own = *params;
	*cache = (ucs_rcache_t *)&own;
	return UCS_OK;
}

EXPORT ucs_status_t ucs_rcache_get(ucs_rcache_t *cache, void *at, size_t len, int prot, void *arg,
				   ucs_rcache_region_t **region)
{
	if (!kept || !(kept->flags & UCS_RCACHE_REGION_FLAG_PGTABLE)) {
		kept = calloc(1, own.region_struct_size);
		kept->super.start = (uintptr_t)at;
		kept->super.end = (uintptr_t)at + len;
		kept->flags = UCS_RCACHE_REGION_FLAG_PGTABLE;
		if (own.ops->mem_reg(own.context, cache, arg, kept, 0) != UCS_OK)
			abort();
	}
	kept->refcount++;
	*region = kept;
	return UCS_OK;
}

EXPORT void ucs_rcache_region_put(ucs_rcache_t *cache, ucs_rcache_region_t *region)
{
	region->refcount--;
}

EXPORT void ucs_rcache_destroy(ucs_rcache_t *cache)
{
}
#elif defined(FAKE_UCP)
EXPORT void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release);

void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release)
{
	*major = 1;
	*minor = 13;
	*release = 1;
}
#elif defined(FAKE_UCM)
EXPORT void ucm_vm_munmap(void *at, size_t len);
EXPORT void ucm_set_external_event(int events);
void fake_event(void *at, size_t len);

void ucm_vm_munmap(void *at, size_t len)
{
	fake_event(at, len);
}

void ucm_set_external_event(int events)
{
}
#else
#define LEN ((size_t)1 << 16)

void fake_be_deaf(unsigned int to);
void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release);
void ucm_vm_munmap(void *at, size_t len);

static ucs_status_t reg(void *context, ucs_rcache_t *cache, void *arg, ucs_rcache_region_t *region,
			uint16_t flags)
{
	return UCS_OK;
}

static void dereg(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region)
{
}

static const ucs_rcache_ops_t ops = { .mem_reg = reg, .mem_dereg = dereg };

static void *map(void *at)
{
	void *p = mmap(at, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	if (p == MAP_FAILED)
		abort();
	memset(p, 1, LEN);
	return p;
}

/* A lookup behind a change of which the fake loses @to drops: what it gets, or NULL. */
static ucs_rcache_region_t *look(ucs_rcache_t *cache, void *p, unsigned int to)
{
	ucs_rcache_region_t *first, *second = NULL;

	fake_be_deaf(0);
	ucm_vm_munmap(p, LEN);
	if (ucs_rcache_get(cache, p, LEN, PROT_READ, NULL, &first) != UCS_OK)
		abort();
	ucs_rcache_region_put(cache, first);
	fake_be_deaf(to);
	map(p);
	if (ucs_rcache_get(cache, p, LEN, PROT_READ, NULL, &second) != UCS_OK)
		second = NULL;
	if (second == first)
		return (void *)1;
	if (first->refcount || (second && second->refcount != 1)) {
		puts("references are lost");
		exit(1);
	}
	return second;
}

int main(void)
{
	const ucs_rcache_params_t params = {
		.region_struct_size = sizeof(ucs_rcache_region_t), .ops = &ops,
		.ucm_events = 1 << 17, /* UCM_EVENT_VM_UNMAPPED */
	};
	unsigned int v[3], to;
	ucs_rcache_t *cache;
	void *p = map(NULL);

	ucp_get_version(&v[0], &v[1], &v[2]);
	if (ucs_rcache_create(&params, "name", NULL, &cache) != UCS_OK)
		return 2;
	for (to = 0; to < 8; to++)
		if ((uintptr_t)look(cache, p, to) <= 1) {
			printf("%u lost drops: it gets what has changed, or an error\n", to);
			return 1;
		}
	if (look(cache, p, ~0u)) {
		puts("all drops lost: no error");
		return 1;
	}
	return 0;
}
#endif
