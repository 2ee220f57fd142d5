// SPDX-License-Identifier: BSD-2-Clause
/* See beside.h. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "tools/common/beside.h"
#include "tools/common/util.h"

bool beside_folder(char folder[PATH_MAX])
{
	const char *slash = NULL;
	Dl_info here;

	if (dladdr((void *)(uintptr_t)kedge_version, &here))
		slash = strrchr(here.dli_fname, '/');
	if (slash && snprintf(folder, PATH_MAX, "%.*s", (int)(slash - here.dli_fname),
			      here.dli_fname) < PATH_MAX)
		return true;
	util_error("cannot tell where libkedge was loaded from");
	return false;
}

bool beside_find(const char *folder, const char *const *at, size_t cnt, char out[PATH_MAX])
{
	size_t i;

	for (i = 0; i < cnt; i++) {
		int n = snprintf(out, PATH_MAX, "%s/%s", folder, at[i]);

		if (n > 0 && n < PATH_MAX && !access(out, R_OK))
			return true;
	}
	*out = 0;
	return false;
}

bool beside_can_preload(const char *path)
{
	return !strpbrk(path, ": ");
}
