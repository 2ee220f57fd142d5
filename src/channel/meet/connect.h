/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting over TCP: addresses in turn, then the handshake. */
#ifndef TCP_CONNECT_H
#define TCP_CONNECT_H

#include "base/process/clofork.h"
#include "channel/transport.h"

/* On success @sock is the caller's; else it is empty. @flags: see hand_begin(). */
int tcp_connect(const char *node, const char *service,
		const struct kedge_channel_opts *opts, uint32_t flags,
		int timeout_ms, struct clofork *sock,
		struct transport_peer *peer);

#endif /* TCP_CONNECT_H */
