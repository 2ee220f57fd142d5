/* SPDX-License-Identifier: BSD-2-Clause */
/* A descriptor that is readable from a ring on: two sockets, as these have an identity, and the
 * program may have closed them. Not by two threads at a time. */
#ifndef REGION_BELL_H
#define REGION_BELL_H

#include "base/process/clofork.h"

struct bell {
	struct clofork in;
	struct clofork out;
	bool rung;
};

void bell_init(struct bell *b);
/* 0 or a negative errno with its reason, and it has no descriptor. */
int bell_open(struct bell *b);
void bell_close(struct bell *b);
/* False: it has no descriptor, or the program has closed one. */
bool bell_works(const struct bell *b);
/* Without effect where it does not work. */
void bell_ring(struct bell *b);
void bell_quiet(struct bell *b);

#endif /* REGION_BELL_H */
