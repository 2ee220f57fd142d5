/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The common ground of the page swap's tests: stamped memory, in which each word tells
 * which page it belongs to, and the way that a case runs with.
 */
#ifndef TESTS_SWAP_MEM_H
#define TESTS_SWAP_MEM_H

#include "base/base.h"
#include "cases.h"
#include "pages/swap.h"

/* @len bytes at a huge page's boundary, with a huge page of nothing around. */
char *area(size_t len);
void area_free(char *p, size_t len);
/* The same, of single pages, or of huge ones if there are any; stamped. */
char *small_area(size_t len, uint64_t id);
char *huge_area(size_t len, uint64_t id);

uint64_t stamp_of(uint64_t id, size_t page);
void stamp(char *p, size_t len, uint64_t id);
bool stamped(const char *p, size_t len, uint64_t id);
/* Both are stamped so. */
void expect_stamps(const char *a, uint64_t id_a, const char *b, uint64_t id_b, size_t len);
bool zeros(const char *p, size_t len);

/* A flag such as "hg" of the mapping at @p, 0 or 1; or a size in KiB. */
long smaps_of(const void *p, const char *what);

/* 0 if pages can be swapped in that way here; else what a swap returns. */
int can(uint32_t flags);
static inline int can_move(void)
{
	return can(KEDGE_SWAP_MOVE);
}

/* Skips the case where the way that it runs with is not to be had. */
void need_way(void);

extern uint32_t way; /* the flags that a case runs with */
int way_move(void **state);
int way_remap(void **state);
int way_phys(void **state);

#define EACH(f)                                                          \
	{ #f " (move)", f, way_move, NULL, NULL },                       \
	{ #f " (remap)", f, way_remap, NULL, NULL },                     \
	{ #f " (phys)", f, way_phys, NULL, NULL }
/* The ways that keep a descriptor. */
#define KEPT(f)                                                          \
	{ #f " (move)", f, way_move, NULL, NULL },                       \
	{ #f " (phys)", f, way_phys, NULL, NULL }
#define MOVE(f) { #f, f, way_move, NULL, NULL }

#endif /* TESTS_SWAP_MEM_H */
