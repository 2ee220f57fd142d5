// SPDX-License-Identifier: BSD-2-Clause
/*
 * The lease that entries are bound to, and the thread "kedge-lease" that renews it.
 *
 * A lease is taken by the first call that writes an entry, so a process that only looks has
 * neither. The thread comes with the first lease and stays. It renews at a third of the time, and
 * where etcd cannot be reached it tries again, for as long as it takes: etcd alone knows whether
 * the lease is over, as it gives all leases their whole time again when its members elect a
 * leader. The thread learns that the lease is gone, or a call that writes does, which etcd refuses
 * then; the first of them takes the id away, so a lease is lost once.
 *
 * A lease without an entry is forgotten when it is gone: no caller has lost anything by that.
 */
#include <signal.h>
#include <stdio.h>

#include "directory/etcd/internal.h"

#define S_NS	  1000000000u
#define RETRY_MIN (S_NS / 5)
#define RETRY_MAX (2ull * S_NS)
#define REVOKE_NS (2ull * S_NS)

/* ---- the thread ---- */

static int renew(struct etcd *e, struct granted *g)
{
	char body[64];
	const struct request r = {
		.path = "/v3/lease/keepalive",
		.body = body,
		.deadline = clock_after_ns((uint64_t)g->ttl_s * S_NS / 2),
		.by_thread = true,
		.parse = answer_renew,
		.result = g,
	};

	snprintf(body, sizeof(body), "{\"ID\":\"%lld\"}", (long long)g->id);
	return user_post(e, &r);
}

static uint64_t retry_ns(uint32_t ttl_s)
{
	uint64_t ns = (uint64_t)ttl_s * S_NS / 10;

	return ns < RETRY_MIN ? RETRY_MIN : ns > RETRY_MAX ? RETRY_MAX : ns;
}

/* The caller has the lock. */
static void forget(struct lease *l, int64_t id)
{
	if (l->id != id)
		return;
	l->id = 0;
	l->lost |= l->used;
	l->used = false;
}

/* The caller has the lock, which is let go meanwhile. */
static void renew_in_turn(struct etcd *e)
{
	struct lease *l = &e->lease;
	struct granted g = { l->id, l->ttl_s };
	uint64_t began = clock_ns();
	int64_t id = l->id;
	int rc;

	pthread_mutex_unlock(&e->lock);
	rc = renew(e, &g);
	pthread_mutex_lock(&e->lock);
	if (rc == -ENOKEY)
		forget(l, id);
	if (l->id != id)
		return;
	if (rc) {
		l->renew_ns = clock_after_ns(retry_ns(l->ttl_s));
	} else {
		l->ttl_s = g.ttl_s;
		l->renew_ns = began + (uint64_t)g.ttl_s * S_NS / 3;
	}
}

static void *run(void *arg)
{
	struct etcd *e = arg;
	struct lease *l = &e->lease;

	pthread_setname_np(pthread_self(), "kedge-lease");
	pthread_mutex_lock(&e->lock);
	while (!atomic_load_explicit(&e->stop, memory_order_relaxed)) {
		if (l->id && clock_ns() >= l->renew_ns)
			renew_in_turn(e);
		else
			clock_cond_wait(&e->changed, &e->lock,
					l->id ? l->renew_ns : CLOCK_NEVER);
	}
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

static void stop_thread(struct etcd *e)
{
	pthread_mutex_lock(&e->lock);
	atomic_store_explicit(&e->stop, true, memory_order_relaxed);
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->lease.thread, NULL);
}

static void service_ends(struct service *s)
{
	stop_thread(container_of(s, struct etcd, lease.service));
}

/* Signals are for the program's own threads, but for those that report a thread's own fault, or
 * answer its own system call. */
static void block_signals(sigset_t *before)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS };
	sigset_t set;
	size_t i;

	sigfillset(&set);
	for (i = 0; i < ARRAY_SIZE(own); i++)
		sigdelset(&set, own[i]);
	pthread_sigmask(SIG_SETMASK, &set, before);
}

/* The stack is as large as all threads have it, as TLS libraries name no size that is enough. */
static int start_thread(struct etcd *e)
{
	sigset_t before;
	int rc;

	e->lease.service.end = service_ends;
	rc = kedge__service_begin(&e->lease.service);
	if (rc)
		return kedge_reason(rc, "no memory for a thread that renews the lease");
	block_signals(&before);
	rc = pthread_create(&e->lease.thread, NULL, run, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc) {
		kedge__service_runs(&e->lease.service);
		return 0;
	}
	kedge__service_end(&e->lease.service);
	return kedge_reason(-rc, "no thread to renew the lease: %s", strerror(rc));
}

/* ---- calls ---- */

/* The caller has the lock. */
static int tell_loss(struct lease *l)
{
	if (!l->lost)
		return 0;
	l->lost = false;
	return kedge_reason(-EKEYEXPIRED, "the lease was lost, and the entries of this directory "
			    "with it: put them back");
}

int lease_check(struct etcd *e)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = tell_loss(&e->lease);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static int grant(struct etcd *e, uint64_t deadline, struct granted *g)
{
	char body[64];
	const struct request r = {
		.path = "/v3/lease/grant",
		.body = body,
		.deadline = deadline,
		.parse = answer_grant,
		.result = g,
	};
	int rc;

	snprintf(body, sizeof(body), "{\"TTL\":\"%u\"}", e->ttl_s);
	rc = user_post(e, &r);
	return rc == -ENOKEY ? kedge_reason(-EPROTO, "etcd grants no lease") : rc;
}

/* @e->lease.granting keeps other threads out. */
static int take_lease(struct etcd *e, uint64_t deadline, struct granted *g, uint64_t *began)
{
	int rc = e->lease.runs ? 0 : start_thread(e);

	if (rc)
		return rc;
	e->lease.runs = true;
	*began = clock_ns();
	return grant(e, deadline, g);
}

int lease_get(struct etcd *e, uint64_t deadline, int64_t *id)
{
	struct lease *l = &e->lease;
	struct granted g;
	uint64_t began = 0;
	int rc = 0;

	pthread_mutex_lock(&e->lock);
	while (!l->id && l->granting && clock_ns() < deadline)
		clock_cond_wait(&e->changed, &e->lock, deadline);
	if (l->lost) {
		rc = tell_loss(l);
	} else if (!l->id && l->granting) {
		rc = kedge_reason(-ETIMEDOUT, "etcd has not granted a lease in time");
	} else if (!l->id) {
		l->granting = true;
		pthread_mutex_unlock(&e->lock);
		rc = take_lease(e, deadline, &g, &began);
		pthread_mutex_lock(&e->lock);
		l->granting = false;
		if (!rc) {
			l->id = g.id;
			l->ttl_s = g.ttl_s;
			l->renew_ns = began + (uint64_t)g.ttl_s * S_NS / 3;
		}
		pthread_cond_broadcast(&e->changed);
	}
	*id = l->id;
	pthread_mutex_unlock(&e->lock);
	return rc;
}

/* The lease may have been lost between the answer and this. */
void lease_used(struct etcd *e, int64_t id)
{
	pthread_mutex_lock(&e->lock);
	if (e->lease.id == id)
		e->lease.used = true;
	else
		e->lease.lost = true;
	pthread_mutex_unlock(&e->lock);
}

void lease_gone(struct etcd *e, int64_t id)
{
	pthread_mutex_lock(&e->lock);
	forget(&e->lease, id);
	pthread_mutex_unlock(&e->lock);
}

/* A failure is no fault: the entries are gone when the lease's time is over. */
static void give_back(struct etcd *e)
{
	char body[64];
	const struct request r = {
		.path = "/v3/lease/revoke",
		.body = body,
		.deadline = clock_after_ns(REVOKE_NS),
		.parse = answer_revoke,
	};

	snprintf(body, sizeof(body), "{\"ID\":\"%lld\"}", (long long)e->lease.id);
	user_post(e, &r);
}

void lease_end(struct etcd *e)
{
	if (e->lease.runs && kedge__service_end(&e->lease.service))
		stop_thread(e);
	if (e->lease.id)
		give_back(e);
}
