/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages between the two ends of kedge perf: remote.c, serve.c. */
#ifndef TOOLS_PERF_REMOTE_H
#define TOOLS_PERF_REMOTE_H

#include "tools/perf/perf.h"

#define CTL_TAG 2u
/* No message of a batch takes that long, on no network. */
#define CTL_STUCK_MS 120000
/* The sizes of the structs are part of it. */
#define CTL_MAGIC                                                              \
	(0x6b65646700000000u | (uint32_t)sizeof(struct perf_ctl) << 16 |       \
	 (uint32_t)sizeof(struct perf_rep))

enum perf_ctl_what { CTL_HELLO, CTL_OPEN, CTL_RUN, CTL_BYE };

/** struct perf_ctl - a request; the reply is a struct perf_rep
 * @magic:      CTL_MAGIC
 * @version:    of kedge
 * @what:       enum perf_ctl_what
 * @pair:       RUN: which
 * @way:        OPEN: enum kedge_way
 * @heap_bytes: OPEN
 * @req:        RUN
 */
struct perf_ctl {
	uint64_t magic;
	char version[16];
	uint32_t what;
	uint32_t pair;
	uint32_t way;
	uint32_t reserved;
	uint64_t heap_bytes;
	struct perf_req req;
};

bool perf_ctl_ours(const struct perf_ctl *ctl);
/* 0 or a negative errno; both sleep while they wait. */
int perf_ctl_send(struct kedge_channel *ch, const void *msg, size_t len);
int perf_ctl_recv(struct kedge_channel *ch, void *msg, size_t len);

#endif /* TOOLS_PERF_REMOTE_H */
