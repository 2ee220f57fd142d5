/* SPDX-License-Identifier: BSD-2-Clause */
/* The names that a loaded library has the dynamic linker bind. */
#ifndef ADAPTER_UCX_IMPORTS_H
#define ADAPTER_UCX_IMPORTS_H

#include <link.h>
#include <stdbool.h>

/* True: the library binds a symbol of that name. */
bool imports(const struct dl_phdr_info *library, const char *name);

#endif /* ADAPTER_UCX_IMPORTS_H */
