// SPDX-License-Identifier: BSD-2-Clause
/*
 * The run of kedge torture --segment, for so many rounds of each range: under the
 * sanitizers, and in guests with the kernel module.
 *
 *	stress_segment [rounds [seed]]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/torture/segment/storm.h"

int main(int argc, char **argv)
{
	struct storm_opts o = { .rounds = 150, .seed = 1 };
	struct storm_result r;
	int rc;

	if (argc > 1)
		o.rounds = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		o.seed = strtoul(argv[2], NULL, 10);
	rc = storm_run(&o, &r);
	if (rc == -EOPNOTSUPP) {
		printf("skipped: %s\n", r.found);
		return 77;
	}
	printf("%llu rounds, %llu attachments, %llu looks, %llu and %llu killed: %llu stale, "
	       "%llu torn, %llu stores lost, %llu crashes\n",
	       (unsigned long long)r.rounds, (unsigned long long)r.attachments,
	       (unsigned long long)r.looks, (unsigned long long)r.kills,
	       (unsigned long long)r.owner_kills, (unsigned long long)r.stale,
	       (unsigned long long)r.torn, (unsigned long long)r.lost,
	       (unsigned long long)r.crashes);
	if (*r.found)
		printf("the first: %s\n", r.found);
	return rc || !storm_is_right(&r) || r.rounds < STORM_RANGES * o.rounds;
}
