// SPDX-License-Identifier: BSD-2-Clause
/* The adapter that has an address. RoCE's identifiers are the addresses of its interface. */
#include <stdatomic.h>
#include <string.h>

#include "region/verbs/internal.h"

#define GIDS 256

/* Those that there were when the program asked; never freed, as a thread may be at it. */
static struct ibv_device **_Atomic devices;

/* The list is asked for in calls of the program alone: libibverbs has a lock for it, and a child of
 * a program that forks while a thread of this library has that would wait for ever. */
int lines_look(void)
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

static bool takes(struct ibv_context *dev, const struct ibv_gid_entry *g, struct fabric_line *l)
{
	struct ibv_port_attr port;

	if (ibv_query_port(dev, (uint8_t)g->port_num, &port) || port.state != IBV_PORT_ACTIVE)
		return false;
	l->port = (uint8_t)g->port_num;
	l->gid_index = (int)g->gid_index;
	l->mtu = port.active_mtu;
	return true;
}

static bool has(struct ibv_context *dev, const unsigned char place[16], struct fabric_line *l)
{
	struct ibv_gid_entry g[GIDS];
	ssize_t i, cnt = ibv_query_gid_table(dev, g, GIDS, 0);

	for (i = 0; i < cnt; i++)
		if (g[i].gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(g[i].gid.raw, place, 16) &&
		    takes(dev, &g[i], l))
			return true;
	return false;
}

int line_find(struct fabric_line *l, const unsigned char place[16], struct fabric_end *end)
{
	struct ibv_device **list = atomic_load(&devices);
	struct ibv_context *dev;
	int i;

	for (i = 0; list && list[i] && !l->dev; i++) {
		dev = ibv_open_device(list[i]);
		if (dev && has(dev, place, l))
			l->dev = dev;
		else if (dev)
			ibv_close_device(dev);
	}
	if (!l->dev)
		return kedge_reason(-ENODEV, "no RDMA adapter here has the address by which the "
				    "region is reached, by RoCE v2: \"rdma link\" lists them, and "
				    "their interfaces");
	kedge__fd_note(l->dev->cmd_fd, &l->dev_fd);
	memcpy(end->gid, place, sizeof(end->gid));
	return 0;
}

bool line_is_ours(const struct fabric_line *l)
{
	return kedge__fd_same(l->dev->cmd_fd, &l->dev_fd);
}
