/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No call of kedge is a cancellation point, though the system's calls may be: a
 * thread that ended in one would leave a lock held, or a message sent that is in
 * the queue still. So what leads to one of them is walked with cancellation
 * disabled; what is pending acts at the caller's next cancellation point.
 */
#ifndef BASE_PROCESS_CANCEL_H
#define BASE_PROCESS_CANCEL_H

#include <pthread.h>

static inline int cancel_disable(void)
{
	int saved;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	return saved;
}

static inline void cancel_restore(int saved)
{
	pthread_setcancelstate(saved, &saved);
}

static inline void cancel_end(const int *saved)
{
	cancel_restore(*saved);
}

/* As a declaration: until the end of its block. */
#define NO_CANCEL()                                                       \
	__attribute__((cleanup(cancel_end), unused)) const int no_cancel = \
		cancel_disable()

#endif /* BASE_PROCESS_CANCEL_H */
