// SPDX-License-Identifier: BSD-2-Clause
/* See ofi.h. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/ofi.h"

static struct ofi_calls calls;
static void *lib;

static int resolve(void)
{
	const struct {
		const char *name;
		void *to;
	} syms[] = {
		{ "kedge_ofi_list", &calls.list },
		{ "kedge_listener_open_ofi", &calls.listener_open },
		{ "kedge_channel_open_ofi", &calls.channel_open },
	};
	size_t i;
	void *p;

	for (i = 0; i < ARRAY_SIZE(syms); i++) {
		p = dlsym(lib, syms[i].name);
		if (!p)
			return kedge_reason(-EOPNOTSUPP, "the libkedge-ofi "
					    "installed has no %s",
					    syms[i].name);
		memcpy(syms[i].to, &p, sizeof(p));
	}
	return 0;
}

int ofi_load(const struct ofi_calls **out)
{
	int rc;

	if (!lib)
		lib = dlopen("libkedge-ofi.so.0", RTLD_NOW);
	if (!lib)
		return kedge_reason(-EOPNOTSUPP, "there are only shm and tcp here: "
				    "other transports take libkedge-ofi, for "
				    "which kedge is built with libfabric "
				    "(Debian's libfabric-dev): %s", dlerror());
	rc = resolve();
	if (!rc)
		*out = &calls;
	return rc;
}
