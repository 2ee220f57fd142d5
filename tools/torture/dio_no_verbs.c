// SPDX-License-Identifier: BSD-2-Clause
/* In the place of dio_verbs.c in a build without libibverbs. */
#include <errno.h>

#include "tools/torture/dio.h"

static int no_open(struct rig *rig, const char *name)
{
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without "
			    "libibverbs: install libibverbs-dev and build it "
			    "again");
}

const struct dio_ops dio_verbs = { .name = "verbs", .rig_open = no_open };
