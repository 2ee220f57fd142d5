/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that a harness posts to a channel, each with a buffer of its own: it completes once,
 * and from then on the sanitizer sees an access to the buffer.
 */
#ifndef FUZZ_USER_OPS_H
#define FUZZ_USER_OPS_H

#include <stdbool.h>

#include "feed.h"

#include "channel/internal.h"

#define OPS 64u

struct user_op {
	uint64_t op;
	uint8_t *buf;
	size_t len;
	bool busy;
};

extern struct bytes in;
extern struct user_op ops[OPS];

/* A receive of what @tag and @mask say, or a send, of @len bytes. */
void do_recv(struct kedge_channel *ch, size_t len, uint64_t tag, uint64_t mask);
void do_send(struct kedge_channel *ch, size_t len, uint64_t tag);
/* Cancels an operation that is posted, or was: 0 or -ENOENT. */
void do_cancel(struct kedge_channel *ch);
ssize_t do_poll(struct kedge_channel *ch);
/* Until the channel says that it has ended, and how: nothing is left. */
ssize_t poll_to_the_end(struct kedge_channel *ch);
/* Frees the operations of a channel that was closed. */
void ops_end(void);

#endif /* FUZZ_USER_OPS_H */
