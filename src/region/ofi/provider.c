// SPDX-License-Identifier: BSD-2-Clause
/* The provider that the program has chosen, and whether regions can be reached by it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "channel/ofi/lib.h"
#include "region/ofi/internal.h"

static const struct choice *_Atomic chosen;

int ofi_failed(const char *call, ssize_t rc)
{
	const int err = rc > -FI_ERRNO_OFFSET ? (int)rc : -EIO;

	if (rc == -FI_ENOMEM || rc == -FI_EPERM)
		return kedge_reason(-ENOMEM, "%s: no memory, or RLIMIT_MEMLOCK is used up: raise "
				    "it with ulimit -l or LimitMEMLOCK=", call);
	if (rc == -FI_EADDRNOTAVAIL)
		return kedge_reason(-ENODEV, "%s: no adapter here has the address by which the "
				    "region is reached", call);
	return kedge_reason(err, "%s: %s", call, fi_strerror((int)-rc));
}

void provider_choose(struct choice *c)
{
	c->before = atomic_load(&chosen);
	while (!atomic_compare_exchange_weak(&chosen, &c->before, c))
		;
}

const struct choice *provider_chosen(void)
{
	return atomic_load(&chosen);
}

/* Writes tell when they are in the other's memory, and no message is sent. */
static struct fi_info *hints_of(const struct choice *c)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		return NULL;
	h->fabric_attr->prov_name = strdup(c->name);
	if (!h->fabric_attr->prov_name) {
		fi_freeinfo(h);
		return NULL;
	}
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_MSG | FI_RMA;
	h->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				  FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	h->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	h->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	return h;
}

/* @again: it was looked for before */
static int getinfo(const struct choice *c, const char *node, bool again, struct fi_info **info)
{
	const uint64_t flags = node ? FI_SOURCE | FI_NUMERICHOST : 0;
	struct fi_info *h = hints_of(c);
	int rc;

	*info = NULL;
	if (!h)
		return -FI_ENOMEM;
	rc = again ? kedge__ofi_getinfo_again(OFI_API, node, flags, h, info)
		   : fi_getinfo(OFI_API, node, NULL, flags, h, info);
	fi_freeinfo(h);
	return rc;
}

static bool is_there(const struct choice *c)
{
	struct fi_info *h = fi_allocinfo(), *info = NULL;
	bool is;

	if (!h)
		return false;
	h->fabric_attr->prov_name = strdup(c->name);
	is = h->fabric_attr->prov_name && !fi_getinfo(OFI_API, NULL, NULL, 0, h, &info);
	fi_freeinfo(info);
	fi_freeinfo(h);
	return is;
}

static bool is_ip(const struct fi_info *info)
{
	return info->addr_format == FI_SOCKADDR || info->addr_format == FI_SOCKADDR_IN ||
	       info->addr_format == FI_SOCKADDR_IN6;
}

/* Some check no key, mix up what comes, have threads that a fork finds in the middle of something,
 * or, over libibverbs, do not connect in time and end the process. docs/ofi.md has more. */
static bool is_known_to_be_wrong(const struct fi_info *info)
{
	const char *name = info->fabric_attr->prov_name;

	return !strncmp(name, "shm", 3) || !strncmp(name, "sockets", 7) ||
	       !strncmp(name, "verbs", 5) ||
	       (!strncmp(name, "udp", 3) &&
		info->fabric_attr->prov_version < FI_VERSION(204, 0));
}

/* The key is all that an owner's memory asks for. An adapter of EFA's asks for the random number of
 * a queue pair, too. */
static bool has_weak_keys(const struct fi_info *info)
{
	if (!strncmp(info->fabric_attr->prov_name, "efa", 3))
		return false;
	return info->domain_attr->mr_mode & FI_MR_PROV_KEY ||
	       info->domain_attr->mr_key_size < sizeof(uint64_t);
}

static int fits(const struct choice *c, const struct fi_info *info)
{
	if (is_known_to_be_wrong(info))
		return kedge_reason(-EOPNOTSUPP, "libfabric's provider \"%s\" does not keep "
				    "strangers out of the memory, mixes up data, or breaks "
				    "programs: docs/ofi.md. In the place of \"verbs\" there is "
				    "kedge_region_use_verbs()", c->name);
	if (has_weak_keys(info) && !(c->flags & KEDGE_REGION_OFI_WEAK_KEYS))
		return kedge_reason(-EOPNOTSUPP, "libfabric's provider \"%s\" has keys that can "
				    "be guessed: KEDGE_REGION_OFI_WEAK_KEYS takes them, on a "
				    "network of trusted processes", c->name);
	return 0;
}

static uint32_t number_of(const char *name)
{
	uint32_t n = 2166136261u;

	for (; *name; name++)
		n = (n ^ (unsigned char)*name) * 16777619u;
	return n;
}

/* Before libfabric 1.18 "tcp" has datagrams by "ofi_rxm" alone; an endpoint of that takes 68 MiB
 * and 40 milliseconds. "net" is its successor there, and has them by itself. */
static int getinfo_best(struct choice *c, struct fi_info **info)
{
	const struct choice net = { .name = "net" };
	struct fi_info *better;
	int rc = getinfo(c, NULL, false, info);

	if (rc || strcmp(c->name, "tcp") || !strstr((*info)->fabric_attr->prov_name, "ofi_rxm") ||
	    getinfo(&net, NULL, false, &better))
		return rc;
	fi_freeinfo(*info);
	*info = better;
	strcpy(c->name, net.name);
	return 0;
}

int provider_look(struct choice *c)
{
	struct fi_info *info;
	int rc = getinfo_best(c, &info);

	if (rc == -FI_ENOMEM)
		return kedge_reason(-ENOMEM, "no memory for libfabric");
	if (rc && !is_there(c))
		return kedge_reason(-ENODEV, "libfabric is not here, or has no provider \"%s\": "
				    "kedge info and fi_info -l list those it has", c->name);
	if (rc)
		return kedge_reason(-EOPNOTSUPP, "libfabric's provider \"%s\" has no reliable "
				    "datagrams with RMA that says when it has landed (FI_EP_RDM, "
				    "FI_DELIVERY_COMPLETE)", c->name);
	rc = fits(c, info);
	c->ip = is_ip(info);
	/* Both ends name it alike, however the program did. */
	c->number = number_of(info->fabric_attr->prov_name);
	fi_freeinfo(info);
	return rc;
}

/* An address of a handle in digits. */
static const char *text_of(const unsigned char place[16], char text[INET6_ADDRSTRLEN])
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(place, mapped, sizeof(mapped))
		       ? inet_ntop(AF_INET6, place, text, INET6_ADDRSTRLEN)
		       : inet_ntop(AF_INET, place + sizeof(mapped), text, INET6_ADDRSTRLEN);
}

int provider_find(const struct choice *c, const unsigned char place[16], struct fi_info **info)
{
	char text[INET6_ADDRSTRLEN];
	int rc = getinfo(c, c->ip ? text_of(place, text) : NULL, true, info);

	if (rc)
		return rc == -FI_ENODATA
			       ? kedge_reason(-ENODEV, "libfabric's provider \"%s\" has no "
					      "adapter with the address by which the region is "
					      "reached", c->name)
			       : ofi_failed("fi_getinfo", rc);
	rc = fits(c, *info);
	if (rc)
		fi_freeinfo(*info);
	else
		(*info)->tx_attr->op_flags = 0; /* each write asks for it */
	return rc;
}
