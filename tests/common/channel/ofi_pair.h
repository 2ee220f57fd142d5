/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of a connection of libfabric's over the loopback interface, below a
 * channel; and what channel_pair.h needs of it. The provider is the one that
 * TEST_CHANNEL_OVER names, or "tcp".
 */
#ifndef TESTS_OFI_PAIR_H
#define TESTS_OFI_PAIR_H

#include "channel/ofi/internal.h"
#include "core.h"

#define T kedge__rdma_ops

struct pair {
	struct ofi_listener *l;
	char port[8];
	struct ofi *a, *b; /* a connected, b accepted */
	struct transport_peer at_a, at_b;
};

const char *pair_provider(void);
/* It has no connections. */
bool pair_is_rdm(void);
/* 77 after saying why, if there is no such provider here. */
int ofi_missing(void);
int pair_open(struct pair *p);
/* The ends may be NULL: closed before. */
void pair_close(struct pair *p);

/* Drive both ends once. */
void pair_turn(struct pair *p);
/* Until @cond, or fail after ten seconds. */
#define PAIR_UNTIL(p, cond)                                            \
	do {                                                           \
		uint64_t end_ = clock_ns() + 10000000000ull;           \
		while (!(cond)) {                                      \
			pair_turn(p);                                  \
			if (clock_ns() > end_)                         \
				fail_msg("never: %s", #cond);          \
		}                                                      \
	} while (0)

/* The same for a call of libfabric's that may be too early. */
#define PAIR_TRY(p, call) PAIR_UNTIL(p, (call) != -FI_EAGAIN)

/* ---- one that connects, and one that is let in ---- */

/* Of both ends: the defaults, from ofi_defaults() on, which is a setup. */
extern struct kedge_channel_opts ofi_opts;
int ofi_defaults(void **state);

/* A listener, with its port as text. */
struct ofi_listener *pair_listen(char port[8]);
/* Connect, and close what that gives. */
int connect_to(const char *port, int timeout_ms);
/* A bare connection of TCP's to a port. */
int socket_to(const char *port);

/* A thread that calls, by connect_to() if @caller is NULL; @rc is 1 until it is over. */
struct call {
	const char *port;
	int (*caller)(const char *port);
	int rc;
	pthread_t thread;
};

void call_begin(struct call *c, const char *port, int (*caller)(const char *port));
bool call_is_over(const struct call *c);
/* What it came to. */
int call_end(struct call *c);

/* The listener lets in one of ours. */
void still_lets_in(struct ofi_listener *l, const char *port);

/* ---- memory ---- */

/* A pattern that tells bytes and messages apart. */
void fill_bytes(void *at, size_t len, uint64_t seed);
bool same_bytes(const void *at, size_t len, uint64_t seed);

#endif /* TESTS_OFI_PAIR_H */
