// SPDX-License-Identifier: BSD-2-Clause
/*
 * Making good what events took, ahead of use. Each loss leaves a note: the chunk
 * that lost pages, or a whole region that was not worth keeping. A resync works
 * the notes off, and registers the chunks that no region serves any more, as a
 * miss would; publish() takes the old ones out, and their last put ends them.
 *
 * A note is a wish and no more: what it says is checked against the index
 * before anything is done, and a get that was faster leaves no work to do.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/process/service.h"
#include "cache/internal.h"

/* Take a note that touches [start, end), with the cache caught up. */
static bool lost_take(struct kedge_cache *c, uint64_t start, uint64_t end,
		      struct lost *out)
{
	uint32_t killed = 0, dead = 0, i;
	bool found = false;

	pthread_mutex_lock(&c->lock);
	cache_sync(c, &killed);
	for (i = 0; i < c->lost_cnt && !found; i++) {
		if (c->lost[i].start >= end || c->lost[i].end <= start)
			continue;
		*out = c->lost[i];
		c->lost[i] = c->lost[--c->lost_cnt];
		found = true;
	}
	/* The id may have become another's since. */
	if (found && !is_holed(state_of(&c->regions[out->id])))
		out->id = 0;
	region_collect(c, &killed, &dead);
	pthread_mutex_unlock(&c->lock);
	region_reap(c, dead);
	return found;
}

static void count(struct kedge_cache *c, bool replaced)
{
	pthread_mutex_lock(&c->lock);
	c->st.resynced++;
	c->st.replaced += replaced;
	pthread_mutex_unlock(&c->lock);
}

/* A chunk, or a part of one. The bytes registered anew, or an error. */
static ssize_t make_good(struct kedge_cache *c, const struct lost *l,
			 uint64_t start, uint64_t end)
{
	struct want w = { .start = start,
			  .end = end,
			  .access = l->access,
			  .trust = TRUST_ALL };
	struct region *r;
	bool replaced;
	int rc = 0;

	if (cache_serves(c, start, end, l->access))
		return 0;
	replaced = l->id && !region_replace(c, l->id, start, end);
	if (!replaced)
		rc = cache_register(c, &w, &r);
	/* -EFAULT: it is not there any more, or not in one piece. */
	if (rc)
		return rc == -EFAULT ? 0 : rc;
	if (!cache_serves(c, start, end, l->access))
		return 0; /* it could not be kept, or changed again */
	count(c, replaced);
	return (ssize_t)(end - start);
}

static uint64_t make_all_good(struct kedge_cache *c, const struct lost *l,
			      int *err)
{
	uint64_t size = c->chunk_bytes, at, end, sum = 0;
	ssize_t n;

	for (at = l->start; at < l->end; at = end) {
		end = round_down(at, size) + size;
		if (end > l->end)
			end = l->end;
		n = make_good(c, l, at, end);
		if (n < 0)
			*err = (int)n;
		else
			sum += (uint64_t)n;
	}
	return sum;
}

ssize_t kedge_cache_resync(struct kedge_cache *c, const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr, end = start + len, sum = 0;
	struct lost l;
	uint32_t todo;
	int rc = 0, saved;

	if (!c)
		return kedge_reason(-EINVAL, "the cache is NULL");
	if (!addr && !len)
		end = UINT64_MAX;
	else
		rc = cache_check_args(c, start, len, 0);
	if (!nf_owned(c->nf))
		return nf_not_owned();
	if (!rc)
		rc = check_thread(c);
	if (rc)
		return rc;
	saved = cancel_disable();
	/* Others may lose more all the time: so many and no more. */
	for (todo = LOST_MAX; todo && lost_take(c, start, end, &l); todo--)
		sum += make_all_good(c, &l, &rc);
	cancel_restore(saved);
	return sum || !rc ? (ssize_t)sum : rc;
}

/* ---- the thread ---- */

#define GATHER_US   1000 /* what comes together is done together */
#define IDLE_MS	    100	 /* while polling the descriptors is of no use */
#define PATIENCE_MS 1000 /* should both have been closed on us */

struct resync_thread {
	struct kedge_cache *c;
	pthread_t thread;
	struct service service;
	_Atomic bool stop;
	int wake;
	struct fd_id wake_id;
};

static bool has_work(struct kedge_cache *c)
{
	bool yes;

	pthread_mutex_lock(&c->lock);
	/* A get may have caught up, and left notes. */
	yes = c->lost_cnt || !all_handled(c);
	pthread_mutex_unlock(&c->lock);
	return yes;
}

/*
 * Waits until something has happened. A program may close descriptors that it
 * does not know; then the thread looks from time to time. So it does while the
 * notifier's stays readable for another of its users that has not read yet.
 */
static void wait_for_events(struct resync_thread *t)
{
	struct pollfd p[2] = {
		{ .fd = kedge_notifier_fd(t->c->nf), .events = POLLIN },
		{ .fd = t->wake, .events = POLLIN },
	};

	if (clock_poll(p, 2, clock_after_ms(PATIENCE_MS)) <= 0)
		return;
	if ((p[0].revents | p[1].revents) & (POLLNVAL | POLLERR))
		usleep(IDLE_MS * 1000);
	else if (p[1].revents || has_work(t->c))
		usleep(GATHER_US);
	else
		clock_poll(&p[1], 1, clock_after_ms(IDLE_MS));
}

static void *run(void *arg)
{
	struct resync_thread *t = arg;

	/* acquire: partner of the release in resyncer_stop(). */
	while (!atomic_load_explicit(&t->stop, memory_order_acquire)) {
		kedge_cache_resync(t->c, NULL, 0);
		wait_for_events(t);
	}
	return NULL;
}

static void stop_thread(struct resync_thread *t)
{
	atomic_store_explicit(&t->stop, true, memory_order_release);
	if (fd_same(t->wake, &t->wake_id))
		eventfd_write(t->wake, 1);
	pthread_join(t->thread, NULL);
}

static void end_service(struct service *s)
{
	stop_thread(container_of(s, struct resync_thread, service));
}

static int start_thread(struct resync_thread *t)
{
	sigset_t all, saved;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = -pthread_create(&t->thread, NULL, run, t);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return rc ? kedge_reason(rc, "no thread for resynchronising (error %d)",
				 -rc)
		  : 0;
}

int resyncer_start(struct kedge_cache *c)
{
	struct resync_thread *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	t->c = c;
	t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->wake < 0) {
		rc = kedge_reason(-errno, "no file descriptor left: raise "
					  "ulimit -n");
		goto free_thread;
	}
	fd_note(t->wake, &t->wake_id);
	t->service.end = end_service;
	rc = service_begin(&t->service);
	if (rc)
		goto close_wake;
	rc = start_thread(t);
	if (rc)
		goto leave_services;
	service_runs(&t->service);
	c->resyncer = t;
	return 0;

leave_services:
	service_end(&t->service);
close_wake:
	close(t->wake);
free_thread:
	free(t);
	return rc;
}

void resyncer_stop(struct kedge_cache *c)
{
	struct resync_thread *t = c->resyncer;

	if (!t)
		return;
	/* In a forked child there is no such thread. */
	if (nf_owned(c->nf) && service_end(&t->service))
		stop_thread(t);
	if (fd_same(t->wake, &t->wake_id))
		close(t->wake);
	free(t);
	c->resyncer = NULL;
}
