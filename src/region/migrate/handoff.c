// SPDX-License-Identifier: BSD-2-Clause
/* Between the thread that does it and the program: how it goes, and why it fails. The program's
 * functions are called in its own thread, which waits. */
#include <time.h>

#include "base/base.h"
#include "region/migrate/job.h"

#define NAP_NS 1000000

uint64_t job_until(const struct job *j)
{
	return clock_after_ms(j->o.timeout_ms);
}

bool job_naps(uint64_t until)
{
	const struct timespec nap = { 0, NAP_NS };

	nanosleep(&nap, NULL);
	return clock_ns() < until;
}

static void set_asks(struct job *j, enum job_asks asks)
{
	pthread_mutex_lock(&j->lock);
	j->asks = asks;
	pthread_cond_signal(&j->changed);
	pthread_mutex_unlock(&j->lock);
}

static int ask(struct job *j, enum job_asks what)
{
	int answer;

	set_asks(j, what);
	pthread_mutex_lock(&j->lock);
	while (j->asks == what)
		pthread_cond_wait(&j->changed, &j->lock);
	answer = j->answer;
	pthread_mutex_unlock(&j->lock);
	return answer ? kedge_reason(-ECANCELED, "the program has ended the migration") : 0;
}

int job_freeze(struct job *j)
{
	return j->o.freeze ? ask(j, JOB_FREEZES) : 0;
}

int job_progress(struct job *j)
{
	j->info.total_ns = clock_ns() - j->begun;
	return j->o.progress ? ask(j, JOB_PROGRESSES) : 0;
}

void job_over(struct job *j)
{
	set_asks(j, JOB_IS_OVER);
}

static int call_back(struct job *j, enum job_asks what)
{
	return what == JOB_FREEZES ? j->o.freeze(j->o.arg) : j->o.progress(j->o.arg, &j->info);
}

/* The program's functions run with no lock of this library. */
void job_serve(struct job *j)
{
	enum job_asks asks;
	int answer;

	for (;;) {
		pthread_mutex_lock(&j->lock);
		while (j->asks == JOB_RUNS)
			pthread_cond_wait(&j->changed, &j->lock);
		asks = j->asks;
		pthread_mutex_unlock(&j->lock);
		if (asks == JOB_IS_OVER)
			return;
		answer = call_back(j, asks);
		pthread_mutex_lock(&j->lock);
		j->answer = answer;
		j->asks = JOB_RUNS;
		pthread_cond_broadcast(&j->changed);
		pthread_mutex_unlock(&j->lock);
	}
}

int job_lost(int rc)
{
	switch (rc) {
	case -ETIMEDOUT:
		return kedge_reason(rc, "the process that the invitation is of does not answer: is "
				    "it stopped, or its host gone?");
	case -EPIPE:
	case -ECONNRESET:
		return kedge_reason(-ECONNRESET, "the process that the invitation is of has ended, "
				    "or given up");
	case -EPROTO:
		return kedge_reason(rc, "the process that the invitation is of does not keep to "
				    "the protocol");
	}
	return kedge_reason(rc, "no memory for what is sent: error %d", -rc);
}
