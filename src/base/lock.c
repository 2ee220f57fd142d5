// SPDX-License-Identifier: BSD-2-Clause
/*
 * Signals that report the thread's own fault stay open: they can't wait, and a
 * fault in here is a bug that should be seen. So does SIGSYS, which answers the
 * thread's own system call: where it is blocked the kernel ends the process.
 *
 * Blocking nests, so that a call which takes several locks in a row changes the
 * mask once: each change is a system call. How often it is nested is a number
 * of the thread's own, guarded by the mask itself: it is raised after signals
 * were blocked and falls to 0 before they are let in, so a handler that
 * interrupts either always finds 0, blocks for itself, and leaves 0. The mask
 * to put back lives beside the number, not in the locks: they may be let go in
 * any order. It is written after signals were blocked, too, and read before
 * they are let in: a handler in between would replace it by its own.
 */
#include <sched.h>

#include "base/base.h"
#include "base/lock.h"

/* The calling thread's mask and cancel state of before it blocked signals. */
struct before {
	unsigned int depth;
	int cancel;
	sigset_t mask;
};

static __thread struct before before;

static void all_but_faults(sigset_t *set)
{
	sigfillset(set);
	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGBUS);
	sigdelset(set, SIGILL);
	sigdelset(set, SIGFPE);
	sigdelset(set, SIGTRAP);
	sigdelset(set, SIGABRT);
	sigdelset(set, SIGSYS);
}

int sig_lock_init(struct sig_lock *l)
{
	atomic_init(&l->cpu, NO_CPU);
	return -pthread_mutex_init(&l->mutex, NULL);
}

void sig_lock_fini(struct sig_lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

/*
 * The lock is held for a microsecond or a few, and a thread that wants it has
 * mostly just been let go by the monitor that holds it: to sleep would cost two
 * switches more. But the thread may have taken the monitor's CPU. Then no
 * spinning helps: the monitor goes on when we sleep. (The number of its CPU may
 * be old, or that of the holder before, which costs only a spin or a sleep too
 * many.)
 */
#define SPINS 400

static void take(struct sig_lock *l)
{
	bool taken = false;
	unsigned int i;

	for (i = 0; i < SPINS && !taken; i++) {
		taken = !pthread_mutex_trylock(&l->mutex);
		if (taken || atomic_load_explicit(&l->cpu,
						  memory_order_relaxed) ==
				     sched_getcpu())
			break;
		cpu_relax();
	}
	if (!taken)
		pthread_mutex_lock(&l->mutex);
	atomic_store_explicit(&l->cpu, sched_getcpu(), memory_order_relaxed);
}

void sig_lock_blocked(struct sig_lock *l)
{
	take(l);
}

void sig_unlock_blocked(struct sig_lock *l)
{
	pthread_mutex_unlock(&l->mutex);
}

/*
 * pthread_setcancelstate() changes a word of the calling thread: it takes no
 * lock and does not allocate, so it is safe in a signal handler, in a vfork
 * child (which has its parent's words, and puts them back) and before
 * constructors. It is the first here and the last below, so that a thread with
 * asynchronous cancellation leaves neither the mask nor the mutex behind.
 */
void signals_block(void)
{
	sigset_t block, mask;
	int cancel;

	if (before.depth) {
		before.depth++;
		return;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	all_but_faults(&block);
	pthread_sigmask(SIG_BLOCK, &block, &mask);
	compiler_fence();
	before.mask = mask;
	before.cancel = cancel;
	before.depth = 1;
}

void signals_restore(void)
{
	sigset_t mask = before.mask;
	int cancel = before.cancel;

	if (--before.depth)
		return;
	compiler_fence();
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	pthread_setcancelstate(cancel, NULL);
}

void signals_before(sigset_t *mask)
{
	*mask = before.mask;
}

void sig_lock(struct sig_lock *l)
{
	signals_block();
	take(l);
}

void sig_unlock(struct sig_lock *l)
{
	pthread_mutex_unlock(&l->mutex);
	signals_restore();
}
