/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mmap() that fails when told to, and a count of what is mapped. Linked with
 * --wrap of mmap, mmap64 and munmap.
 */
#ifndef TESTS_NO_MEMORY_H
#define TESTS_NO_MEMORY_H

#include <stdbool.h>

extern bool no_memory;
extern _Atomic int mapped; /* mmap() calls that worked, less munmap() calls */

#endif /* TESTS_NO_MEMORY_H */
