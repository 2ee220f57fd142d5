// SPDX-License-Identifier: BSD-2-Clause
/* See rdma_addr.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/common/rdma_addr.h"

/* RoCE: each entry of a port's table of addresses names its interface. */
#define ROCE "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*"
/* InfiniBand: IPoIB's interfaces are the adapter's. */
#define IPOIB "/sys/class/infiniband/*/device/net/*"

static bool interface_addr(const char *name, char addr[RDMA_ADDR_LEN])
{
	struct ifaddrs *all, *i;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (i = all; i && !found; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		    i->ifa_flags & IFF_UP && !strcmp(i->ifa_name, name))
			found = inet_ntop(
				AF_INET,
				&((struct sockaddr_in *)(void *)i->ifa_addr)
					 ->sin_addr,
				addr, RDMA_ADDR_LEN);
	freeifaddrs(all);
	return found;
}

/* The interface's name is the file's text, or the file's name. */
static void interface_name(const char *path, bool text, char name[IFNAMSIZ])
{
	FILE *f;

	name[0] = '\0';
	if (!text) {
		snprintf(name, IFNAMSIZ, "%.*s", IFNAMSIZ - 1,
			 strrchr(path, '/') + 1);
		return;
	}
	f = fopen(path, "re");
	/* Entries without an address cannot be read. */
	if (f && fgets(name, IFNAMSIZ, f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
}

static bool addr_among(const char *pattern, bool text, char addr[RDMA_ADDR_LEN])
{
	char name[IFNAMSIZ];
	bool found = false;
	glob_t g;
	size_t i;

	if (glob(pattern, 0, NULL, &g))
		return false;
	for (i = 0; i < g.gl_pathc && !found; i++) {
		interface_name(g.gl_pathv[i], text, name);
		found = name[0] && interface_addr(name, addr);
	}
	globfree(&g);
	return found;
}

int rdma_addr(char addr[RDMA_ADDR_LEN])
{
	if (addr_among(ROCE, true, addr) || addr_among(IPOIB, false, addr))
		return 0;
	return kedge_reason(-ENODEV,
			    "no RDMA device whose interface is up and has an "
			    "IPv4 address: \"rdma link\" lists them, \"ip addr "
			    "add\" gives one");
}
