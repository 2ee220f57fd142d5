/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mutex held with signals blocked and cancellation disabled. A thread that is
 * inside one of these locks must never run foreign code: a signal handler that
 * unmaps watched memory would wait for a monitor thread that waits for this
 * lock. And it must not end: pthread_cancel() acts at write(), read() and the
 * like, and the lock would stay taken for good.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/*
 * Block signals (lock.c says which), and put back the mask from before the first
 * of nested calls. Code in between must not change the mask, nor call code that
 * may: a device, a callback.
 */
void signals_block(void);
void signals_restore(void);
/* In between: the mask that will be put back. */
void signals_before(sigset_t *mask);

#define NO_CPU (-1)

struct sig_lock {
	pthread_mutex_t mutex;
	_Atomic int cpu; /* where its last holder took it, or NO_CPU */
};

#define SIG_LOCK_INIT { .mutex = PTHREAD_MUTEX_INITIALIZER, .cpu = NO_CPU }

int sig_lock_init(struct sig_lock *l);
void sig_lock_fini(struct sig_lock *l);
void sig_lock(struct sig_lock *l);
void sig_unlock(struct sig_lock *l);

/* The same for a thread that is known to have signals blocked. */
void sig_lock_blocked(struct sig_lock *l);
void sig_unlock_blocked(struct sig_lock *l);

#endif /* BASE_LOCK_H */
