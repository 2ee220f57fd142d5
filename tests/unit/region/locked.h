/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions are locked memory, of which a user without rights has as much as ulimit -l says. */
#ifndef TESTS_REGION_LOCKED_H
#define TESTS_REGION_LOCKED_H

#include <sys/resource.h>
#include <unistd.h>

/* Skips where a process may not lock that much. */
static inline void need_locked(size_t len)
{
	struct rlimit rl;

	if (!geteuid() || getrlimit(RLIMIT_MEMLOCK, &rl) || rl.rlim_cur >= len)
		return;
	print_message("skipped: ulimit -l is %zu, and this takes %zu\n",
		      (size_t)rl.rlim_cur >> 10, len >> 10);
	skip();
}

#endif /* TESTS_REGION_LOCKED_H */
