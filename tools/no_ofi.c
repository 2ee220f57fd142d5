// SPDX-License-Identifier: BSD-2-Clause
/* Built without libfabric. */
#include "tools/info.h"

void info_ofi(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_MESSAGES, "libfabric", INFO_MISSING);

	info_text(l, "this kedge was built without it: between hosts there is "
		  "TCP alone");
	info_todo(l, "for RDMA install libfabric's headers (Debian's "
		  "libfabric-dev) and build kedge again");
}
