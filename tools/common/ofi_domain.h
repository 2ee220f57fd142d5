/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A domain of libfabric's, which is loaded by what asks for one: it brings a dozen libraries.
 */
#ifndef TOOLS_COMMON_OFI_DOMAIN_H
#define TOOLS_COMMON_OFI_DOMAIN_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <kedge/device.h>

struct ofi_domain {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	void (*freeinfo)(struct fi_info *info);
};

/* The first of @provider that has messages and one-sided accesses. 0, or a negative errno with its
 * reason; @d is closed in either case. libfabric stays loaded. */
int ofi_domain_open(const char *provider, struct ofi_domain *d);
void ofi_domain_close(struct ofi_domain *d);

/* Have the stand-in for an adapter (tools/standin/), which is preloaded, register with that ring.
 * @registered: tells how many it has made; or NULL. */
int ofi_domain_standin(int ring_fd, uint64_t (**registered)(void));

/* As kedge_device_open_ofi(), of libkedge-ofi, which is loaded for it. */
int ofi_domain_device(const struct ofi_domain *d, struct kedge_device **dev);

#endif /* TOOLS_COMMON_OFI_DOMAIN_H */
