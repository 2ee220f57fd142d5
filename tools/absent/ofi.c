// SPDX-License-Identifier: BSD-2-Clause
/* In the place of what needs libfabric's headers, in a build without them. */
#include "tools/info/info.h"
#include "tools/perf/perf.h"

void info_ofi(struct info *info)
{
	struct info_line *l =
		info_add(info, INFO_MESSAGES, "libfabric", INFO_MISSING);

	info_text(l, "this kedge was built without it: between hosts there is "
		  "TCP alone");
	info_todo(l, "for RDMA install libfabric's headers (Debian's "
		  "libfabric-dev) and build kedge again");
}

const struct perf_side *perf_libfabric(void)
{
	return NULL;
}
