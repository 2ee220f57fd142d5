/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for the tests of UMMUNOT_SWAP_PAGES. */
#ifndef SWAP_MEMORY_H
#define SWAP_MEMORY_H

#include "ummunot_lib.h"

#define HUGE (2ul << 20)

/* A file of /dev/ummunot, opened by mem_node(). */
extern int node;
/* False, with a line that says so, where the kernel does not swap. */
bool mem_node(void);

/* Private memory that begins with a huge page, untouched. */
char *mem_map(size_t len, int advice);
/* Each page gets the mark, and its place. */
void mem_fill(char *at, size_t len, char mark);
/* True if mem_fill() of [at - off, ...) with @mark left this there. */
bool mem_has_at(const char *at, size_t off, size_t len, char mark);
bool mem_has(const char *at, size_t len, char mark);
/* The same; fails the test. */
void mem_expect(const char *at, size_t len, char mark);

/* By /proc/self/pagemap: an entry; frames, 0 where there is no page; swapped. */
uint64_t mem_pagemap(const char *at);
uint64_t *frames(const char *at, size_t len);
size_t mem_swapped(const char *at, size_t len);
/* AnonHugePages of the mapping at @at. */
size_t mem_huge_kib(const char *at);
/* True if there is swap space, on zram. */
bool mem_swap_on(void);

#endif /* SWAP_MEMORY_H */
