/* SPDX-License-Identifier: BSD-2-Clause */
/* Registering ranges with a userfaultfd, in order to watch them. */
#ifndef NOTIFY_BACKEND_UFFD_RANGE_H
#define NOTIFY_BACKEND_UFFD_RANGE_H

#include <stdint.h>

/* 0 or the kernel's negative errno. */
int uffd_register(int fd, uint64_t start, uint64_t end);
int uffd_unregister(int fd, uint64_t start, uint64_t end);
/*
 * Have @attempt, which returns what uffd_register() does, register the range
 * while page swaps of this process may have it. An errno of kedge's with its
 * reason; -EAGAIN is handed on.
 */
typedef int (*uffd_attempt_fn)(void *arg, uint64_t start, uint64_t end);
int uffd_register_patiently(uffd_attempt_fn attempt, void *arg, uint64_t start,
			    uint64_t end);

#endif /* NOTIFY_BACKEND_UFFD_RANGE_H */
