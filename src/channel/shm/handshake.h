/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages of the handshake, which handshake.c describes. */
#ifndef CHANNEL_SHM_HANDSHAKE_H
#define CHANNEL_SHM_HANDSHAKE_H

#include <sys/socket.h>

#include "channel/shm/internal.h"

#define HELLO_MAGIC   0x6b656467655f6d31u /* in the byte order of its writer */
#define HELLO_VERSION 4u

/* The beginning of both messages. */
struct hello_head {
	uint64_t magic;
	uint32_t version;
	int32_t status; /* 0, or a negative errno: turned away, and why */
};

struct hello {
	struct hello_head head;
	uint32_t eager_max;
	uint32_t unexpected_cnt;
	uint64_t unexpected_bytes;
	uint64_t heap_len;
	uint64_t nonce_at; /* 0: its memory is not to be reached */
	uint64_t nonce[2];
	uint32_t barrier; /* it takes part in membarrier */
	uint32_t ring_cells;
};

struct verdict {
	struct hello_head head;
	uint32_t can_cross;
	uint32_t eager_max; /* that its view of the other's ring has room for */
};

enum hello_state { AWAIT_HELLO, AWAIT_VERDICT };

struct greeting {
	struct kedge_channel_opts o;
	struct hello me;
	struct hello peer;
	struct ucred cred; /* sender of the hello */
	struct ucred made; /* maker of the socket's other end */
	enum hello_state state;
	bool sent;
	uint32_t agreed_eager;
	int area_fd; /* ours, until it is sent */
	int fd;	     /* the peer's, or -1 */
};

/* The beginning of a message of ours. */
struct hello_head hello_head(int status);
/* Send the hello in @g->me, with the descriptor of the area, which is closed then. It needs
 * nothing else of @g. */
int hello_send(const struct shm *s, struct greeting *g);

#endif /* CHANNEL_SHM_HANDSHAKE_H */
