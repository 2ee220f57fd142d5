/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends of a channel in one process, driven by turns, so that each case
 * decides what has happened when.
 */
#ifndef TESTS_CHANNEL_PAIR_H
#define TESTS_CHANNEL_PAIR_H

#include "base/base.h"
#include "core.h"

#define ANY    0, 0
#define TAG(t) (t), UINT64_MAX
#define MIB    ((size_t)1 << 20)

struct end {
	struct kedge_channel *ch;
	struct kedge_completion done[64];
	size_t cnt;
};

extern struct end a, b;

/* TEST_CHANNEL_OVER=tcp: over the loopback interface, else over shared memory. */
bool over_tcp(void);
/* Connected, each with its options. */
void open_pair(const struct kedge_channel_opts *oa,
	       const struct kedge_channel_opts *ob);
void close_pair(void);

/* Poll once: what that says. */
ssize_t turn(struct end *e);
/* Until both have so many completions; more is a failure. */
void turns(size_t on_a, size_t on_b);
/* So many that all that can move has. */
void many_turns(void);

void fill(char *p, size_t len, unsigned int seed);
bool is_filled(const char *p, size_t len, unsigned int seed);

void post(struct end *e, void *buf, size_t len, uint64_t tag, uint64_t mask,
	  uint64_t user);
/* 1 if it was complete at once. */
int put(struct end *e, const void *buf, size_t len, uint64_t tag);

#endif /* TESTS_CHANNEL_PAIR_H */
