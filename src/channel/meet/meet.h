/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The meeting place of libfabric's endpoints that know no connection: its address
 * and port, deadlines, table of strangers and secret are those of a channel over
 * TCP. A caller gets a socket right after the handshake, before any other byte.
 * Exported for libkedge-ofi.
 */
#ifndef TCP_MEET_H
#define TCP_MEET_H

#include <sys/socket.h>

#include "channel/transport.h"

struct tcp_listener;

/* -EADDRNOTAVAIL if it is a number and no port. */
KEDGE_PRIVATE int kedge__port_check(const char *service, bool to_listen);
/* The text that kedge_listener_address() returns, in KEDGE_ADDRESS_MAX bytes. */
KEDGE_PRIVATE int kedge__address_text(const struct sockaddr *a, socklen_t len,
				      char *text);
KEDGE_PRIVATE int kedge__meet_address(const struct tcp_listener *l, char *text);
KEDGE_PRIVATE int kedge__meet_listen(const char *node, const char *service,
				     const struct kedge_channel_opts *opts,
				     struct tcp_listener **l);
KEDGE_PRIVATE int kedge__meet_accept(struct tcp_listener *l, int timeout_ms,
				     int *fd, struct transport_peer *peer);
KEDGE_PRIVATE int kedge__meet_fd(const struct tcp_listener *l);
KEDGE_PRIVATE unsigned int kedge__meet_port(const struct tcp_listener *l);
KEDGE_PRIVATE void kedge__meet_close(struct tcp_listener *l);
KEDGE_PRIVATE int kedge__meet_connect(const char *node, const char *service,
				      const struct kedge_channel_opts *opts,
				      int timeout_ms, int *fd,
				      struct transport_peer *peer);

#endif /* TCP_MEET_H */
