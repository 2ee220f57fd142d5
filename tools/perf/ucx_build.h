/* SPDX-License-Identifier: BSD-2-Clause */
/* The build of a UCX: ucx_build.c. */
#ifndef TOOLS_PERF_UCX_BUILD_H
#define TOOLS_PERF_UCX_BUILD_H

#include <stddef.h>
#include <stdint.h>

#define PERF_BUILD_KNOWN	(1u << 0) /* else the others mean nothing */
#define PERF_BUILD_ASSERTIONS	(1u << 1)
#define PERF_BUILD_PARAM_CHECKS (1u << 2)

/* PERF_BUILD_* of the libucp in @file; 0 if it cannot be read. */
uint32_t perf_build_of(const char *file);
/* The same of its bytes. */
uint32_t perf_build_flags(const void *text, size_t len);

#endif /* TOOLS_PERF_UCX_BUILD_H */
