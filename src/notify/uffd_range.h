/* SPDX-License-Identifier: BSD-2-Clause */
/* Registering ranges with a userfaultfd, in order to watch them. */
#ifndef NOTIFY_UFFD_RANGE_H
#define NOTIFY_UFFD_RANGE_H

#include <stdint.h>

/* 0 or the kernel's negative errno. */
int uffd_register(int fd, uint64_t start, uint64_t end);
int uffd_unregister(int fd, uint64_t start, uint64_t end);
/* Waits for page swaps of this process; an errno of kedge's with its reason. */
int uffd_register_patiently(int fd, uint64_t start, uint64_t end);

#endif /* NOTIFY_UFFD_RANGE_H */
