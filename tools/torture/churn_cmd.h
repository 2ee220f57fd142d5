/* SPDX-License-Identifier: BSD-2-Clause */
/* kedge torture --churn, for the command line's parser. */
#ifndef TORTURE_CHURN_CMD_H
#define TORTURE_CHURN_CMD_H

#include "tools/torture/churn.h"

/* Run it on the linked library, report, and return the exit status. */
int churn_torture(struct churn_opts *opts);

#endif /* TORTURE_CHURN_CMD_H */
