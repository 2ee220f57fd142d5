/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that exist for a moment, and that the program is not told of: made by clone()
 * around libc, so that no handler runs, and they send no SIGCHLD as they end. */
#ifndef BASE_PROCESS_CHILD_H
#define BASE_PROCESS_CHILD_H

#include <sys/types.h>

/*
 * A copy of this process, as fork() makes it, that touches no memory but its stack and ends
 * with child_end(), with the calling thread, or after some seconds. Descriptors are shared:
 * what is closed here meanwhile is closed. The calling thread has signals blocked.
 *
 * Return: its id, or a negative errno
 */
pid_t child_start(void);
void child_end(pid_t pid);
/* Wait for the end of one that ends by itself. */
void child_reap(pid_t pid);

#endif /* BASE_PROCESS_CHILD_H */
