// SPDX-License-Identifier: BSD-2-Clause
/* What all benchmarks ask. */
#include <unistd.h>

#include "tools/bench/bench.h"

#define ROUNDS_MAX 100000

int bench_check(const char *option, int rounds, int csv)
{
	if (rounds < 1 || rounds > ROUNDS_MAX)
		return util_usage("--%s: %d is not in 1..%d", option, rounds,
				  ROUNDS_MAX);
	if (csv && util_flags.json)
		return util_usage("--csv or --json, not both");
	return UTIL_GO_ON;
}

size_t bench_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}
