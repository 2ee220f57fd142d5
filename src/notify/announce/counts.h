/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of watches and changes, by address. */
#ifndef NOTIFY_ANNOUNCE_COUNTS_H
#define NOTIFY_ANNOUNCE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* False: no watch is counted there. All accesses are seq_cst: see announce.c. */
bool counts_watched(uint64_t start, uint64_t end);
/* A change begins (@by is 1) or has ended (-1). */
void counts_change(uint64_t start, uint64_t end, uint32_t by);
/* In a forked child: the watches and changes are its parent's. */
void counts_reset(void);

#endif /* NOTIFY_ANNOUNCE_COUNTS_H */
