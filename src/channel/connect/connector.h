/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting beside the caller, whatever the transport. */
#ifndef CHANNEL_CONNECT_CONNECTOR_H
#define CHANNEL_CONNECT_CONNECTOR_H

#include "base/base.h"
#include <kedge/connector.h>

/* The address and the options, copies that the connector owns; NULL where the
 * transport has no such part. */
struct connect_to {
	char *provider, *node, *service;
	struct kedge_channel_opts opts;
	int timeout_ms;
};

typedef int (*connect_fn)(const struct connect_to *to,
			  struct kedge_channel **channel);

/* Call @connect with copies of the rest, in a thread of its own. */
KEDGE_PRIVATE int kedge__connector_open(connect_fn connect,
					const char *provider, const char *node,
					const char *service,
					const struct kedge_channel_opts *user,
					int timeout_ms,
					struct kedge_connector **connector);

#endif /* CHANNEL_CONNECT_CONNECTOR_H */
