// SPDX-License-Identifier: BSD-2-Clause
/* Where kedge was built without libibverbs. */
#include "tools/bench/reg.h"

int reg_verbs_open(const char *model, struct reg_dev *d)
{
	util_error("verbs: this kedge was built without libibverbs");
	return CMD_CANNOT;
}
