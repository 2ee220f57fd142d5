// SPDX-License-Identifier: BSD-2-Clause
/*
 * Finds out if a backend would work here, by opening it.
 */
#include <stdio.h>

#include "notify/internal.h"

#define INFO_V1 STRUCT_END(struct kedge_backend_info, reason)

int kedge_backend_probe(unsigned int index, struct kedge_backend_info *info)
{
	struct kedge_backend_info i = { .size = sizeof(i) };
	struct kedge_notifier_opts opts = { .size = sizeof(opts) };
	const struct notify_ops *ops = nf_backend(index);
	struct kedge_notifier *nf = NULL;

	if (!info)
		return kedge_reason(-EINVAL, "the result pointer is NULL");
	if (!ops)
		return -ENOENT;
	i.name = ops->name;
	i.rc = nf_open_backend(ops, &opts, &nf);
	if (i.rc) {
		snprintf(i.reason, sizeof(i.reason), "%s",
			 kedge_strerror(i.rc));
	} else {
		i.level = ops->level;
		i.blind = nf_blind(nf);
		kedge_notifier_close(nf);
	}
	return kedge__info_copy(info, INFO_V1, &i, sizeof(i));
}
