// SPDX-License-Identifier: BSD-2-Clause
/*
 * Signals that report the thread's own fault stay open: they can't wait, and a
 * fault in here is a bug that should be seen.
 */
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

void sig_lock(struct sig_lock *l)
{
	sigset_t block, saved;

	all_but_faults(&block);
	pthread_sigmask(SIG_BLOCK, &block, &saved);
	pthread_mutex_lock(&l->mutex);
	l->saved = saved;
}

void sig_unlock(struct sig_lock *l)
{
	sigset_t saved = l->saved;

	pthread_mutex_unlock(&l->mutex);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
}
