// SPDX-License-Identifier: BSD-2-Clause
/*
 * Instructions instead of nanoseconds: a few per cent are lost in the noise of
 * a clock, not in a count. Needs a performance counter, which few virtual
 * machines hand through.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/bench/bench.h"

int bench_insn_open(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_INSTRUCTIONS,
		.exclude_hv = 1,
	};
	long fd;

	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1,
		     PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : (int)fd;
}

uint64_t bench_insn_read(int fd)
{
	uint64_t n;

	return read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n) ? n : 0;
}
