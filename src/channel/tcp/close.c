// SPDX-License-Identifier: BSD-2-Clause
/*
 * The end of a connection. What was committed reaches a peer that lives, and
 * close() does not wait for it.
 *
 * A socket that is closed while something unread is in it, or that something
 * comes to afterwards, resets the connection and forgets what it has not sent. So
 * one that still has something to send goes to the reaper, which says that
 * no byte follows (SHUT_WR), sends the rest, throws away what comes, and closes
 * the socket when the peer's kernel has acknowledged everything, the peer has
 * closed its end, or LINGER_NS are over.
 *
 * The reaper is one thread of the process, there while it has something to do. A
 * process that ends waits for it: its kernel would close the sockets at once.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "base/lock.h"
#include "base/process/owner.h"
#include "base/process/thread.h"
#include "channel/tcp/internal.h"

#define LINGER_NS  (5 * 1000000000ull)
#define LOOK_MS	   5
#define LINGER_MAX 1024u

struct reap {
	struct list node;
	struct tcp *t;
	uint64_t deadline;
	bool said; /* SHUT_WR */
};

static _Atomic int owner; /* the process that what follows belongs to */
static struct sig_lock lock = SIG_LOCK_INIT; /* guards: */
static struct list lingering;
static unsigned int lingering_cnt; /* those the reaper looks at, too */
static bool running, joinable, stop;
static pthread_t reaper;

static void anew(void)
{
	sig_lock_init(&lock);
	list_init(&lingering);
	lingering_cnt = 0;
	running = joinable = stop = false;
}

/* A forked child has the parent's list and not its thread. */
static void adopt(void)
{
	owner_adopt(&owner, anew);
}

/* ---- one connection ---- */

static void heap_drop(struct tcp *t, bool ours)
{
	struct list *l, *tmp;
	struct tcp_block *b;

	list_for_each_safe(l, tmp, &t->heap) {
		b = list_entry(l, struct tcp_block, node);
		if (ours)
			munmap(b->at, b->len);
		free(b);
	}
	list_init(&t->heap);
}

/* Descriptors and memory of a channel that has no more to send. */
static void tcp_free(struct tcp *t)
{
	heap_drop(t, true);
	clofork_close(&t->epoll);
	/* A child of clone() may keep the socket open: closing it does not show. */
	if (clofork_ours(&t->sock))
		shutdown(t->fd, SHUT_RDWR);
	clofork_close(&t->sock);
	tcp_free_buffers(t);
	free(t);
}

/* All memory here is the child's own; what goes by the descriptors is shared. */
void tcp_leave(void *ctx)
{
	struct tcp *t = ctx;

	heap_drop(t, false);
	clofork_close(&t->timer);
	clofork_close(&t->epoll);
	clofork_close(&t->sock);
	tcp_free_buffers(t);
	free(t);
}

/* True: the peer is gone. */
static bool drain(struct tcp *t)
{
	char scratch[16384];
	ssize_t n = 1;
	int i;

	for (i = 0; i < 64 && n > 0; i++)
		n = recv(t->fd, scratch, sizeof(scratch), MSG_DONTWAIT);
	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* True: it is done, or the application has closed it. */
static bool linger_step(struct reap *l)
{
	struct tcp *t = l->t;
	int unsent = 0;

	if (!clofork_ours(&t->sock))
		return true;
	t->full = false;
	tcp_pump(t, false);
	if (t->err || drain(t))
		return true;
	if (tcp_out_pending(t))
		return clock_ns() >= l->deadline;
	if (!l->said)
		shutdown(t->fd, SHUT_WR);
	l->said = true;
	return ioctl(t->fd, SIOCOUTQ, &unsent) || !unsent ||
	       clock_ns() >= l->deadline;
}

/* ---- the reaper ---- */

/* All that there are, done or not: those that are not go back. */
static unsigned int reap(struct list *mine)
{
	struct list *l, *tmp;
	struct reap *g;
	unsigned int done = 0;

	list_for_each_safe(l, tmp, mine) {
		g = list_entry(l, struct reap, node);
		if (!linger_step(g))
			continue;
		list_remove(l);
		tcp_free(g->t);
		free(g);
		done++;
	}
	return done;
}

static void wait_some(struct list *mine)
{
	struct pollfd p[64];
	struct list *l, *tmp;
	struct reap *g;
	nfds_t n = 0;

	list_for_each_safe(l, tmp, mine) {
		g = list_entry(l, struct reap, node);
		if (n < ARRAY_SIZE(p))
			p[n++] = (struct pollfd){
				.fd = g->t->fd,
				.events = g->said ? POLLIN : POLLIN | POLLOUT,
			};
	}
	poll(p, n, LOOK_MS);
}

static void take_new(struct list *mine)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &lingering) {
		list_remove(l);
		list_add_tail(mine, l);
	}
}

static void cut_all(struct list *mine)
{
	struct list *l, *tmp;
	struct reap *g;

	list_for_each_safe(l, tmp, mine) {
		g = list_entry(l, struct reap, node);
		list_remove(l);
		tcp_free(g->t);
		free(g);
	}
}

static void *reap_all(void *arg)
{
	struct list mine;
	bool go_on = true;
	unsigned int done = 0;

	(void)arg;
	list_init(&mine);
	while (go_on) {
		sig_lock(&lock);
		lingering_cnt -= done;
		take_new(&mine);
		go_on = !list_empty(&mine) && !stop;
		if (!go_on) {
			lingering_cnt = 0;
			running = false;
		}
		sig_unlock(&lock);
		if (!go_on)
			break;
		done = reap(&mine);
		if (!list_empty(&mine))
			wait_some(&mine);
	}
	cut_all(&mine);
	return NULL;
}

/* With the lock: signals are blocked, and so they are in the new thread. */
static bool reaper_start(void)
{
	if (running)
		return true;
	/* It has let go of the lock for the last time. */
	if (joinable)
		pthread_join(reaper, NULL);
	joinable = false;
	running = joinable = !thread_start(&reaper, reap_all, NULL);
	return running;
}

/* False: it cannot be done, the connection is still the caller's. */
static bool linger(struct reap *g)
{
	bool taken = false;

	adopt();
	sig_lock(&lock);
	if (lingering_cnt < LINGER_MAX && !stop) {
		list_add_tail(&lingering, &g->node);
		taken = reaper_start();
		if (!taken)
			list_remove(&g->node);
		lingering_cnt += taken;
	}
	sig_unlock(&lock);
	return taken;
}

void tcp_close(void *ctx)
{
	struct tcp *t = ctx;
	struct reap *g;

	heap_drop(t, true);
	clofork_close(&t->timer);
	clofork_close(&t->epoll);
	g = malloc(sizeof(*g));
	if (g) {
		*g = (struct reap){ .t = t,
				      .deadline = clock_after_ns(LINGER_NS) };
		if (!linger_step(g) && linger(g))
			return;
		free(g);
	}
	tcp_free(t);
}

/* Each has its own deadline, so this comes to an end. */
static bool has_some(void)
{
	bool some;

	sig_lock(&lock);
	some = running;
	sig_unlock(&lock);
	return some;
}

/*
 * The process ends, or libkedge.a is in a plug-in that is unloaded: no thread of
 * ours may be left.
 */
__attribute__((destructor)) static void reaper_ends(void)
{
	const struct timespec pause = { 0, LOOK_MS * 1000000L };
	uint64_t end;
	bool join;

	if (atomic_load(&owner) != getpid())
		return;
	/* One more than that of the latest, should the thread not be run. */
	end = clock_after_ns(LINGER_NS + LINGER_NS / 5);
	while (has_some() && clock_ns() < end)
		nanosleep(&pause, NULL);
	sig_lock(&lock);
	stop = true;
	join = joinable;
	joinable = false;
	sig_unlock(&lock);
	if (join)
		pthread_join(reaper, NULL);
}
