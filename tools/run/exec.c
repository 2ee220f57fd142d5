// SPDX-License-Identifier: BSD-2-Clause
/* See run.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/util.h"
#include "tools/run/run.h"

/* As env(1), nice(1) and others that run a program. */
#define EXIT_NOT_RUN   126
#define EXIT_NOT_FOUND 127

int run_exec(char **argv)
{
	execvp(argv[0], argv);
	util_error("%s: %s", argv[0], strerror(errno));
	return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
}
