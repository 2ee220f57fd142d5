/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer in a process of its own, and a socket between that and the test. */
#ifndef TESTS_CHANNEL_CHILD_H
#define TESTS_CHANNEL_CHILD_H

#include <sys/types.h>

#include "core.h"

#define LIMIT 100 /* seconds, after which a case that hangs has failed */

/* An abstract name for this case's listener. */
extern char child_path[64];
/* The test's end, and the peer's. */
extern int child_sock[2];

/* Run @fn in a child, which exits with 0 when that returns. */
pid_t child_begin(void (*fn)(void));
/* The child exits with 0. */
void child_ends_well(pid_t pid);
void child_kill(pid_t pid);

/* Sleep until there is something to do, and poll for one completion. */
ssize_t wait_and_poll(struct kedge_channel *ch, struct kedge_completion *c);

/* The setup of a case: its time, and its path. */
int child_limit(void **state);
#define CASE(fn) cmocka_unit_test_setup(fn, child_limit)

#endif /* TESTS_CHANNEL_CHILD_H */
