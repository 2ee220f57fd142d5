// SPDX-License-Identifier: BSD-2-Clause
/* In the place of tools/bench while it is not in the tree. */
#include "tools/util.h"

int cmd_bench(int argc, char **argv)
{
	util_error("this build has no benchmarks");
	return CMD_CANNOT;
}
