// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread "kedge-remote": it does the operations in the line one after the other, and those by
 * a connection several at once (pipeline.c). There is one for each remote that has had an operation
 * which had to wait, up to the remote's end. It waits in short steps, so that it ends soon after
 * it is told to.
 *
 * A submission takes @start before a service's lock; the one that ends services has that lock, and
 * takes the line's, so the line's is never held over a service's call.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "base/base.h"
#include "base/process/thread.h"
#include "region/peer/later/later.h"

static void step(struct later *w, struct op *o)
{
	struct access a;
	int rc = o->made ? o->status : op_check(w->remote, o);

	if (!rc && !o->made) {
		a = op_access(w->remote, o);
		a.stop = &w->stop;
		rc = op_perform(&a, o);
	}
	if (rc == ACCESS_STREAMED)
		pipeline_run(w, a.l);
	else
		line_complete(w, rc);
}

static void cancel_all(struct later *w)
{
	while (line_first(w))
		line_complete(w, kedge_reason(-ECANCELED, "the remote region was closed "
					      "meanwhile"));
}

static void *run(void *arg)
{
	struct later *w = arg;
	struct op *o;

	prctl(PR_SET_NAME, "kedge-remote");
	while ((o = line_wait(w)) && !atomic_load(&w->stop))
		step(w, o);
	cancel_all(w);
	service_thread_is_ours();
	return NULL;
}

static void end_thread(struct service *s)
{
	struct later *w = container_of(s, struct later, service);

	line_stop(w);
	pthread_join(w->thread, NULL);
}

/* A directory is the program's code, or another library's. */
static int start_thread(struct later *w)
{
	sigset_t all, saved;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = w->remote->directory ? -pthread_create(&w->thread, NULL, run, w)
				  : thread_start(&w->thread, run, w);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return rc;
}

/* With @w->start. */
static int start(struct later *w)
{
	int rc;

	if (w->started)
		return 0;
	w->service.end = end_thread;
	rc = service_begin(&w->service);
	if (rc)
		return kedge_reason(rc, "no memory for a thread");
	rc = start_thread(w);
	if (rc) {
		service_end(&w->service);
		return thread_refused(rc, "do what is submitted");
	}
	w->started = true;
	service_runs(&w->service);
	return 0;
}

static struct later *line_of(struct kedge_remote *r)
{
	struct later *w = atomic_load(&r->later), *none = NULL, *mine;

	if (w)
		return w;
	mine = line_make(r);
	if (!mine)
		return NULL;
	if (atomic_compare_exchange_strong(&r->later, &none, mine))
		return mine;
	line_free(mine, false);
	return none;
}

int later_begin(struct kedge_remote *r, struct later **later)
{
	struct later *w = line_of(r);
	int rc;

	if (!w)
		return kedge_reason(-ENOMEM, "no memory for operations that wait");
	pthread_mutex_lock(&w->start);
	rc = start(w);
	pthread_mutex_unlock(&w->start);
	if (!rc && atomic_load(&w->stop))
		rc = kedge_reason(-ESHUTDOWN, "the program's threads have ended");
	*later = w;
	return rc;
}

void later_end(struct kedge_remote *r, bool child)
{
	struct later *w = atomic_load(&r->later);

	if (!w)
		return;
	if (!child && w->started && service_end(&w->service))
		end_thread(&w->service);
	line_free(w, child);
	atomic_store(&r->later, NULL);
}
