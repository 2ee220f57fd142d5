// SPDX-License-Identifier: BSD-2-Clause
/* What libfabric has to carry a channel. */
#include <stdio.h>
#include <string.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/ofi.h"
#include "tools/info/info.h"

#define LIST_MAX 64

void info_ofi(struct info *info)
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
		return;
	}
	l->state = INFO_MISSING;
	if (n < 0) {
		info_text(l, "no channel goes over it: %s",
			  kedge_strerror((int)n));
		return;
	}
	info_text(l, "it has no provider that carries channels here");
	info_todo(l, "set a network interface up; FI_PROVIDER may exclude "
		  "what is there; fi_info (Debian's libfabric-bin) lists it");
}
