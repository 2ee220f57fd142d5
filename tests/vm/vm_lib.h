/* SPDX-License-Identifier: BSD-2-Clause */
/* The common ground of programs that run in the guests. */
#ifndef VM_LIB_H
#define VM_LIB_H

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE 4096ul
#define VM_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Older headers lack these. */
#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* @pages of private anonymous memory, touched; small ones, as what splits a huge page is told. */
char *vm_memory(size_t pages);
/* The same untouched. */
char *vm_untouched(size_t pages);
/* Runs fn(arg) in a forked child, which exits with what it returns. */
int vm_child(int (*fn)(void *), void *arg);
/* 0 or a negative errno. */
int vm_write(const char *path, const char *text);
/* Fails the test where it cannot be written. */
void vm_set(const char *path, uint64_t value);
/* Reads a number from a file of /proc or /sys; 0 if there is none. */
uint64_t vm_number(const char *path);
/* KiB of a line of /proc/meminfo. */
uint64_t vm_memory_kib(const char *name);
/* The kernel looks for equal pages as fast as it can; false where it has no KSM. */
bool vm_ksm(void);
/* Returns @rc, or a negative errno where it is -1. */
int vm_errno(long rc);
/* Maps, unmaps again, and returns 0 or a negative errno of mmap(). */
int vm_map_errno(int fd, size_t len, int prot, int flags, off_t offset);

uint64_t vm_now(void); /* nanoseconds */
/* For qsort() of uint64_t. */
int vm_by_size(const void *a, const void *b);
unsigned int vm_random(unsigned int *state);

#endif /* VM_LIB_H */
