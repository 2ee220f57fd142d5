/* SPDX-License-Identifier: BSD-2-Clause */
/* The origin of memory: a bit for each page, for all notifiers of a process. */
#ifndef NOTIFY_ANNOUNCE_ORIGIN_H
#define NOTIFY_ANNOUNCE_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

/* [start, end) was handed out by a call, and its undoing will be announced. */
void origin_set(uint64_t start, uint64_t end);
/* That call is being undone. */
void origin_clear(uint64_t start, uint64_t end);
/* All of it was handed out so, and has not been taken back. */
bool origin_known(uint64_t start, uint64_t end);
/* The same of a part of it, the heap left aside. */
bool origin_some(uint64_t start, uint64_t end);
/* Mark what a process starts with: its libraries, its heap, its first stack. */
void origin_start(void);
/* Memory that sbrk() gave: libc's own, which shrinks as announced. */
bool origin_in_heap(uint64_t start, uint64_t end);

#endif /* NOTIFY_ANNOUNCE_ORIGIN_H */
