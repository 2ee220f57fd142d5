/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls about memory that are not announced: kedge's own, where it may hold locks, or
 * where it has announced them. */
#ifndef BASE_PROCESS_OWN_H
#define BASE_PROCESS_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Zeroed memory, or NULL. libkedge-hooks does not call back for it. */
void *own_map(size_t len);
void own_unmap(void *at, size_t len);
/* A shared mapping of @fd from @off on, or NULL. */
void *own_map_file(size_t len, int fd, off_t off);
/*
 * mmap() by its number, which no library in front of the C library hears of; -1 with errno as it
 * is. Of a system call's arguments the kernel reads all 64 bits, and syscall() is told no types:
 * a plain 0 for the offset leaves half of its place on the stack as it was (clang, x86-64), so
 * the call is in one place.
 */
long own_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
/* mremap() of @len bytes. */
void *own_remap(void *from, void *to, size_t len, int flags);

/*
 * Shrink [*@lo, *@hi), which has @at, to the memory around it that own_map() has not given.
 * False: @at is in such memory itself, which ends at *@hi at the latest. As far as the table
 * goes: where it is full, memory is taken for the program's.
 */
bool own_around(uintptr_t at, uintptr_t *lo, uintptr_t *hi);

/* [start, end) has variables of the library's own: those of a whole program that it is
 * linked into. */
bool own_data_in(uintptr_t start, uintptr_t end);

/* True in a thread while it is in one of these, or in a handler on top of it. */
bool own_call(void);

#endif /* BASE_PROCESS_OWN_H */
