// SPDX-License-Identifier: BSD-2-Clause
/* Find an RDMA device with an active port, and the address it goes by. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/base.h>

#include "tools/common/rdma/rdma.h"

#define HOW_TO_GET                                                       \
	"soft-RoCE makes one of a network interface, as root: modprobe " \
	"rdma_rxe && rdma link add rxe0 type rxe netdev eth0"

/* No more can be under way than both ends allow, and more is of no use. */
#define READS_MAX 16

/* Addresses of a device that are looked through. */
#define GIDS_MAX 256

/* An IPv4 address mapped into IPv6, which is what RoCE v2 routes. */
static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t head[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, head, sizeof(head));
}

static int gid_rank(const struct ibv_gid_entry *e)
{
	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	return is_ipv4(&e->gid) ? 3 : 2;
}

static int choose_gid(struct rdma_dev *dev, int max)
{
	struct ibv_gid_entry *e = calloc((size_t)max, sizeof(*e));
	int best = 0, rank;
	ssize_t n, i;

	if (!e)
		return kedge_reason(-ENOMEM, "no memory");
	n = ibv_query_gid_table(dev->ctx, e, (size_t)max, 0);
	for (i = 0; i < n; i++) {
		rank = e[i].port_num == dev->port ? gid_rank(&e[i]) : 0;
		if (rank <= best || e[i].gid_index > UINT8_MAX)
			continue;
		best = rank;
		dev->gid = e[i].gid;
		dev->gid_index = (uint8_t)e[i].gid_index;
	}
	free(e);
	if (!best)
		return kedge_reason(-EADDRNOTAVAIL, "RDMA device %s has no "
				    "address: give its network interface one",
				    dev->name);
	return 0;
}

/* 0, or -ENETDOWN if no port is active. */
static int choose_port(struct rdma_dev *dev)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int rc;

	rc = ibv_query_device(dev->ctx, &attr);
	if (rc)
		return kedge_reason(-rc, "RDMA device %s: %s", dev->name,
				    strerror(rc));
	dev->reads = attr.max_qp_rd_atom < READS_MAX ?
		(uint8_t)attr.max_qp_rd_atom : READS_MAX;
	for (dev->port = 1; dev->port <= attr.phys_port_cnt; dev->port++) {
		if (ibv_query_port(dev->ctx, dev->port, &port) ||
		    port.state != IBV_PORT_ACTIVE)
			continue;
		dev->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
		dev->lid = port.lid;
		dev->mtu = port.active_mtu;
		return dev->ethernet ? choose_gid(dev, port.gid_tbl_len) : 0;
	}
	return kedge_reason(-ENETDOWN, "no port of RDMA device %s is active: "
			    "is its link up?", dev->name);
}

static int try_device(struct rdma_dev *dev, struct ibv_device *candidate)
{
	int rc;

	memset(dev, 0, sizeof(*dev));
	snprintf(dev->name, sizeof(dev->name), "%s",
		 ibv_get_device_name(candidate));
	errno = 0;
	dev->ctx = ibv_open_device(candidate);
	if (!dev->ctx) {
		rc = errno ? -errno : -EIO;
		return kedge_reason(rc, "cannot open RDMA device %s: %s; is "
				    "/dev/infiniband/uverbs* there, and may "
				    "this user open it?", dev->name,
				    strerror(-rc));
	}
	rc = choose_port(dev);
	if (rc)
		goto close_ctx;
	errno = 0;
	dev->pd = ibv_alloc_pd(dev->ctx);
	if (!dev->pd) {
		rc = errno ? -errno : -ENOMEM;
		rc = kedge_reason(rc, "RDMA device %s gives no protection "
				  "domain: %s", dev->name, strerror(-rc));
		goto close_ctx;
	}
	return 0;

close_ctx:
	ibv_close_device(dev->ctx);
	return rc;
}

int rdma_dev_open(struct rdma_dev *dev, const char *name)
{
	struct ibv_device **list;
	int rc = -ENODEV, i, cnt = 0;

	list = ibv_get_device_list(&cnt);
	if (!list || !cnt)
		rc = kedge_reason(-ENODEV, "there is no RDMA device; "
				  HOW_TO_GET);
	else if (name)
		rc = kedge_reason(-ENODEV, "there is no RDMA device %s: "
				  "'rdma link' lists them", name);
	for (i = 0; i < cnt; i++) {
		if (name && strcmp(name, ibv_get_device_name(list[i])))
			continue;
		rc = try_device(dev, list[i]);
		if (!rc)
			break;
	}
	if (list)
		ibv_free_device_list(list);
	return rc;
}

/* Its port is the one that was chosen. */
static bool use_gid(struct rdma_dev *dev, const union ibv_gid *gid)
{
	struct ibv_gid_entry e[GIDS_MAX];
	const ssize_t n = ibv_query_gid_table(dev->ctx, e, GIDS_MAX, 0);
	ssize_t i;

	for (i = 0; i < n; i++) {
		if (e[i].port_num != dev->port || e[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    e[i].gid_index > UINT8_MAX || memcmp(&e[i].gid, gid, sizeof(*gid)) != 0)
			continue;
		dev->gid = *gid;
		dev->gid_index = (uint8_t)e[i].gid_index;
		return true;
	}
	return false;
}

int rdma_dev_open_at(struct rdma_dev *dev, const char *addr)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };
	struct ibv_device **list;
	bool found = false;
	int i, cnt = 0;

	if (inet_pton(AF_INET, addr, &gid.raw[12]) != 1)
		return kedge_reason(-EINVAL, "'%s' is no IPv4 address", addr);
	list = ibv_get_device_list(&cnt);
	for (i = 0; list && i < cnt && !found; i++) {
		if (try_device(dev, list[i]))
			continue;
		found = use_gid(dev, &gid);
		if (!found)
			rdma_dev_close(dev);
	}
	if (list)
		ibv_free_device_list(list);
	return found ? 0 : kedge_reason(-ENODEV, "no RDMA device has the address %s, by RoCE v2: "
					"'rdma link' lists them, and their interfaces", addr);
}

void rdma_dev_close(struct rdma_dev *dev)
{
	ibv_dealloc_pd(dev->pd);
	ibv_close_device(dev->ctx);
}
