// SPDX-License-Identifier: BSD-2-Clause
/* See rdma_lib.h. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <kedge/kedge.h>

#include "tools/common/rdma_lib.h"

static struct rdma_calls calls;
static void *lib;

static int resolve(void)
{
	void *l = dlsym(lib, "kedge_listener_open_rdma");
	void *c = dlsym(lib, "kedge_channel_open_rdma");

	if (!l || !c)
		return kedge_reason(-EOPNOTSUPP, "the libkedge-rdma installed "
				    "is of another version");
	memcpy(&calls.listener_open, &l, sizeof(l));
	memcpy(&calls.channel_open, &c, sizeof(c));
	return 0;
}

int rdma_load(const struct rdma_calls **out)
{
	int rc;

	if (!lib)
		lib = dlopen("libkedge-rdma.so.0", RTLD_NOW);
	if (!lib)
		return kedge_reason(-EOPNOTSUPP, "\"verbs\" takes libkedge-rdma, "
				    "for which kedge is built with librdmacm "
				    "(Debian's librdmacm-dev): %s", dlerror());
	rc = resolve();
	if (!rc)
		*out = &calls;
	return rc;
}
