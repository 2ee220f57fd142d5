// SPDX-License-Identifier: BSD-2-Clause
/* The providers of libfabric that carry a channel, and the monitor of its registrations. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/ofi.h"
#include "tools/info/info.h"

#define LIST_MAX 64
#define PLUG_IN	 "libkedge-fi.so"

/* ---- its registration caches ---- */

static int is_plug_in(struct dl_phdr_info *lib, size_t size, void *path)
{
	const size_t len = strlen(lib->dlpi_name), end = strlen(PLUG_IN);

	(void)size;
	if (len < end || strcmp(lib->dlpi_name + len - end, PLUG_IN) != 0)
		return 0;
	*(const char **)path = lib->dlpi_name;
	return 1;
}

/* Once libfabric has looked for its plug-ins. */
static void caches(struct info *info)
{
	struct info_line *l = info_add(info, INFO_MESSAGES, "mr-cache", INFO_OK);
	const char *which = getenv("FI_MR_CACHE_MONITOR"), *path = NULL;

	dl_iterate_phdr(is_plug_in, &path);
	if (path && (!which || !*which || !strcmp(which, "kedge"))) {
		info_text(l, "libfabric's registration caches are watched by kedge: %s", path);
		return;
	}
	if (which && !strcmp(which, "disabled")) {
		info_text(l, "libfabric keeps no registrations: FI_MR_CACHE_MONITOR");
		return;
	}
	l->state = INFO_LIMITED;
	info_text(l, "libfabric watches its registration caches itself%s%s, and misses changes",
		  which && *which ? ", by " : "", which ? which : "");
	if (path)
		info_todo(l, "unset FI_MR_CACHE_MONITOR: %s is there", path);
	else
		info_todo(l, "have %s in libfabric's provider folder, or name its folder in "
			  "FI_PROVIDER_PATH", PLUG_IN);
}

/* ---- all ---- */

/* False: libfabric is not there. */
static bool providers(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_MESSAGES, "libfabric", INFO_OK);
	struct kedge_ofi_provider list[LIST_MAX];
	json_t *names = json_array();
	const struct ofi_calls *ofi;
	char text[300] = "";
	ssize_t n, i;
	size_t len;

	n = ofi_load(&ofi);
	if (!n)
		n = ofi->list(list, LIST_MAX);
	json_object_set_new(l->data, "providers", names);
	for (i = 0; i < n && i < LIST_MAX; i++) {
		if (!(list[i].flags & KEDGE_OFI_CHANNEL))
			continue;
		json_array_append_new(names, json_string(list[i].name));
		len = strlen(text);
		snprintf(text + len, sizeof(text) - len, "%s%.59s",
			 len ? ", " : "", list[i].name);
	}
	if (*text) {
		info_text(l, "carries channels between hosts by %s", text);
		return true;
	}
	l->state = INFO_MISSING;
	if (n < 0) {
		info_text(l, "no channel goes over it: %s",
			  kedge_strerror((int)n));
		return false;
	}
	info_text(l, "it has no provider that carries channels here");
	info_todo(l, "set a network interface up; FI_PROVIDER may exclude "
		  "what is there; fi_info (Debian's libfabric-bin) lists it");
	return true;
}

void info_ofi(struct info *info)
{
	if (providers(info))
		caches(info);
}
