/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Channels between hosts, for the commands: "tcp" and "verbs" are kedge's own
 * transports, any other name a provider of libfabric's.
 */
#ifndef TOOLS_COMMON_NET_H
#define TOOLS_COMMON_NET_H

#include <kedge/tcp.h>

#define NET_SERVICE "7475"

int net_listen(const char *transport, const char *node, const char *service,
	       const struct kedge_channel_opts *opts,
	       struct kedge_listener **listener);
/* @node NULL is this host. */
int net_connect(const char *transport, const char *node, const char *service,
		const struct kedge_channel_opts *opts, int timeout_ms,
		struct kedge_channel **ch);
/*
 * Both ends on this host: rank 1 listens at a free port and says so over @fd, a
 * connected socket, rank 0 connects. Both call it; @fd is closed on success.
 */
int net_pair(const char *transport, unsigned int rank, int fd,
	     const struct kedge_channel_opts *opts, struct kedge_channel **ch);

/* Tries if rank 1 could listen: 0, or a negative errno with a reason. */
int net_try(const char *transport);

#endif /* TOOLS_COMMON_NET_H */
