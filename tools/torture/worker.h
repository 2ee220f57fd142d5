/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that waits for a job, does it, and waits again. */
#ifndef TORTURE_WORKER_H
#define TORTURE_WORKER_H

#include <pthread.h>
#include <stdbool.h>

struct worker {
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t wake, done;
	void (*fn)(void *arg);
	void *arg;
	bool busy, quit, started;
	pthread_t thread;
};

/* 0 or a negative errno. */
int worker_start(struct worker *w);
void worker_post(struct worker *w, void (*fn)(void *), void *arg);
void worker_wait(struct worker *w);
/* NULL-safe, and safe for one that was never started. */
void worker_stop(struct worker *w);

#endif /* TORTURE_WORKER_H */
