// SPDX-License-Identifier: BSD-2-Clause
/*
 * A user of the installed libraries, in C11 and in C++17: a buffer registered
 * with the first RDMA device.
 */
#include <kedge/kedge.h>
#include <kedge/verbs.h>

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define SKIP 77

static int use(struct kedge_cache *cache, char *buf, size_t len)
{
	const struct kedge_mr *mr;
	struct ibv_sge sge;
	int rc;

	rc = kedge_cache_get(cache, buf, len, KEDGE_ACCESS_LOCAL_WRITE, &mr);
	if (rc) {
		fprintf(stderr, "get: %s\n", kedge_strerror(rc));
		return 1;
	}
	sge.addr = kedge_verbs_iova(mr, buf);
	sge.length = (uint32_t)len;
	sge.lkey = kedge_verbs_lkey(mr);
	printf("lkey %#x, rkey %#x, iova %#llx\n", sge.lkey,
	       kedge_verbs_rkey(mr), (unsigned long long)sge.addr);
	kedge_cache_put(cache, mr);
	return 0;
}

static int on_pd(struct ibv_pd *pd)
{
	struct kedge_device *dev = NULL;
	struct kedge_cache *cache = NULL;
	char *buf = (char *)calloc(1, 65536);
	int bad = 1;
	int rc;

	rc = buf ? kedge_device_open_verbs(pd, NULL, &dev) : -1;
	if (!rc)
		rc = kedge_cache_open(dev, NULL, NULL, &cache);
	if (rc)
		fprintf(stderr, "open: %s\n", kedge_strerror(rc));
	else
		bad = use(cache, buf, 65536);
	kedge_cache_close(cache);
	kedge_device_close(dev);
	free(buf);
	return bad;
}

int main(void)
{
	struct kedge_device *dev = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	struct ibv_pd *pd = NULL;
	int bad = SKIP;

	/* Without a device there is this much to see. */
	if (kedge_device_open_verbs(NULL, NULL, &dev) >= 0)
		return 1;
	if (list && list[0])
		context = ibv_open_device(list[0]);
	if (context)
		pd = ibv_alloc_pd(context);
	if (pd)
		bad = on_pd(pd);
	else
		printf("skipped: no RDMA device\n");
	if (pd)
		ibv_dealloc_pd(pd);
	if (context)
		ibv_close_device(context);
	if (list)
		ibv_free_device_list(list);
	return bad;
}
