// SPDX-License-Identifier: BSD-2-Clause
/* Built without libibverbs. */
#include "tools/info.h"

void info_verbs(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_DEVICES, "verbs", INFO_MISSING);

	info_text(l, "not built: this kedge has no RDMA device");
	info_todo(l, "build it where libibverbs-dev is installed");
}
