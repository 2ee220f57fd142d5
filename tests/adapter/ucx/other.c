// SPDX-License-Identifier: BSD-2-Clause
/* A program over a UCX that libkedge-ucx does not know: all is as without it. */
#include <stddef.h>
#include <stdio.h>

int ucs_rcache_create(void *params, const char *name, void *stats, void **cache);
int ucs_rcache_get(void *cache, void *at, size_t len, size_t align, int prot, void *arg,
		   void **region);
void ucs_rcache_destroy(void *cache);
void ucp_get_version(unsigned int *major, unsigned int *minor, unsigned int *release);
void ucm_set_global_opts(const int *options);

int main(void)
{
	static int params[128], options[64];
	void *cache = NULL, *region = NULL;
	unsigned int v[3];

	ucp_get_version(&v[0], &v[1], &v[2]);
	ucm_set_global_opts(options);
	if (!options[0] || ucs_rcache_create(params, "name", NULL, &cache) || cache != params) {
		puts("no cache, or another one");
		return 1;
	}
	if (ucs_rcache_get(cache, options, 100, 64, 3, cache, &region) || region != options) {
		puts("a lookup does not get all of its arguments");
		return 1;
	}
	ucs_rcache_destroy(cache);
	if (!params[0])
		puts("the cache is not ended");
	return !params[0];
}
