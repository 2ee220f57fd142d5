// SPDX-License-Identifier: BSD-2-Clause
/* Ways by adapters for programs that are linked to the libraries as other programs are. */
#include "way.h"

#ifdef HAVE_OFI
#include <kedge/ofi.h>

static int use_ofi(const char *provider)
{
	return kedge_region_use_ofi(provider, NULL);
}
#endif

#ifdef HAVE_VERBS
#include <kedge/verbs.h>

static int use_verbs(const char *unused)
{
	return kedge_region_use_verbs();
}
#endif

const struct way adapter_ways[] = {
#ifdef HAVE_OFI
	{ .name = "ofi", .node = "127.0.0.1", .served = true, .leased = true, .provider = "tcp",
	  .use = use_ofi },
	{ .name = "ofi_rxm", .node = "127.0.0.1", .served = true, .leased = true,
	  .provider = "tcp;ofi_rxm", .use = use_ofi },
#endif
#ifdef HAVE_VERBS
	/* Adapters of this machine, for tests that run in a guest (tests/vm/rdma.sh). */
	{ .name = "rdma", .node_env = "RDMA_SERVER_ADDR", .served = true, .leased = true,
	  .use = use_verbs },
#endif
	{ .name = NULL },
};
