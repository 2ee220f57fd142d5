// SPDX-License-Identifier: BSD-2-Clause
/*
 * No notifier: no memory can be watched, so no registration is ever kept.
 */
#include "notify/internal.h"

static int none_open(struct kedge_notifier *nf,
		     const struct kedge_notifier_opts *opts)
{
	return 0;
}

static void none_close(struct kedge_notifier *nf)
{
}

static int none_arm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	return kedge_reason(-EOPNOTSUPP, "the notifier is \"none\": nothing can "
					 "be watched");
}

static void none_disarm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
}

const struct notify_ops notify_none = {
	.name = "none",
	.level = KEDGE_LEVEL_NONE,
	.open = none_open,
	.close = none_close,
	.abandon = none_close,
	.arm = none_arm,
	.disarm = none_disarm,
};
