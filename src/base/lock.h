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

/* The calling thread's mask and cancel state of before. */
struct sig_guard {
	sigset_t saved;
	int cancel;
};

void signals_block(struct sig_guard *g);
void signals_restore(const struct sig_guard *g);

struct sig_lock {
	pthread_mutex_t mutex;
	struct sig_guard before; /* of the holder */
};

#define SIG_LOCK_INIT { .mutex = PTHREAD_MUTEX_INITIALIZER }

int sig_lock_init(struct sig_lock *l);
void sig_lock_fini(struct sig_lock *l);
void sig_lock(struct sig_lock *l);
void sig_unlock(struct sig_lock *l);

/*
 * The same for a thread that has signals blocked: for good, or because it takes
 * more than one lock in a row. Each change of the mask is a system call.
 */
void sig_lock_blocked(struct sig_lock *l);
void sig_unlock_blocked(struct sig_lock *l);

#endif /* BASE_LOCK_H */
