/* SPDX-License-Identifier: BSD-2-Clause */
/* libkedge-rdma, loaded by what asks for it, as libkedge-ofi is. */
#ifndef TOOLS_COMMON_RDMA_LIB_H
#define TOOLS_COMMON_RDMA_LIB_H

#include <kedge/rdma.h>

/** struct rdma_calls - what it exports, as kedge/rdma.h has it */
struct rdma_calls {
	int (*listener_open)(const char *node, const char *service,
			     const struct kedge_channel_opts *opts,
			     struct kedge_listener **listener);
	int (*channel_open)(const char *node, const char *service,
			    const struct kedge_channel_opts *opts,
			    int timeout_ms, struct kedge_channel **channel);
};

/* 0, or -EOPNOTSUPP with a reason where it is not installed. To be called while
 * there is one thread; it stays loaded. */
int rdma_load(const struct rdma_calls **calls);

#endif /* TOOLS_COMMON_RDMA_LIB_H */
