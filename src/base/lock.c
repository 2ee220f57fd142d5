// SPDX-License-Identifier: BSD-2-Clause
/*
 * Signals that report the thread's own fault stay open: they can't wait, and a
 * fault in here is a bug that should be seen.
 */
#include "base/base.h"
#include "base/lock.h"

static void all_but_faults(sigset_t *set)
{
	sigfillset(set);
	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGBUS);
	sigdelset(set, SIGILL);
	sigdelset(set, SIGFPE);
	sigdelset(set, SIGTRAP);
	sigdelset(set, SIGABRT);
}

int sig_lock_init(struct sig_lock *l)
{
	return -pthread_mutex_init(&l->mutex, NULL);
}

void sig_lock_fini(struct sig_lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

/*
 * It is held for a microsecond or a few, and who wants it has mostly just been
 * let go by the monitor that holds it: to sleep would cost two switches more.
 */
#define SPINS 400

static void take(struct sig_lock *l)
{
	unsigned int i;

	for (i = 0; i < SPINS; i++) {
		if (!pthread_mutex_trylock(&l->mutex))
			return;
		cpu_relax();
	}
	pthread_mutex_lock(&l->mutex);
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
 * lock and allocates nothing, so it is safe in a signal handler, in a vfork
 * child (which has its parent's word, and puts it back) and before constructors.
 * It is the first here and the last below, so that neither the mask nor the
 * mutex is left behind by a thread whose cancellation is asynchronous.
 */
void signals_block(struct sig_guard *g)
{
	sigset_t block;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancel);
	all_but_faults(&block);
	pthread_sigmask(SIG_BLOCK, &block, &g->saved);
}

void signals_restore(const struct sig_guard *g)
{
	pthread_sigmask(SIG_SETMASK, &g->saved, NULL);
	pthread_setcancelstate(g->cancel, NULL);
}

void sig_lock(struct sig_lock *l)
{
	struct sig_guard before;

	signals_block(&before);
	take(l);
	l->before = before;
}

void sig_unlock(struct sig_lock *l)
{
	struct sig_guard before = l->before;

	pthread_mutex_unlock(&l->mutex);
	signals_restore(&before);
}
