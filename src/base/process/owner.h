/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State of a process that each of its children has to make anew: a forked child finds
 * the parent's lists and locks, and none of its threads. The first thread that comes
 * there does it, others wait for that; a mutex would not do, as a thread of the parent
 * may hold it when the process forks.
 *
 * The word is the id of the process that made the state, or its negative while a thread
 * makes it. A thread takes the word from any other value to its own process's negative
 * by compare-and-swap, so one thread makes the state; its store of the id comes after
 * that (release), and the others' load that finds the id comes before they use the state
 * (acquire; all are seq_cst): without the two a thread could take a lock that is being
 * made. A child that was forked while the parent's word was negative has the parent's
 * id in it, not its own, and takes the word over.
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
