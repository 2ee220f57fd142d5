/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of verbs_program's files. */
#ifndef TESTS_VERBS_PROGRAM_H
#define TESTS_VERBS_PROGRAM_H

#include "verbs_ends.h"

#define LW   IBV_ACCESS_LOCAL_WRITE
#define RW   IBV_ACCESS_REMOTE_WRITE
#define RR   IBV_ACCESS_REMOTE_READ
#define AREA (64 * PAGE)

extern struct ends e;

/* Zeroed memory, as mmap() gives it. */
unsigned char *map(size_t len);
void dereg(struct ibv_mr *mr);

static inline uint64_t at(const void *p)
{
	return (uintptr_t)p;
}

/* verbs_program_odd.c: answers, written down. */
bool notes_open(const char *path);
bool notes_close(void);
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void rights_are_given_and_refused_as_ever(void **state);
void bad_memory_is_refused_as_ever(void **state);

/* verbs_program_bench.c: a line of JSON: nanoseconds of each operation. The
 * exit status. */
int verbs_program_bench(void);

#endif /* TESTS_VERBS_PROGRAM_H */
