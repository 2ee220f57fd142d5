// SPDX-License-Identifier: BSD-2-Clause
/*
 * Peers that are connected by a socket, and are to be told where their region has migrated to: a
 * call that says that it has does not return before, so that this process may end. What a socket
 * holds for the other side stays there.
 */
#include <time.h>

#include "base/base.h"
#include "region/share/share.h"

#define NAP_NS 100000

static _Atomic unsigned int owed;

void telling_begin(struct conn *c)
{
	c->owed = true;
	atomic_fetch_add(&owed, 1);
}

void telling_end(struct conn *c)
{
	atomic_fetch_sub(&owed, c->owed);
	c->owed = false;
}

void telling_wait(unsigned int ms)
{
	const struct timespec nap = { 0, NAP_NS };
	const uint64_t until = clock_after_ms(ms);

	while (atomic_load(&owed) && clock_ns() < until)
		nanosleep(&nap, NULL);
}

void telling_forget(void)
{
	atomic_store(&owed, 0);
}
