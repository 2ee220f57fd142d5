// SPDX-License-Identifier: BSD-2-Clause
/* The calls of a thread, the shallowest first. Each is later than those before it, as a new one
 * takes the place of all that are as deep or deeper. Stacks grow down on all that kedge runs on. */
#include <string.h>

#include "sight.h"

#define CALLS 8

struct call {
	uintptr_t frame;
	uint64_t clock;
};

static _Thread_local struct call calls[CALLS];
static _Thread_local unsigned int cnt;

uint64_t sight_before(uintptr_t frame)
{
	while (cnt && calls[cnt - 1].frame < frame)
		cnt--;
	return cnt ? calls[cnt - 1].clock : 0;
}

void sight_note(uintptr_t frame, uint64_t clock)
{
	while (cnt && calls[cnt - 1].frame <= frame)
		cnt--;
	/* Without the shallowest one a registration is made once more than it has to be. */
	if (cnt == CALLS)
		memmove(calls, calls + 1, --cnt * sizeof(calls[0]));
	calls[cnt++] = (struct call){ frame, clock };
}
