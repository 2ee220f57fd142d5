/* SPDX-License-Identifier: BSD-2-Clause */
/* A page that is this process's alone: a forked child finds it zeroed. */
#ifndef BASE_PROCESS_PAGE_H
#define BASE_PROCESS_PAGE_H

#include <sys/types.h>

/* Of zeros, to be unmapped by munmap(); or NULL and errno. MADV_WIPEONFORK holds for
 * any way of forking, so a load tells a child from its parent. */
void *page_of_process(void);

/* The page at *@at, which the first of several threads makes; NULL and errno without memory. */
void *page_once(void *_Atomic *at);

/* As getpid(), by two loads. */
pid_t process_pid(void);

#endif /* BASE_PROCESS_PAGE_H */
