/* SPDX-License-Identifier: BSD-2-Clause */
/* A case's peer, and its segment; what most tests do with them. */
#ifndef TESTS_SEGMENT_SHARED_H
#define TESTS_SEGMENT_SHARED_H

#include "peer.h"

#define RW     (KEDGE_SEGMENT_READ | KEDGE_SEGMENT_WRITE)
#define R      KEDGE_SEGMENT_READ
#define NOBODY 65534

extern struct peer peer;
extern struct kedge_segment *segment;
extern struct kedge_segment_id id;

void make(void *at, size_t len, const struct kedge_segment_opts *o);
/* Memory that can be converted, made a segment that the peer has got and attached. */
void share(void *at, size_t len);
/* The peer's end, and the segment's. */
void end(void);
void remove_segment(void);

/* By the peer, at @at of what it has attached: the word there, or whether it faults. */
uint64_t loaded(size_t at);
bool faults(size_t at);

/* Skips where no thread can be stopped so that memory is converted, and says why. */
void need_stopping(void);

#endif /* TESTS_SEGMENT_SHARED_H */
