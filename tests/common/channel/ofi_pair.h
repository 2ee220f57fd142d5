/* SPDX-License-Identifier: BSD-2-Clause */
/* Two ends of a connection of libfabric's over the loopback interface. */
#ifndef TESTS_OFI_PAIR_H
#define TESTS_OFI_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "channel/ofi/internal.h"

#include <cmocka.h>

#define T kedge__rdma_ops

struct pair {
	struct ofi_listener *l;
	char port[8];
	struct ofi *a, *b; /* a connected, b accepted */
	struct transport_peer at_a, at_b;
};

const char *pair_provider(void);
/* The defaults. */
struct kedge_channel_opts pair_opts(void);
struct ofi_listener *pair_listen(char port[8]);
/* 77 after saying why, if there is no provider here. */
int pair_missing(void);
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

/* A pattern that tells bytes and messages apart. */
void fill_bytes(void *at, size_t len, uint64_t seed);
bool same_bytes(const void *at, size_t len, uint64_t seed);

#endif /* TESTS_OFI_PAIR_H */
