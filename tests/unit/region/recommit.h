/* SPDX-License-Identifier: BSD-2-Clause */
/* A region that its program takes a part of away, as the case that runs has it. */
#ifndef TESTS_REGION_RECOMMIT_H
#define TESTS_REGION_RECOMMIT_H

#include "remote.h"

#define FROM ((size_t)16 << 10)
#define PART ((size_t)8 << 10)

extern char *at; /* the region's first byte */

/* With TEST_REGION_WITH=no_uffd changes are not told: they are found as accesses come. */
bool is_told(void);
/* False: this system has no filters of system calls. */
bool may_run(void);

void wait_for_way(void);
void begin_watched(void);
int with_watch(void **state);
#define watched_case(f) case_with(FOR_ALL, f, with_watch, without_remote)
void unmap_part(void);
int recommit(size_t offset, size_t len, struct kedge_recommit_info *info);

void is_missing_as_told(uint64_t len, uint64_t from);
/* Accesses to [FROM, FROM + PART) fail, and all others go on. */
void is_missing(void);
/* The program finds the bytes that a peer puts. */
void is_whole(void);

#endif /* TESTS_REGION_RECOMMIT_H */
