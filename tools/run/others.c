// SPDX-License-Identifier: BSD-2-Clause
/*
 * Libraries that keep registrations by themselves, above libibverbs: a cache below them, kedge's,
 * is asked once for each, and knows of no change that could help them. The ways that their own
 * documentation has for turning their caches off are variables, and were tried with UCX 1.13,
 * libfabric 1.17 and Open MPI 4.1. Variables of a library that is not used are harmless.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/common/util.h"
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

/* libfabric's own folder of plug-ins, beside the library, in which it does not look where the
 * variable is set; "": there is no libfabric. */
static void find_own_folder(char own[PATH_MAX])
{
	void *lib = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_LOCAL);
	const char *slash = NULL;
	struct link_map *map;

	*own = 0;
	if (!lib)
		return;
	if (!dlinfo(lib, RTLD_DI_LINKMAP, &map))
		slash = strrchr(map->l_name, '/');
	if (slash && snprintf(own, PATH_MAX, "%.*s/libfabric", (int)(slash - map->l_name),
			      map->l_name) >= PATH_MAX)
		*own = 0;
	dlclose(lib);
}

/* Plug-ins of ours, and those that the user or libfabric has. "@" before them all means that the
 * first of two is taken, and not the newer one. */
static int set_provider_path(const char *fi)
{
	const char *old = getenv("FI_PROVIDER_PATH");
	const int len = (int)(strrchr(fi, '/') - fi);
	char path[3 * PATH_MAX], own[PATH_MAX];
	bool first = old && *old == '@';

	if (!old || !*old) {
		find_own_folder(own);
		old = own;
	}
	if (snprintf(path, sizeof(path), "%s%.*s%s%s", first ? "@" : "", len, fi,
		     *old ? ":" : "", old + first) >= (int)sizeof(path))
		return 0;
	return setenv("FI_PROVIDER_PATH", path, 1);
}

/* Where it names none, or kedge, libkedge-fi imports its own (src/adapter/libfabric/monitor.c). */
static bool wants_other_monitor(void)
{
	const char *which = getenv("FI_MR_CACHE_MONITOR");

	return which && *which && strcmp(which, "kedge") != 0;
}

/* Both would work: UCX's cache, which is coherent then, or kedge's below. One is enough. */
static void say_who_serves(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (preload && strstr(preload, "libkedge-ucx") && !getenv("UCX_RCACHE_ENABLE"))
		util_error("libkedge-ucx is preloaded, too: UCX's own cache is off here, and "
			   "kedge's behind ibv_reg_mr() serves; with --keep-caches UCX's does, "
			   "by libkedge-ucx");
}

int run_tell_others(const char *fi)
{
	size_t i;

	say_who_serves();
	for (i = 0; i < ARRAY_SIZE(off); i++)
		if (setenv(off[i].name, off[i].value, 0))
			return -1;
	if (!wants_other_monitor() && *fi)
		return set_provider_path(fi);
	/* Without libkedge-fi it has to make do without its cache. That is not said by
	 * FI_MR_CACHE_MONITOR=disabled: Open MPI 4.1 gives libfabric a monitor all the same. */
	return setenv("FI_MR_CACHE_MAX_COUNT", "0", 0);
}
