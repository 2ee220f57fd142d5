/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that kedge maps for itself, where it may hold locks. */
#ifndef BASE_PROCESS_OWN_H
#define BASE_PROCESS_OWN_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory, or NULL. libkedge-hooks does not call back for it. */
void *own_map(size_t len);
void own_unmap(void *at, size_t len);

/* True in a thread while it is in one of these, or in a handler on top of it. */
bool own_call(void);

#endif /* BASE_PROCESS_OWN_H */
