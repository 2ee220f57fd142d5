/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric itself, opened when a provider is asked for. See lib.c. */
#ifndef CHANNEL_OFI_LIB_H
#define CHANNEL_OFI_LIB_H

#include <stdint.h>

/* 0, or -ENODEV with a reason. It stays open. Any thread. */
int kedge__ofi_load(void);

struct fi_info;
/* fi_getinfo() for a provider that was looked for before. By threads of the library's: handlers of
 * signals stay as they are, which the program may set meanwhile. */
int kedge__ofi_getinfo_again(uint32_t version, const char *node, uint64_t flags,
			     const struct fi_info *hints, struct fi_info **info);

#endif /* CHANNEL_OFI_LIB_H */
