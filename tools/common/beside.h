/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that are installed with libkedge, or were built with it: found by where that is. */
#ifndef TOOLS_COMMON_BESIDE_H
#define TOOLS_COMMON_BESIDE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The folder that libkedge lies in; false, with an error printed: it is not known. */
bool beside_folder(char folder[PATH_MAX]);
/* The first of @at, paths from @folder, that can be read, into @out; "" if there is none. */
bool beside_find(const char *folder, const char *const *at, size_t cnt, char out[PATH_MAX]);
/* LD_PRELOAD has no way to quote its separators. */
bool beside_can_preload(const char *path);

#endif /* TOOLS_COMMON_BESIDE_H */
