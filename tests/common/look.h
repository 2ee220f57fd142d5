/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's figures of this process: of a range of its memory, in bytes, and of threads; and
 * huge pages for tests. */
#ifndef TESTS_REGION_LOOK_H
#define TESTS_REGION_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of the mapping that @at is in: a line of smaps ("Rss", "Locked", "Swap"). */
uint64_t look_smaps(const void *at, const char *line);
/* A line of /proc/self/status ("VmLck"). */
uint64_t look_status(const char *line);
/* The page at @at can be read; nothing of it is touched by this process. */
bool look_readable(const void *at);
/* So many page faults of this thread have happened; those of a sanitizer's own memory are not
 * told apart, so there it is 0. */
uint64_t look_faults(void);
/* The files that the thread of regions has open: so many, and the bytes of their pages. */
unsigned int look_files(uint64_t *bytes);
/* Returns once a thread of this process sleeps, or is over. It stores its @tid as it begins. */
void look_asleep(const _Atomic pid_t *tid);
/* Lines of maps, 0 where a sanitizer has some of its own that come and go. */
unsigned int look_maps(void);

/* Sets @cnt more huge pages of 2 MiB aside, where this process may; and as many as were before. */
void look_huge_begin(int cnt);
void look_huge_end(void);

#endif /* TESTS_REGION_LOOK_H */
