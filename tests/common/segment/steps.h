/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that is killed at a chosen step. A step is the entry of a system call: what the
 * kernel keeps of a process, and what other processes see of it, changes in system calls, so
 * each state that a kill can leave is there at the entry of some call. A seccomp filter
 * hands each call of the process, of its threads and of its children to the test
 * (SECCOMP_RET_USER_NOTIF), which lets it go on, or kills the process instead.
 *
 * A tracer could do the same, but kedge traces the threads of its own process for a moment,
 * and a thread has one tracer.
 */
#ifndef TESTS_SEGMENT_STEPS_H
#define TESTS_SEGMENT_STEPS_H

#include <stdbool.h>
#include <sys/types.h>

/* The thread that calls kedge, those that kedge starts, and processes that it starts. */
enum steps_of { CALLER, THREADS, HELPERS, STEPS_OF_CNT };

struct steps {
	int listener; /* of the filter; -1: there is none */
	pid_t pid;
	enum steps_of of;
	unsigned int kill_at; /* the step of those; 0: none */
	unsigned int cnt;
	bool killed;
};

/*
 * In the process: from now on all calls, of all its threads, are steps but those with @but as
 * the first argument, and those that only wait or look. The listener, or a negative errno.
 */
int steps_begin(int but);

/* In the test, which has got the listener. */
void steps_listen(struct steps *s, int listener);
/* Count from now on, and kill at step @at. */
void steps_count(struct steps *s, enum steps_of of, unsigned int at);
/* One call, if there is one: it goes on, or the process is killed. */
void steps_one(struct steps *s);
/* The process is killed, if it was not before: when it has ended, and all that it started. */
void steps_end(struct steps *s);

#endif /* TESTS_SEGMENT_STEPS_H */
