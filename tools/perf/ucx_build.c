// SPDX-License-Identifier: BSD-2-Clause
/*
 * The build of a UCX. The library has no call that tells: "ucx_info -b" prints
 * what the tool was compiled with, and may be of another build or not there. But
 * assertions and parameter checks print texts when they fail, which the compiler
 * drops together with them; so they are looked for in the file that was loaded.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/perf/ucx_build.h"

/* The condition of an assertion about the flags of an endpoint or a request.
 * Those that stay in release builds have none such. */
#define ASSERTED "->flags & UCP_"
/* The message of a call of a feature that was not asked for. */
#define CHECKED "feature flags %s were not set"

uint32_t perf_build_flags(const void *text, size_t len)
{
	uint32_t flags = PERF_BUILD_KNOWN;

	if (memmem(text, len, ASSERTED, strlen(ASSERTED)))
		flags |= PERF_BUILD_ASSERTIONS;
	if (memmem(text, len, CHECKED, strlen(CHECKED)))
		flags |= PERF_BUILD_PARAM_CHECKS;
	return flags;
}

uint32_t perf_build_of(const char *file)
{
	struct stat st;
	uint32_t flags = 0;
	void *text;
	int fd;

	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) || st.st_size <= 0)
		goto close_fd;
	text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		goto close_fd;
	flags = perf_build_flags(text, (size_t)st.st_size);
	munmap(text, (size_t)st.st_size);
close_fd:
	close(fd);
	return flags;
}
