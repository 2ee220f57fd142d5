/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The landing pool: pages that are there before a message needs them, made by a
 * thread of its own.
 */
#ifndef CHANNEL_POOL_H
#define CHANNEL_POOL_H

struct pool_landing;

void pool_close(struct pool_landing *p);

#endif /* CHANNEL_POOL_H */
