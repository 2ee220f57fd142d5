/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a peer that knows the protocol and breaks the trust. Its checks are a child's. */
#ifndef TESTS_EVIL_PEER_H
#define TESTS_EVIL_PEER_H

#include "channel/shm/bulk.h"

extern struct shm evil;

/* Over @sock, with KEDGE_CHANNEL_* flags. */
void evil_shakes_hands(int sock, uint32_t flags);
void evil_sends(uint8_t type, const void *body, size_t len);
/* A message of @len bytes that lies at @at. */
void evil_announces(const void *at, size_t len);
/* The next message that comes may be written to @at. */
void evil_asks_for_it(void *at, size_t len);

#endif /* TESTS_EVIL_PEER_H */
