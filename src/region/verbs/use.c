// SPDX-License-Identifier: BSD-2-Clause
/* Regions of this process, and those that it reaches, by RDMA. */
#include <kedge/verbs.h>

#include "base/process/cancel.h"
#include "region/verbs/internal.h"

KEDGE_API int kedge_region_use_verbs(void)
{
	NO_CANCEL();
	if (!adapters_look())
		return kedge_reason(-ENODEV, "no RDMA device here, or its kernel modules are not "
				    "loaded: \"rdma link\" lists devices");
	return kedge__region_fabric(&line_fabric);
}
