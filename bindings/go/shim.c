// SPDX-License-Identifier: BSD-2-Clause
/* Answers in words, and the uses of objects: see shim.h. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "shim.h"

struct go_rc go_answer(int64_t rc)
{
	struct go_rc a = { .rc = rc };

	if (rc < 0)
		a.why = strdup(kedge_strerror((int)rc));
	return a;
}

/* Threads that run at the same time have their blocks megabytes or pages apart. */
static struct go_use *own_slot(struct go_uses *u)
{
	static __thread char own;
	uintptr_t at = (uintptr_t)&own;

	return &u->slot[(at >> 12 ^ at >> 16 ^ at >> 20) % GO_USE_SLOTS];
}

enum state { OPEN, CLOSING, CLOSED };

/*
 * seq_cst, here and in go_use_close(): a use that does not see CLOSING is seen by the
 * sum that is made after it was set. A close that finds uses takes CLOSING back, so it
 * is waited for; it is a matter of a few loads.
 */
int go_use_begin(struct go_uses *u)
{
	_Atomic int64_t *n;
	int state;

	if (!u)
		return GO_CLOSED;
	n = &own_slot(u)->n;
	for (;;) {
		atomic_fetch_add_explicit(n, 1, memory_order_seq_cst);
		state = atomic_load_explicit(&u->state, memory_order_seq_cst);
		if (state == OPEN)
			return 0;
		atomic_fetch_sub_explicit(n, 1, memory_order_release);
		if (state == CLOSED)
			return GO_CLOSED;
		sched_yield();
	}
}

/* release: what was done by the use is over for the thread that closes. */
void go_use_end(struct go_uses *u)
{
	atomic_fetch_sub_explicit(&own_slot(u)->n, 1, memory_order_release);
}

/* relaxed: the use that this is called within keeps the sum above 0. */
void go_use_more(struct go_uses *u, int64_t n)
{
	atomic_fetch_add_explicit(&own_slot(u)->n, n, memory_order_relaxed);
}

int go_use_close(struct go_uses *u)
{
	int64_t sum = 0;
	int was = OPEN, i;

	if (!u)
		return GO_CLOSED;
	if (!atomic_compare_exchange_strong(&u->state, &was, CLOSING))
		return was == CLOSED ? GO_CLOSED : -EBUSY;
	for (i = 0; i < GO_USE_SLOTS; i++)
		sum += atomic_load_explicit(&u->slot[i].n, memory_order_seq_cst);
	atomic_store_explicit(&u->state, sum ? OPEN : CLOSED, memory_order_seq_cst);
	return sum ? -EBUSY : 0;
}
