// SPDX-License-Identifier: BSD-2-Clause
/* The line of operations that wait for the thread "kedge-remote". */
#include <stdlib.h>

#include "base/base.h"
#include "region/peer/later/later.h"

struct later *line_make(struct kedge_remote *r)
{
	struct later *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->remote = r;
	pthread_mutex_init(&w->start, NULL);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	bell_init(&w->bell);
	return w;
}

/* In a child threads of the parent's may have its locks. */
void line_free(struct later *w, bool child)
{
	if (!child) {
		bell_close(&w->bell);
		pthread_cond_destroy(&w->work);
		pthread_mutex_destroy(&w->lock);
		pthread_mutex_destroy(&w->start);
	}
	free(w);
}

void line_open_bell(struct later *w)
{
	pthread_mutex_lock(&w->lock);
	if (w->bell.in.fd < 0)
		bell_open(&w->bell);
	pthread_mutex_unlock(&w->lock);
}

void line_add(struct later *w, struct op *o)
{
	atomic_fetch_add(&w->cnt, 1);
	o->next = NULL;
	pthread_mutex_lock(&w->lock);
	if (w->first)
		w->last->next = o;
	else
		w->first = o;
	w->last = o;
	if (w->polling)
		bell_ring(&w->bell);
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

struct op *line_behind(struct later *w, const struct op *o)
{
	struct op *next;

	pthread_mutex_lock(&w->lock);
	next = o ? o->next : w->first;
	pthread_mutex_unlock(&w->lock);
	return next;
}

struct op *line_first(struct later *w)
{
	return line_behind(w, NULL);
}

struct op *line_wait(struct later *w)
{
	struct op *o;

	pthread_mutex_lock(&w->lock);
	while (!w->first && !atomic_load(&w->stop))
		pthread_cond_wait(&w->work, &w->lock);
	o = w->first;
	pthread_mutex_unlock(&w->lock);
	return o;
}

/* Its completion is there before the next operation of its thread may be done by that. */
void line_complete(struct later *w, int rc)
{
	struct op *o;

	pthread_mutex_lock(&w->lock);
	o = w->first;
	w->first = o->next;
	pthread_mutex_unlock(&w->lock);
	queue_complete(o, rc);
	atomic_fetch_sub_explicit(&w->cnt, 1, memory_order_release);
}

void line_stop(struct later *w)
{
	pthread_mutex_lock(&w->lock);
	atomic_store(&w->stop, true);
	bell_ring(&w->bell);
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

bool line_polls(struct later *w, const struct op *o)
{
	pthread_mutex_lock(&w->lock);
	w->polling = !(o ? o->next : w->first) && !atomic_load(&w->stop);
	pthread_mutex_unlock(&w->lock);
	return w->polling;
}

void line_polled(struct later *w)
{
	pthread_mutex_lock(&w->lock);
	w->polling = false;
	bell_quiet(&w->bell);
	pthread_mutex_unlock(&w->lock);
}
