// SPDX-License-Identifier: BSD-2-Clause
/* In the place of tools/torture while it is not in the tree. */
#include "tools/util.h"

int cmd_torture(int argc, char **argv)
{
	util_error("this build has no torture test");
	return CMD_CANNOT;
}
