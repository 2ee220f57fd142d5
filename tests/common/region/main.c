// SPDX-License-Identifier: BSD-2-Clause
/* A program of one suite. Its argument is a pattern of cases' names; without one, all are run. */
#include "way.h"

int main(int argc, char **argv)
{
	return suite_run(&suite, argc > 1 ? argv[1] : NULL);
}
