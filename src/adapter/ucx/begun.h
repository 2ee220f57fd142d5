/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The regions of this process, which are one set for all of UCX's caches: a process has one
 * version of UCX, and so one way.
 */
#ifndef ADAPTER_UCX_BEGUN_H
#define ADAPTER_UCX_BEGUN_H

#include "regions.h"

/* In all versions. */
#define EACH_CALL 0xff			/* UCM_EVENT_MMAP and so on: the C library's calls */
#define VM_EVENTS (1 << 16 | 1 << 17) /* UCM_EVENT_VM_MAPPED, _UNMAPPED */

/* Before the first cache is made that is served: UCX has to wait for events from outside by then,
 * or it changes code. NULL: that failed, which is said. */
struct regions *begin(const struct regions_ops *ops);

/* NULL: a cache that is served was not made yet. One load. */
struct regions *begun(void);

/* regions_ops.say, which is the same in all ways. */
void begin_without(int rc);

#endif /* ADAPTER_UCX_BEGUN_H */
