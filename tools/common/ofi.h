/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libkedge-ofi, loaded by what asks for it: libfabric brings a dozen libraries,
 * two of which sleep for a tenth of a second when they are loaded.
 */
#ifndef TOOLS_COMMON_OFI_H
#define TOOLS_COMMON_OFI_H

#include <kedge/ofi.h>

/** struct ofi_calls - what it exports, as kedge/ofi.h has it */
struct ofi_calls {
	ssize_t (*list)(struct kedge_ofi_provider *list, size_t max);
	int (*listener_open)(const char *provider, const char *node,
			     const char *service,
			     const struct kedge_channel_opts *opts,
			     struct kedge_listener **listener);
	int (*channel_open)(const char *provider, const char *node,
			    const char *service,
			    const struct kedge_channel_opts *opts,
			    int timeout_ms, struct kedge_channel **channel);
};

/* 0, or -EOPNOTSUPP with a reason where it is not installed. To be called while
 * there is one thread; it stays loaded. */
int ofi_load(const struct ofi_calls **calls);

#endif /* TOOLS_COMMON_OFI_H */
