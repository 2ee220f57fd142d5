// SPDX-License-Identifier: BSD-2-Clause
/* The adapter that has an address. RoCE's identifiers are the addresses of its interface. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "region/verbs/internal.h"

#define GIDS 256

/* Those that there were when the program asked; never freed, as a thread may be at it. */
static struct ibv_device **_Atomic devices;

/* The list is asked for in calls of the program alone: libibverbs has a lock for it, and a child of
 * a program that forks while a thread of this library has that would wait for ever. */
int adapters_look(void)
{
	struct ibv_device **had = atomic_load(&devices), **now;
	int cnt = 0, i = 0;

	now = ibv_get_device_list(&cnt);
	if (!now || !cnt)
		goto free;
	while (had && had[i] && had[i] == now[i])
		i++;
	if (had && !had[i] && !now[i])
		goto free;
	atomic_store(&devices, now);
	return cnt;

free:
	if (now)
		ibv_free_device_list(now);
	return cnt;
}

int adapter_failed(const char *call)
{
	const int err = errno ? errno : EIO;

	if (err == ENOMEM || err == EPERM)
		return kedge_reason(-ENOMEM, "%s: no memory, or RLIMIT_MEMLOCK is used up: raise "
				    "it with ulimit -l or LimitMEMLOCK=", call);
	return kedge_reason(-err, "%s: error %d", call, err);
}

static bool takes(struct ibv_context *dev, const struct ibv_gid_entry *g, struct port *p)
{
	struct ibv_port_attr port;

	if (ibv_query_port(dev, (uint8_t)g->port_num, &port) || port.state != IBV_PORT_ACTIVE)
		return false;
	*p = (struct port){ (uint8_t)g->port_num, (int)g->gid_index, port.active_mtu };
	return true;
}

static bool has(struct ibv_context *dev, const unsigned char place[16], struct port *p)
{
	struct ibv_gid_entry g[GIDS];
	ssize_t i, cnt = ibv_query_gid_table(dev, g, GIDS, 0);

	for (i = 0; i < cnt; i++)
		if (g[i].gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(g[i].gid.raw, place, 16) &&
		    takes(dev, &g[i], p))
			return true;
	return false;
}

bool adapter_port(const struct adapter *a, const unsigned char place[16], struct port *p)
{
	return adapter_is_ours(a) && has(a->dev, place, p);
}

static struct ibv_context *find(const unsigned char place[16])
{
	struct ibv_device **list = atomic_load(&devices);
	struct ibv_context *dev = NULL;
	struct port unused;
	int i;

	for (i = 0; list && list[i] && !dev; i++) {
		dev = ibv_open_device(list[i]);
		if (dev && !has(dev, place, &unused)) {
			ibv_close_device(dev);
			dev = NULL;
		}
	}
	return dev;
}

int adapter_open(struct adapter *a, const unsigned char place[16], int depth)
{
	int rc;

	memset(a, 0, sizeof(*a));
	a->dev = find(place);
	if (!a->dev)
		return kedge_reason(-ENODEV, "no RDMA adapter here has the address by which the "
				    "region is reached, by RoCE v2: \"rdma link\" lists them, and "
				    "their interfaces");
	kedge__fd_note(a->dev->cmd_fd, &a->dev_fd);
	a->pd = ibv_alloc_pd(a->dev);
	if (a->pd)
		a->cq = ibv_create_cq(a->dev, depth, NULL, NULL, 0);
	if (a->cq)
		return 0;
	rc = adapter_failed(a->pd ? "ibv_create_cq" : "ibv_alloc_pd");
	adapter_close(a);
	return rc;
}

int adapter_register(struct adapter *a, void *at, uint64_t len, int rights)
{
	a->mr = ibv_reg_mr(a->pd, at, len, rights);
	return a->mr ? 0 : adapter_failed("ibv_reg_mr");
}

bool adapter_is_ours(const struct adapter *a)
{
	return kedge__fd_same(a->dev->cmd_fd, &a->dev_fd);
}

/* Numbers of others' are not written to: the kernel ends it all with the process. */
void adapter_close(struct adapter *a)
{
	if (a->dev && adapter_is_ours(a)) {
		if (a->mr)
			ibv_dereg_mr(a->mr);
		if (a->cq)
			ibv_destroy_cq(a->cq);
		if (a->pd)
			ibv_dealloc_pd(a->pd);
		ibv_close_device(a->dev);
	}
	memset(a, 0, sizeof(*a));
}
