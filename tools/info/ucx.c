// SPDX-License-Identifier: BSD-2-Clause
/* The monitor of the registrations that UCX keeps. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tools/info/info.h"

#define LIBRARY "libkedge-ucx.so"

static bool is_off(void)
{
	const char *enable = getenv("UCX_RCACHE_ENABLE");

	return enable && (!strcmp(enable, "n") || !strcmp(enable, "no") || !strcmp(enable, "0"));
}

/* It is asked by the environment alone: UCX is not loaded for it. */
void info_ucx(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, "rcache", INFO_OK);

	if (is_off()) {
		info_text(l, "UCX keeps no registrations: UCX_RCACHE_ENABLE");
		return;
	}
	if (dlsym(RTLD_DEFAULT, "kedge_ucx_watches")) {
		info_text(l, "UCX's registration caches are watched by kedge: %s", LIBRARY);
		return;
	}
	l->state = INFO_LIMITED;
	info_text(l, "UCX watches its registration caches itself, and misses changes");
	info_todo(l, "for programs over UCX: LD_PRELOAD %s (UCX 1.13 to 1.22), or kedge run --ucx",
		  LIBRARY);
}
