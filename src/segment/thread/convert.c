// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread "kedge-convert": there while this process has a segment that is converted as it
 * is attached. It does what the other one may not, which waits for nothing: it takes the gate,
 * allocates, stops other threads (demand.c).
 *
 * It is ended by a call that holds the gate, so it waits for the gate only for as long as it
 * is not told to end. Where the process ends it is not waited for: it may be about to ask for
 * a lock of whoever ends it.
 */
#include <sched.h>
#include <semaphore.h>

#include "base/process/service.h"
#include "base/process/thread.h"
#include "segment/thread/thread.h"

/* Guarded by the gate. */
static unsigned int users;
static pthread_t thread;
static struct service service;

static void (*work)(void);
static sem_t wanted;
static _Atomic bool stop;

static void *run(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "kedge-convert");
	while (!atomic_load(&stop)) {
		if (sem_wait(&wanted) || !gate_lock_unless(&stop))
			continue;
		work();
		gate_unlock();
		/* Another thread may wait for the gate, and has it only if it comes to run. */
		sched_yield();
	}
	return NULL;
}

void convert_post(void)
{
	sem_post(&wanted);
}

static void end_unwaited(struct service *s)
{
	(void)s;
	atomic_store(&stop, true);
	pthread_detach(thread);
	convert_post();
}

static int begin(void)
{
	int rc;

	atomic_store(&stop, false);
	sem_init(&wanted, 0, 0);
	service.end = end_unwaited;
	rc = service_begin(&service);
	if (rc)
		return rc;
	/* Signals are blocked, with the gate. */
	rc = thread_start(&thread, run, NULL);
	if (rc)
		service_end(&service);
	else
		service_runs(&service);
	return rc;
}

int convert_begin(void (*fn)(void))
{
	int rc;

	work = fn;
	rc = users ? 0 : begin();
	users += !rc;
	return rc;
}

void convert_end(void)
{
	if (--users || !service_end(&service))
		return;
	atomic_store(&stop, true);
	convert_post();
	pthread_join(thread, NULL);
}

void convert_forget(void)
{
	users = 0;
}
