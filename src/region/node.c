// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pages on a NUMA node. They are had wherever the kernel finds them, and then moved: a policy that
 * binds them beforehand has the kernel end a process where the node has too few, and this way the
 * call fails.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "region/internal.h"

#define MPOL_BIND      2
#define MPOL_MF_STRICT 1u
#define MPOL_MF_MOVE   2u
#define LONG_BITS      (8 * sizeof(unsigned long))

int region_to_node(const struct kedge_region *r, uint64_t from, uint64_t to)
{
	unsigned long mask[REGION_NODES / LONG_BITS] = { 0 };

	mask[r->node / LONG_BITS] = 1ul << r->node % LONG_BITS;
	if (!syscall(SYS_mbind, r->at + from, to - from, MPOL_BIND, mask, REGION_NODES + 1,
		     MPOL_MF_STRICT | MPOL_MF_MOVE))
		return 0;
	switch (errno) {
	case EINVAL:
		return kedge_reason(-EINVAL, "there is no NUMA node %u, or this process may not "
				    "use it (cpuset.mems)", r->node);
	case EIO:
		return kedge_reason(-ENOMEM, "NUMA node %u has not as many pages", r->node);
	}
	return kedge_reason(-errno, "mbind: error %d", errno);
}
