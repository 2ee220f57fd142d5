// SPDX-License-Identifier: BSD-2-Clause
/* In the place of what needs libmicrohttpd, in a build without it. */
#include "tools/common/util.h"
#include "tools/top/top.h"

int serve(unsigned int port, char *const *words)
{
	(void)port, (void)words;
	util_error("this kedge was built without libmicrohttpd: install libmicrohttpd-dev and "
		   "build it again, or have a collector read kedge top --prometheus");
	return CMD_CANNOT;
}
