// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread "kedge-regions". It sleeps on a word, not on a descriptor: the others have
 * another table of them.
 *
 * One request at a time: @turn is held by the caller from before its request is written until
 * it has the answer. The word @state says which of both is to act: the caller stores
 * ASKED (release) when the request is written, the thread stores DONE (release) when the
 * answer is; each reads the other's data after it has loaded that (acquire). Both sleep by
 * futex as long as it is not theirs.
 */
#include <limits.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/process/service.h"
#include "base/process/thread.h"
#include "region/keeper.h"

enum { IDLE, ASKED, DONE, OVER };

#define ENDS 2 /* threads that have its table, and end before it */

static struct sig_lock users_lock = SIG_LOCK_INIT; /* guards: */
static unsigned int users;
static void (*_Atomic before_end[ENDS])(void);
static pthread_t thread;
static struct service service;

static struct sig_lock turn = SIG_LOCK_INIT;
static _Atomic uint32_t state;
static struct {
	int (*fn)(void *arg);
	void *arg;
	int rc;
	char reason[256];
} request;

static void sleep_while(uint32_t is)
{
	syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, is, NULL, NULL, 0);
}

static void set_state(uint32_t to)
{
	atomic_store_explicit(&state, to, memory_order_release);
	syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the thread ---- */

/* The first also where a filter forbids unshare(), as for containers. */
static int own_table(void)
{
	if (!syscall(SYS_close_range, 0, UINT_MAX, CLOSE_RANGE_UNSHARE))
		return 0;
	if (unshare(CLONE_FILES))
		return kedge_reason(-errno, "no table of descriptors of its own for kedge's "
				    "thread: allow close_range() or unshare(CLONE_FILES) in "
				    "the container's seccomp profile");
	syscall(SYS_close_range, 0, UINT_MAX, 0);
	return 0;
}

static void answer(int rc)
{
	request.rc = rc;
	if (rc < 0)
		snprintf(request.reason, sizeof(request.reason), "%s", kedge_strerror(rc));
	set_state(DONE);
}

static void *run(void *unused)
{
	uint32_t now;
	int rc;

	(void)unused;
	prctl(PR_SET_NAME, "kedge-regions");
	rc = own_table();
	answer(rc);
	while (!rc) {
		now = atomic_load_explicit(&state, memory_order_acquire);
		if (now == OVER)
			break;
		if (now == ASKED)
			answer(request.fn(request.arg));
		else
			sleep_while(now);
	}
	return NULL;
}

/* ---- the others ---- */

static int wait_done(void)
{
	uint32_t now;

	while ((now = atomic_load_explicit(&state, memory_order_acquire)) != DONE)
		sleep_while(now);
	return request.rc < 0 ? kedge_reason(request.rc, "%s", request.reason) : request.rc;
}

int keeper_call(int (*fn)(void *arg), void *arg)
{
	int rc;

	/* With the last thread of the program's: exit() runs, and may call this. */
	if (service.ended)
		return kedge_reason(-ESHUTDOWN, "the program's threads have ended");
	sig_lock(&turn);
	request.fn = fn;
	request.arg = arg;
	set_state(ASKED);
	rc = wait_done();
	sig_unlock(&turn);
	return rc;
}

/* With the lock of whoever ends services, or of users. */
static void end_thread(struct service *s)
{
	(void)s;
	set_state(OVER);
	pthread_join(thread, NULL);
}

static int start(void)
{
	sigset_t all, saved;
	int rc;

	service.end = end_thread;
	atomic_store(&state, IDLE);
	rc = service_begin(&service);
	if (rc)
		return kedge_reason(rc, "no memory for a thread");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = thread_start(&thread, run, NULL);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (rc) {
		service_end(&service);
		return thread_refused(rc, "keep regions");
	}
	rc = wait_done();
	if (!rc)
		service_runs(&service);
	else if (service_end(&service))
		pthread_join(thread, NULL);
	return rc;
}

int keeper_use(void)
{
	int rc = 0;

	sig_lock(&users_lock);
	if (!users)
		rc = start();
	users += !rc;
	sig_unlock(&users_lock);
	return rc;
}

void keeper_unuse(void)
{
	size_t i;

	sig_lock(&users_lock);
	if (!--users) {
		for (i = 0; i < ENDS; i++)
			if (before_end[i])
				before_end[i]();
		if (service_end(&service))
			end_thread(&service);
	}
	sig_unlock(&users_lock);
}

void keeper_before_end(void (*fn)(void))
{
	size_t i;

	for (i = 0; i < ENDS; i++) {
		void (*none)(void) = NULL;

		if (before_end[i] == fn ||
		    atomic_compare_exchange_strong(&before_end[i], &none, fn))
			return;
	}
}

/* ---- threads beside it ---- */

/* Before the keeper's is ended, as it began later. */
static void stop_beside(struct service *s)
{
	struct keeper_thread *t = (struct keeper_thread *)s;

	if (!keeper_call(t->say_stop, NULL))
		pthread_join(t->thread, NULL);
	keeper_call(t->finish, NULL);
}

int keeper_thread_use(struct keeper_thread *t)
{
	int rc;

	if (t->runs)
		return 0;
	t->service.end = stop_beside;
	rc = service_begin(&t->service);
	if (rc)
		return kedge_reason(rc, "no memory for a thread");
	rc = keeper_call(t->start, NULL);
	if (!rc) {
		service_runs(&t->service);
		keeper_before_end(t->end);
		t->runs = true;
		return 0;
	}
	service_end(&t->service);
	if (error_no_fd(-rc))
		return error_no_fd(-rc);
	return rc == -EAGAIN ? thread_refused(rc, t->what)
			     : kedge_reason(rc, "no thread can be made to %s: error %d", t->what,
					    -rc);
}

void keeper_thread_end(struct keeper_thread *t)
{
	if (t->runs && service_end(&t->service))
		stop_beside(&t->service);
	t->runs = false;
}

void keeper_forget(void)
{
	sig_lock_init(&users_lock);
	sig_lock_init(&turn);
	users = 0;
}
