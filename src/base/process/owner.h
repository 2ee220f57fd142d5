/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State of a process that each of its children has to make anew: a forked child finds
 * the parent's lists and locks, and none of its threads. The first thread that comes
 * there does it, others wait for that; a mutex would not do, as a thread of the parent
 * may hold it when the process forks.
 */
#ifndef BASE_PROCESS_OWNER_H
#define BASE_PROCESS_OWNER_H

#include <stdatomic.h>
#include <unistd.h>

/* @owner: the process that the state belongs to, 0 at first. Calls @anew once in this
 * process, before it returns to any thread. */
static inline void owner_adopt(_Atomic int *owner, void (*anew)(void))
{
	int me = getpid(), was = atomic_load(owner);

	while (was != me) {
		/* Negative: another thread is at it. */
		if (was != -me &&
		    atomic_compare_exchange_weak(owner, &was, -me)) {
			anew();
			atomic_store(owner, me);
		}
		was = atomic_load(owner);
	}
}

#endif /* BASE_PROCESS_OWNER_H */
