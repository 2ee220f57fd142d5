// SPDX-License-Identifier: BSD-2-Clause
/* A thread that waits for a job, does it, and waits again. */
#include <string.h>

#include "tools/torture/worker.h"

static void *worker_main(void *p)
{
	struct worker *w = p;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->busy && !w->quit)
			pthread_cond_wait(&w->wake, &w->lock);
		if (!w->busy)
			break;
		pthread_mutex_unlock(&w->lock);
		w->fn(w->arg);
		pthread_mutex_lock(&w->lock);
		w->busy = false;
		pthread_cond_signal(&w->done);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int worker_start(struct worker *w)
{
	int err;

	memset(w, 0, sizeof(*w));
	err = -pthread_mutex_init(&w->lock, NULL);
	if (err)
		return err;
	err = -pthread_cond_init(&w->wake, NULL);
	if (err)
		goto destroy_lock;
	err = -pthread_cond_init(&w->done, NULL);
	if (err)
		goto destroy_wake;
	err = -pthread_create(&w->thread, NULL, worker_main, w);
	if (err)
		goto destroy_done;
	w->started = true;
	return 0;

destroy_done:
	pthread_cond_destroy(&w->done);
destroy_wake:
	pthread_cond_destroy(&w->wake);
destroy_lock:
	pthread_mutex_destroy(&w->lock);
	return err;
}

void worker_post(struct worker *w, void (*fn)(void *), void *arg)
{
	pthread_mutex_lock(&w->lock);
	w->fn = fn;
	w->arg = arg;
	w->busy = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void worker_wait(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->busy)
		pthread_cond_wait(&w->done, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

void worker_stop(struct worker *w)
{
	if (!w || !w->started)
		return;
	pthread_mutex_lock(&w->lock);
	w->quit = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->done);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	w->started = false;
}
