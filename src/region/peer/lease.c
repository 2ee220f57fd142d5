// SPDX-License-Identifier: BSD-2-Clause
/*
 * A peer's side of share/lease.c: a thread has a connection of its own to the owner, gets a lease,
 * and gives it back when that is recalled. An access holds @lock while its bytes are under way, and
 * the thread takes it before it gives the lease back: no access is under way then, and none begins.
 *
 * An access that fails is done by the owner, from its beginning: bytes that were put already are
 * put again. An access to several ranges holds @lock over all of them, so what a recall is for, a
 * trim, comes before the first or behind the last.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/service.h"
#include "base/process/thread.h"
#include "region/peer/lease.h"

#define CONNECT_MS 5000
#define ANSWER_MS  5000
#define ACCESS_MS  1000 /* at the least: then the owner does it */
#define AGAIN_MS   1	/* after which a refused one is asked for again, and then twice that */
#define AGAIN_MOST 64
#define NAP_NS	   50000
#define FAILURES   3 /* in a row: the adapters do not reach each other */

/*
 * @wake:   eventfd: @over, or @more is wanted
 * @over:   the thread is to end; @gone: it has
 * @failed: an access has, and the owner has not said yet that its adapter takes no more of it
 * @lock:   guards what is below it
 */
struct lease {
	struct service service;
	pthread_t thread;
	struct handle_words words;
	union place at;
	socklen_t at_len;
	struct link *ctl;
	struct clofork wake;
	_Atomic bool over;
	_Atomic bool more;
	_Atomic bool failed;
	_Atomic bool gone;
	uint64_t seq;
	pthread_mutex_t lock;
	_Atomic bool open; /* loaded without it, too */
	unsigned int failures;
	struct fabric_line *line;
	struct fabric_range range;
};

/* ---- the owner ---- */

/* 0; -ETIMEDOUT; or it is over. */
static int wait_for(struct lease *l, short what, int ms)
{
	struct pollfd p[2] = { { l->ctl->sock.fd, what, 0 }, { l->wake.fd, POLLIN, 0 } };
	const uint64_t until = clock_deadline(ms);
	uint64_t cnt;
	int n;

	for (;;) {
		n = clock_poll_ms(p, 2, clock_wait_ms(until));
		if (!clofork_ours(&l->ctl->sock) || !clofork_ours(&l->wake))
			return -EBADF;
		if (atomic_load(&l->over))
			return -ECANCELED;
		if (n > 0 && p[0].revents)
			return 0;
		if (n > 0 && p[1].revents && read(l->wake.fd, &cnt, sizeof(cnt)) < 0)
			return -EBADF;
		if (n > 0 && atomic_load(&l->more))
			return -EAGAIN;
		if (clock_ns() >= until)
			return -ETIMEDOUT;
	}
}

static int transfer(struct lease *l, short what, void *data, size_t len)
{
	size_t done = 0;
	ssize_t n;
	int rc;

	while (done < len) {
		rc = wait_for(l, what, ANSWER_MS);
		/* It is wanted by the lease that is asked for. */
		if (rc && rc != -EAGAIN)
			return rc;
		n = what == POLLIN ? recv(l->ctl->sock.fd, (char *)data + done, len - done,
					  MSG_DONTWAIT)
				   : send(l->ctl->sock.fd, (char *)data + done, len - done,
					  MSG_DONTWAIT | MSG_NOSIGNAL);
		if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -ECONNRESET;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int say(struct lease *l, uint32_t op, const struct fabric_end *end)
{
	struct stream_req q = { .op = op, .len = end ? sizeof(*end) : 0 };
	struct fabric_end copy;
	int rc;

	q.seq = q.first = ++l->seq;
	q.end = q.len;
	stream_req_swap(&q);
	rc = transfer(l, POLLOUT, &q, sizeof(q));
	if (rc || !end)
		return rc;
	copy = *end;
	return transfer(l, POLLOUT, &copy, sizeof(copy));
}

/* The answer to what was said last, with @len bytes behind it if it is 0. A recall that crosses it
 * is of the lease that is given back. */
static int hear(struct lease *l, void *data, size_t len)
{
	struct stream_reply a;
	int rc;

	do {
		rc = transfer(l, POLLIN, &a, sizeof(a));
		if (rc)
			return rc;
		stream_reply_swap(&a);
	} while (!a.seq && a.rc == REGION_RECALLED);
	if (a.seq != l->seq || a.rc > 0 || a.len != (a.rc ? 0 : len))
		return -EPROTO;
	return a.rc ? a.rc : transfer(l, POLLIN, data, len);
}

/* ---- a lease ---- */

static int place_of(struct lease *l, unsigned char place[16])
{
	union place a;
	socklen_t len = sizeof(a);

	if (getsockname(l->ctl->sock.fd, &a.any, &len))
		return -errno;
	stream_place(&a, place);
	return 0;
}

static int begin(struct lease *l)
{
	struct fabric_end end;
	struct stream_lease got;
	unsigned char place[16];
	int rc = place_of(l, place);

	if (!rc)
		rc = fabric()->open(place, NULL, &l->line, &end);
	if (!rc)
		rc = say(l, STREAM_LEASE, &end);
	if (!rc)
		rc = hear(l, &got, sizeof(got));
	if (!rc)
		rc = fabric()->join(l->line, &got.end);
	if (rc)
		return rc;
	pthread_mutex_lock(&l->lock);
	l->range = (struct fabric_range){ le64toh(got.at), le64toh(got.len), le32toh(got.key) };
	atomic_store(&l->open, true);
	atomic_store(&l->more, false);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

static void end_line(struct lease *l)
{
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->open, false);
	if (l->line)
		fabric()->close(l->line);
	l->line = NULL;
	pthread_mutex_unlock(&l->lock);
}

/* Until it is recalled, or too small: 0; else it is over. */
static int keep(struct lease *l)
{
	struct stream_reply a;
	int rc = wait_for(l, POLLIN, -1);

	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	rc = transfer(l, POLLIN, &a, sizeof(a));
	if (rc)
		return rc;
	stream_reply_swap(&a);
	return !a.seq && a.rc == REGION_RECALLED ? 0 : -EPROTO;
}

static int give_back(struct lease *l)
{
	int rc;

	end_line(l);
	rc = say(l, STREAM_LEASE_OVER, NULL);
	if (!rc)
		rc = hear(l, NULL, 0);
	if (!rc)
		atomic_store(&l->failed, false);
	return rc;
}

/* False: it is over. */
static bool rest(struct lease *l, int ms)
{
	const int rc = wait_for(l, 0, ms);

	if (rc == -EAGAIN) {
		/* More is wanted than there is a lease of: at its time. */
		atomic_store(&l->more, false);
		return true;
	}
	return rc == -ETIMEDOUT;
}

static void serve(struct lease *l)
{
	int rc, ms = AGAIN_MS;

	for (;;) {
		rc = begin(l);
		if (!rc) {
			rc = keep(l);
			if (!rc)
				rc = give_back(l);
			if (rc || l->failures >= FAILURES)
				return;
			ms = AGAIN_MS;
			continue;
		}
		end_line(l);
		if (rc != -EAGAIN || !rest(l, ms))
			return;
		ms = ms < AGAIN_MOST ? 2 * ms : ms;
	}
}

static void *run(void *arg)
{
	struct lease *l = arg;

	prctl(PR_SET_NAME, "kedge-lease");
	if (!stream_open(l->ctl, &l->words, &l->at.any, l->at_len, clock_after_ms(CONNECT_MS)))
		serve(l);
	end_line(l);
	atomic_store(&l->gone, true);
	return NULL;
}

/* ---- the others ---- */

static void wake(struct lease *l)
{
	const uint64_t one = 1;

	if (clofork_ours(&l->wake) && write(l->wake.fd, &one, sizeof(one)) < 0)
		return;
}

static void end_thread(struct service *s)
{
	struct lease *l = (struct lease *)s;

	atomic_store(&l->over, true);
	wake(l);
	pthread_join(l->thread, NULL);
}

static int start_thread(struct lease *l)
{
	sigset_t all, saved;
	int rc = service_begin(&l->service);

	if (rc)
		return rc;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = thread_start(&l->thread, run, l);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (rc)
		service_end(&l->service);
	else
		service_runs(&l->service);
	return rc;
}

static void free_lease(struct lease *l)
{
	clofork_close(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

struct lease *lease_start(struct link *ctl, const struct handle_words *w, const union place *at,
			  socklen_t len)
{
	struct lease *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return NULL;
	l->service.end = end_thread;
	l->ctl = ctl;
	l->words = *w;
	l->at = *at;
	l->at_len = len;
	pthread_mutex_init(&l->lock, NULL);
	clofork_init(&l->wake);
	rc = clofork_begin();
	if (!rc)
		rc = clofork_end(&l->wake, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!rc)
		rc = start_thread(l);
	if (!rc)
		return l;
	free_lease(l);
	return NULL;
}

struct link *lease_stop(struct lease *l, bool child)
{
	struct link *ctl = l->ctl;

	/* Of its thread there is nothing in a child; what the adapter's library has is lost. */
	if (child) {
		free(l);
		return ctl;
	}
	if (service_end(&l->service))
		end_thread(&l->service);
	free_lease(l);
	return ctl;
}

bool lease_is_open(struct lease *l)
{
	return l && atomic_load(&l->open);
}

/* With @lock: all of the access is there. */
static bool is_for(struct lease *l, const struct stream_req *q, uint64_t has)
{
	if (!atomic_load(&l->open))
		return false;
	if (q->offset <= l->range.len && q->len <= l->range.len - q->offset)
		return true;
	if (has > l->range.len && !atomic_exchange(&l->more, true))
		wake(l);
	return false;
}

static uint64_t until_of(const struct stream_req *q)
{
	const int ms = q->timeout_ms;

	return clock_deadline(ms >= 0 && ms < ACCESS_MS ? ACCESS_MS : ms);
}

/* A write that was given up could arrive behind what the owner does in its place: that begins once
 * the owner's end of the line is no more. */
static int wait_for_end(struct lease *l)
{
	const struct timespec nap = { 0, NAP_NS };

	while (atomic_load(&l->failed)) {
		if (atomic_load(&l->gone))
			return atomic_load(&l->failed) ? -ECONNRESET : 0;
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* With @lock. */
static int copy_parts(struct lease *l, const struct stream_req *q,
		      const struct kedge_remote_part *part, size_t cnt)
{
	const uint64_t until = until_of(q);
	size_t i;
	int rc = 0;

	for (i = 0; i < cnt && !rc; i++) {
		if (!part[i].len)
			continue;
		rc = q->op == STREAM_PUT
			     ? fabric()->put(l->line, &l->range, part[i].offset, part[i].data,
					     part[i].len, &l->over, until)
			     : fabric()->get(l->line, &l->range, part[i].offset, part[i].data,
					     part[i].len, &l->over, until);
	}
	return rc;
}

int lease_access(struct lease *l, const struct stream_req *q,
		 const struct kedge_remote_part *part, size_t cnt, uint64_t has)
{
	int rc = -EAGAIN;

	pthread_mutex_lock(&l->lock);
	if (is_for(l, q, has))
		rc = copy_parts(l, q, part, cnt);
	if (!rc)
		l->failures = 0;
	/* The line carries no more: another takes its place. */
	if (rc && rc != -EAGAIN) {
		l->failures++;
		atomic_store(&l->failed, true);
		atomic_store(&l->open, false);
		if (!atomic_exchange(&l->more, true))
			wake(l);
	}
	pthread_mutex_unlock(&l->lock);
	return rc ? wait_for_end(l) : 1;
}
