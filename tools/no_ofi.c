// SPDX-License-Identifier: BSD-2-Clause
/* Built without libfabric. */
#include "tools/info.h"

void info_ofi(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_MESSAGES, "libfabric", INFO_MISSING);

	info_text(l, "not built: no channel leaves this host");
	info_todo(l, "build it where libfabric-dev is installed");
}
