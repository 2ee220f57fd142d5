// SPDX-License-Identifier: BSD-2-Clause
/*
 * Libraries that keep registrations by themselves, above libibverbs: a cache below them, kedge's,
 * is asked once for each, and knows of no change that could help them. The ways that their own
 * documentation has for turning their caches off are variables, and were tried with UCX 1.13,
 * libfabric 1.17 and Open MPI 4.1. Variables of a library that is not used are harmless.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/run/run.h"

static const struct {
	const char *name, *value;
} off[] = {
	/* Registrations are made for each use, and not by memory handles that are kept. */
	{ "UCX_RCACHE_ENABLE", "n" },
	{ "UCX_IB_REG_METHODS", "direct" },
	/* Its own hooks are of no use then, and change code that libkedge-hooks has. */
	{ "UCX_MEM_EVENTS", "n" },
	/* UCX warns of variables that its version does not have. */
	{ "UCX_WARN_UNUSED_ENV_VARS", "n" },
	/* The cache of Open MPI's own transports (btl/openib); pml/ucx and mtl/ofi do without. */
	{ "OMPI_MCA_mpi_leave_pinned", "0" },
};

/* libfabric loads plug-ins of these folders, and those of its own only by default. */
static int set_provider_path(const char *fi)
{
	const char *old = getenv("FI_PROVIDER_PATH");
	const int len = (int)(strrchr(fi, '/') - fi);
	char path[2 * PATH_MAX];

	if (snprintf(path, sizeof(path), "%.*s%s%s", len, fi, old && *old ? ":" : "",
		     old ? old : "") >= (int)sizeof(path))
		return 0;
	return setenv("FI_PROVIDER_PATH", path, 1);
}

int run_tell_others(const char *fi)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(off); i++)
		if (setenv(off[i].name, off[i].value, 0))
			return -1;
	if (!getenv("FI_MR_CACHE_MONITOR") && *fi)
		return set_provider_path(fi);
	/* Without libkedge-fi it has to make do without its cache. That is not said by
	 * FI_MR_CACHE_MONITOR=disabled: Open MPI 4.1 gives libfabric a monitor all the same. */
	return setenv("FI_MR_CACHE_MAX_COUNT", "0", 0);
}
