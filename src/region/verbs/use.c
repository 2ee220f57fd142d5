// SPDX-License-Identifier: BSD-2-Clause
/* Regions of this process, and those that it reaches, by RDMA. */
#include <infiniband/verbs.h>

#include <kedge/verbs.h>

#include "region/verbs/internal.h"

KEDGE_API int kedge_region_use_verbs(void)
{
	int cnt = 0;
	struct ibv_device **list = ibv_get_device_list(&cnt);

	if (list)
		ibv_free_device_list(list);
	if (!cnt)
		return kedge_reason(-ENODEV, "no RDMA device here, or its kernel modules are not "
				    "loaded: \"rdma link\" lists devices");
	kedge__region_fabric(&line_fabric);
	return 0;
}
