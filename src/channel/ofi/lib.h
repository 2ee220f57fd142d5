/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric itself, opened when a provider is asked for. See lib.c. */
#ifndef CHANNEL_OFI_LIB_H
#define CHANNEL_OFI_LIB_H

/* 0, or -ENODEV with a reason. It stays open. Any thread. */
int kedge__ofi_load(void);

#endif /* CHANNEL_OFI_LIB_H */
