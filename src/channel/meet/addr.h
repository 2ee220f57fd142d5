/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and sockets of the TCP transport. */
#ifndef TCP_ADDR_H
#define TCP_ADDR_H

#include <netdb.h>

#include "channel/transport.h"

/* @service may be ":7777". To be freed with freeaddrinfo(). */
int addr_find(const char *node, const char *service, bool to_listen,
	      struct addrinfo **list);
/* Set the options of every channel's connection: no delay, keepalive. */
void addr_prepare(int fd, uint32_t host_timeout_ms);

#endif /* TCP_ADDR_H */
