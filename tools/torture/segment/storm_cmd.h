/* SPDX-License-Identifier: BSD-2-Clause */
/* kedge torture --segment, for the command line's parser. */
#ifndef TORTURE_SEGMENT_STORM_CMD_H
#define TORTURE_SEGMENT_STORM_CMD_H

#include "tools/torture/segment/storm.h"

/* Run it, report, and return the exit status. */
int storm_torture(struct storm_opts *opts);

#endif /* TORTURE_SEGMENT_STORM_CMD_H */
