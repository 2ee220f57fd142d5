/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that this process's limits leave to it. */
#ifndef REGION_LIMITS_H
#define REGION_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include <kedge/region.h>

/*
 * @bound: enum kedge_region_bound
 * @limit: bytes, all that the limit allows; UINT64_MAX without a limit
 * @free:  bytes that are left of it
 * @kills: a process that meets it is ended with all others that it holds for
 */
struct limit {
	uint32_t bound;
	bool kills;
	uint64_t limit;
	uint64_t free;
};

/* The limit of locked memory. It is tried: a capability that lifts it may not count in a user
 * namespace. */
void limit_memlock(struct limit *l);
/* The tightest of the control groups that the process is in, and of the machine. Page
 * cache that can be dropped counts as free. */
void limit_memory(struct limit *l);
/* Pages of @page_size bytes that the administrator has set aside and that are free;
 * false: this machine has no such pages. */
bool limit_huge(uint64_t page_size, struct limit *l);

#endif /* REGION_LIMITS_H */
