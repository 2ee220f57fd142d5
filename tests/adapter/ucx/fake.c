// SPDX-License-Identifier: BSD-2-Clause
/* A UCX of another version, in three libraries as UCX has them: a lookup has an argument more. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef FAKE_UCS
EXPORT int ucs_rcache_create(void *params, const char *name, void *stats, void **cache);
EXPORT int ucs_rcache_get(void *cache, void *at, size_t len, size_t align, int prot, void *arg,
			  void **region);
EXPORT void ucs_rcache_destroy(void *cache);

int ucs_rcache_create(void *params, const char *name, void *stats, void **cache)
{
	*cache = params;
	return 0;
}

int ucs_rcache_get(void *cache, void *at, size_t len, size_t align, int prot, void *arg,
		   void **region)
{
	*region = at;
	return len == 100 && align == 64 && prot == 3 && arg == cache ? 0 : -1;
}

void ucs_rcache_destroy(void *cache)
{
	*(int *)cache = 1;
}
#elif defined(FAKE_UCP)
EXPORT void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release);

void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release)
{
	*major = 1;
	*minor = 99;
	*release = 0;
}
#else
EXPORT void ucm_vm_munmap(void *at, size_t len);
EXPORT void ucm_set_external_event(int events);
EXPORT void ucm_set_global_opts(const int *options);

void ucm_vm_munmap(void *at, size_t len)
{
}

void ucm_set_external_event(int events)
{
}

void ucm_set_global_opts(const int *options)
{
	*(int *)(size_t)options = 1;
}
#endif
