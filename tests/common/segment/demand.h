/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of tests of memory that is converted as it is attached. */
#ifndef TESTS_SEGMENT_DEMAND_H
#define TESTS_SEGMENT_DEMAND_H

#include "shared.h"

#define LEN ((size_t)1 << 20)

extern const struct kedge_segment_opts later, whole;

/* A segment that the peer has got. */
void begin(void *at, size_t len, const struct kedge_segment_opts *o);

/* Threads of a busy machine's may be stopped too late, or change the memory around. */
void attach_in_time(uint64_t at, size_t len);

#endif /* TESTS_SEGMENT_DEMAND_H */
