// SPDX-License-Identifier: BSD-2-Clause
/* In the place of demo_verbs.c in a build without libibverbs. */
#include <errno.h>

#include "tools/demo.h"

static int no_open(struct demo_device *d, const struct demo_file *file,
		   const char *name)
{
	return kedge_reason(-EOPNOTSUPP, "this kedge was built without "
			    "libibverbs: install libibverbs-dev and build it "
			    "again");
}

const struct demo_device_ops demo_device_verbs = {
	.name = "verbs",
	.max_bytes = 1,
	.chunks = 1,
	.open = no_open,
};
