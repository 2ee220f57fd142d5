// SPDX-License-Identifier: BSD-2-Clause
/* The RDMA devices: each is made to register a page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include <kedge/kedge.h>
#include <kedge/verbs.h>

#include "base/base.h"
#include "tools/info/info.h"

/* The list has room for so many. */
#define DEVICES_MAX 12

static int register_page(struct kedge_device *dev)
{
	size_t len = (size_t)sysconf(_SC_PAGESIZE);
	void *page = aligned_alloc(len, len);
	int rc;

	if (!page)
		return -ENOMEM;
	rc = info_register(dev, page, len, NULL, NULL);
	free(page);
	return rc;
}

static bool port_is_up(struct ibv_context *context, int ports)
{
	struct ibv_port_attr port;
	int i;

	for (i = 1; i <= ports; i++)
		if (!ibv_query_port(context, (uint8_t)i, &port) &&
		    port.state == IBV_PORT_ACTIVE)
			return true;
	return false;
}

static void describe(struct info_line *l, const char *name,
		     const struct kedge_device_attr *a,
		     const struct ibv_device_attr_ex *ex, bool up)
{
	const unsigned int type2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A |
				   IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	bool windows = ex->orig_attr.device_cap_flags & type2;
	bool odp = ex->odp_caps.general_caps & IBV_ODP_SUPPORT;
	bool atomics = a->access & KEDGE_ACCESS_REMOTE_ATOMIC;
	char regions[UTIL_HUMAN], max[UTIL_HUMAN], chunk[UTIL_HUMAN];

	info_text(l, "%s registered a page; %s registrations of %s%s, "
		     "large areas in chunks of %s; type-2 memory windows: %s, "
		     "on-demand paging: %s, remote atomics: %s%s",
		  name,
		  a->max_regions ? util_human_count(regions, a->max_regions)
				 : "any number of",
		  a->max_len ? "up to " : "any size",
		  a->max_len ? util_human_bytes(max, a->max_len) : "",
		  util_human_bytes(chunk, a->chunk_len), windows ? "yes" : "no",
		  odp ? "yes" : "no", atomics ? "yes" : "no",
		  up ? "" : "; no port is up");
	if (!up) {
		l->state = INFO_LIMITED;
		info_todo(l, "connect it, or set its link up (rdma link show)");
	}
	info_device_data(l, a);
	json_object_set_new(l->data, "windows", json_boolean(windows));
	json_object_set_new(l->data, "odp", json_boolean(odp));
	json_object_set_new(l->data, "atomics", json_boolean(atomics));
	json_object_set_new(l->data, "port_up", json_boolean(up));
}

static int try_device(struct ibv_context *context, const char *name,
		      struct info_line *l)
{
	struct kedge_device_attr attr = { .size = sizeof(attr) };
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_device_attr_ex ex;
	struct kedge_device *dev;
	int rc;

	if (!pd)
		return -errno;
	rc = kedge_device_open_verbs(pd, NULL, &dev);
	if (rc)
		goto dealloc_pd;
	rc = kedge_device_query(dev, &attr);
	if (!rc)
		rc = register_page(dev);
	if (!rc)
		rc = -abs(ibv_query_device_ex(context, NULL, &ex));
	if (!rc)
		describe(l, name, &attr, &ex,
			 port_is_up(context, ex.orig_attr.phys_port_cnt));
	kedge_device_close(dev);
dealloc_pd:
	ibv_dealloc_pd(pd);
	return rc;
}

static void add_device(struct info *info, struct ibv_device *device)
{
	struct info_line *l = info_add(info, INFO_DEVICES, "verbs", INFO_OK);
	const char *name = ibv_get_device_name(device);
	struct ibv_context *context = ibv_open_device(device);
	int rc;

	json_object_set_new(l->data, "device", json_string(name));
	if (!context) {
		l->state = INFO_MISSING;
		info_text(l, "%s cannot be opened: %s", name, strerror(errno));
		info_todo(l, "see that this user may read and write "
			     "/dev/infiniband/%s", device->dev_name);
		return;
	}
	rc = try_device(context, name, l);
	if (rc) {
		l->state = INFO_MISSING;
		info_text(l, "%s: %s", name, kedge_strerror(rc));
	}
	ibv_close_device(context);
}

static void no_device(struct info *info, int err)
{
	struct info_line *l =
		info_add(info, INFO_DEVICES, "verbs", INFO_MISSING);

	/* ENOSYS: a kernel without RDMA, or the module is not loaded. */
	if (err && err != ENOSYS && err != ENOENT)
		info_text(l, "the RDMA devices cannot be listed: %s",
			  strerror(err));
	else
		info_text(l, "there is no RDMA device");
	info_todo(l, "without an adapter take soft-RoCE: modprobe rdma_rxe, "
		     "then rdma link add rxe0 type rxe netdev eth0");
}

void info_verbs(struct info *info)
{
	struct ibv_device **list;
	int cnt = 0, i;

	errno = 0;
	list = ibv_get_device_list(&cnt);
	if (!list || !cnt)
		no_device(info, list ? 0 : errno);
	for (i = 0; list && i < cnt && i < DEVICES_MAX; i++)
		add_device(info, list[i]);
	if (list)
		ibv_free_device_list(list);
}
