/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations of a remote that were submitted and have to wait, and the thread that does them. */
#ifndef REGION_LATER_H
#define REGION_LATER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/process/service.h"
#include "region/peer/access.h"
#include "region/peer/later/bell.h"

/*
 * @cnt:     operations in the line, or that the thread is at. A thread that submits adds to it, and
 *           finds what it has added itself; the last store, by the thread "kedge-remote" (release),
 *           comes after all that these operations do, and a thread that loads 0 (acquire) does its
 *           own after that
 * @stop:    the thread ends soon, and what is in the line is cancelled
 * @start:   guards @started: there is a thread, or was
 * @work:    there is an operation in the line, or it is to stop
 * @first:   the line, in the order of submission; the thread alone takes from it
 * @polling: the thread waits for a connection, and is woken by @bell
 */
struct later {
	struct kedge_remote *remote;
	_Atomic size_t cnt;
	_Atomic bool stop;
	pthread_mutex_t start;
	bool started;
	pthread_t thread;
	struct service service;
	pthread_mutex_t lock; /* guards: */
	pthread_cond_t work;
	struct op *first;
	struct op *last;
	bool polling;
	struct bell bell;
};

/* ---- line.c ---- */

/* NULL: no memory. */
struct later *line_make(struct kedge_remote *r);
void line_free(struct later *w, bool child);
/* Without a descriptor that is left for it the thread looks now and then. */
void line_open_bell(struct later *w);
void line_add(struct later *w, struct op *o);
/* By the thread: the first, NULL where there is none; or the one behind @o. */
struct op *line_first(struct later *w);
struct op *line_behind(struct later *w, const struct op *o);
/* Wait until there is one, or it is to stop. */
struct op *line_wait(struct later *w);
/* The first of them is over with @rc, which has its reason. */
void line_complete(struct later *w, int rc);
/* It is to stop. */
void line_stop(struct later *w);
/* About to wait for a descriptor, and the bell, unless there is one behind @o, or a first one where
 * that is NULL: false. */
bool line_polls(struct later *w, const struct op *o);
void line_polled(struct later *w);

/* ---- pipeline.c ---- */

/* Do as many operations of the line as go on by @l, a connection: on return they are over. */
void pipeline_run(struct later *w, struct link *l);

/* ---- later.c ---- */

/* It has a line, and a thread: 0, or a negative errno with its reason. */
int later_begin(struct kedge_remote *r, struct later **later);
/* No operation is under way any more. */
void later_end(struct kedge_remote *r, bool child);

#endif /* REGION_LATER_H */
