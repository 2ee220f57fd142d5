/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handshake of a TCP connection, a step at a time and without waiting.
 *
 *   connecting                              listening
 *      | hello: version, limits, nonce         |
 *      |-------------------------------------->|
 *      |                                 hello |
 *      |<--------------------------------------|
 *      | proof (with a secret)                 |
 *      |-------------------------------------->|
 *      |                                 proof |
 *      |<--------------------------------------|
 *
 * A proof is HMAC-SHA256 over both hellos, by a key that is derived from the
 * secret, from both hellos and from the role of the end that proves. So a proof of
 * another connection, of the other direction, or with a hello that was changed
 * on the way is never accepted. The listener sends no byte that depends on the
 * secret before the other end has proved that it knows it.
 *
 * Without a secret on both ends there are no proofs. Where one end alone has one
 * they part.
 */
#ifndef TCP_HELLO_H
#define TCP_HELLO_H

#include "base/base.h"
#include "channel/transport.h"

#define KEY_LEN	  32u
#define NONCE_LEN 32u
/* Longer ones are no faster here, and each channel has a buffer of one all the time. */
#define TCP_EAGER_MAX (64u << 10)

/* A key that is made of a caller's secret; @set is false without a secret. */
struct tcp_secret {
	bool set;
	uint8_t key[KEY_LEN];
};

enum hello_role {
	ROLE_CONNECT = 1,
	ROLE_LISTEN = 2,
};

#define HELLO_SECRET (1u << 0) /* proofs follow */
/* No channel over this connection: two endpoints of libfabric's meet (meet.h). */
#define HELLO_MEET (1u << 1)

struct hello {
	uint64_t magic; /* in the byte order of its writer */
	uint32_t version;
	uint32_t flags;
	uint32_t role;
	uint32_t eager_max;
	uint32_t unexpected_cnt;
	uint32_t zero;
	uint64_t unexpected_bytes;
	uint8_t nonce[NONCE_LEN];
	uint8_t reserved[56];
};
_Static_assert(sizeof(struct hello) == 128, "no holes");

enum hand_state {
	HAND_HELLO,
	HAND_PROOF,
	HAND_DONE,
};

/* One handshake. */
struct hand {
	int fd;
	enum hand_state state;
	const struct tcp_secret *secret; /* borrowed */
	struct hello mine, theirs;
	uint8_t proof[KEY_LEN];
	size_t got; /* bytes of what is awaited */
};

/* @opts->secret, or the environment's. 0, or a negative errno with a reason. */
int tcp_secret_get(struct tcp_secret *s, const struct kedge_channel_opts *opts);
void tcp_secret_forget(struct tcp_secret *s);

/* Over @fd, which stays the caller's. The end that connects speaks first. @flags
 * are HELLO_MEET or 0, and the same on both ends. */
int hand_begin(struct hand *h, int fd, enum hello_role role,
	       const struct tcp_secret *secret,
	       const struct kedge_channel_opts *opts, uint32_t flags);
/*
 * As far as it gets now. 1: it is done; 0: wait until @fd can be read; or a
 * negative errno with a reason: it has failed. What follows the handshake is
 * left in the socket.
 */
int hand_step(struct hand *h);
/* Set @peer to what both ends agreed on. */
void hand_peer(const struct hand *h, struct transport_peer *peer);
void hand_forget(struct hand *h);

#endif /* TCP_HELLO_H */
