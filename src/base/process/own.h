/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls about memory that are not announced: kedge's own, where it may hold locks, or
 * where it has announced them. */
#ifndef BASE_PROCESS_OWN_H
#define BASE_PROCESS_OWN_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory, or NULL. libkedge-hooks does not call back for it. */
void *own_map(size_t len);
void own_unmap(void *at, size_t len);
/* mremap() of @len bytes. */
void *own_remap(void *from, void *to, size_t len, int flags);

/* True in a thread while it is in one of these, or in a handler on top of it. */
bool own_call(void);

#endif /* BASE_PROCESS_OWN_H */
