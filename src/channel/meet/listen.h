/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A listener over TCP, and its table of connections in the middle of a handshake.
 *
 * Handshakes run beside each other, each with a deadline, whenever accept() is
 * called; no call waits for one stranger alone. Where the table or the process's
 * descriptors are full one makes room: of the network that has most of them the
 * oldest, silent ones first.
 */
#ifndef TCP_LISTEN_H
#define TCP_LISTEN_H

#include "base/list.h"
#include "base/process/clofork.h"
#include "channel/meet/handshake.h"

#define HALF_MAX 128u
#define HALF_MIN 16u
/* For a whole handshake. */
#define HALF_NS (5 * 1000000000ull)

struct half {
	struct list node; /* l->halves, in the order of arrival, or l->spare */
	struct hand hand;
	struct clofork sock; /* hand.fd */
	uint64_t deadline;
	uint8_t net[16]; /* where it is from: an address, or an IPv6 /64 */
};

struct tcp_listener {
	struct kedge_channel_opts opts;
	uint32_t flags; /* of its handshakes */
	struct tcp_secret secret;
	pid_t pid;
	struct clofork sock;
	struct clofork epoll;
	struct clofork spare; /* given up to turn a peer away */
	bool paused;	/* not asked for peers: there is no descriptor */
	uint64_t resume; /* when it will be */
	uint32_t half_cnt, half_max;
	struct half half[HALF_MAX];
	struct list halves, unused, ready;
};

int tcp_listen(const char *node, const char *service,
	       const struct kedge_channel_opts *opts, uint32_t flags,
	       struct tcp_listener **l);
void tcp_listener_close(struct tcp_listener *l);
/* The port that it got, or 0. */
unsigned int tcp_listener_port(const struct tcp_listener *l);
/* The address at which it listens, in KEDGE_ADDRESS_MAX bytes. */
int tcp_listener_address(const struct tcp_listener *l, char *text);
/* A connection to make a channel over. On success @sock is the caller's. */
int tcp_listener_accept(struct tcp_listener *l, int timeout_ms,
			struct clofork *sock, struct transport_peer *peer);

#endif /* TCP_LISTEN_H */
