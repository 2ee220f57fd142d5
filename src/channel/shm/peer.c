// SPDX-License-Identifier: BSD-2-Clause
/*
 * The processes at the other ends: their identities, whether they live, and what
 * they know this one by. One table for all channels of the process, made with
 * the first and gone with the last.
 *
 * A peer is a pidfd, which means one process for ever, shared by all channels
 * to it: as long as its pidfd does not say that it has ended, a process has its
 * number, so a channel to the same number is to the same process.
 *
 * The nonce is 128 random bits in a page of this process's memory that a forked
 * child sees as zeros. A peer that reads it by the process's number has read this
 * address space, and neither that of a program that was executed since nor that
 * of another process of the number. It also tells a child that the table is its
 * parent's.
 *
 * A peer's death shows at its socket, except where a third process keeps that
 * open. Programs that poll look at the pidfd now and then; for those that sleep
 * on the socket a thread waits for the pidfds and shuts the sockets down. It
 * starts with the first channel to another process, so that one that is open can
 * always be waited for.
 *
 * The thread sleeps in poll() on one end of a pair of sockets and on an epoll
 * set of the pidfds. It ends when the pair's other end (wakeup) is shut down,
 * or closed. So no byte is written to end it, and an application that closes
 * descriptors which are not its own ends it, too: while poll() sleeps it holds
 * the files, whatever becomes of the numbers, and sees the wakeup's close.
 * A thread that is not asleep finds, when it looks, that its end of the pair is
 * another file, or closed. That leaves a moment between this look and poll() in
 * which the number could be closed and used again, and a child made by clone()
 * that keeps the wakeup open: the thread would not end. It is waited for a
 * second, and then left alone with what it uses. The next channel gets a new
 * one.
 *
 * The lock guards the table, the lists, and counts. It is held over fork().
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/process/clofork.h"
#include "base/process/page.h"
#include "base/process/service.h"
#include "base/process/thread.h"
#include "channel/shm/internal.h"

#define END_NS 1000000000ull /* what the thread gets to end */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct peer {
	struct list node;
	struct list channels; /* shm.watch */
	pid_t pid;
	struct clofork pidfd;
	uint32_t refs;
	bool watched;
};

struct watcher {
	pthread_t thread;
	struct service service;
	struct clofork wakeup;
	struct clofork sees; /* the wakeup's other end */
	struct clofork epoll;
	bool left; /* it did not end */
};

struct nonce_page {
	uint64_t nonce[2];
	uint64_t ours; /* zero in a forked child */
};

static struct sig_lock lock = SIG_LOCK_INIT;
static struct {
	uint32_t refs;
	struct list peers;
	struct nonce_page *page;
	struct watcher *watcher;
} table = { .peers = { &table.peers, &table.peers } };

static void before_fork(void)
{
	sig_lock(&lock);
}

static void after_fork(void)
{
	sig_unlock(&lock);
}

static struct peer *peer_of(struct list *l)
{
	return list_entry(l, struct peer, node);
}

/* ---- the table ---- */

static void peer_free(struct peer *p)
{
	list_remove(&p->node);
	clofork_close(&p->pidfd);
	free(p);
}

static void watcher_free(struct watcher *w)
{
	clofork_close(&w->wakeup);
	clofork_close(&w->sees);
	clofork_close(&w->epoll);
	free(w);
}

static void watcher_stop(struct watcher *w)
{
	struct timespec until;

	signals_block();
	if (clofork_ours(&w->wakeup))
		shutdown(w->wakeup.fd, SHUT_RDWR);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_NS / 1000000000u;
	w->left = pthread_timedjoin_np(w->thread, NULL, &until);
	signals_restore();
}

/* Without the lock: the thread may be waiting for it. */
static void watcher_end(struct watcher *w)
{
	if (!w)
		return;
	if (service_end(&w->service))
		watcher_stop(w);
	if (!w->left)
		watcher_free(w);
}

/* In a forked child: these are the parent's channels. */
static void forget(void)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &table.peers)
		peer_free(peer_of(l));
	if (table.watcher)
		watcher_free(table.watcher);
	table.watcher = NULL;
	table.refs = 0;
}

static void enter(void)
{
	sig_lock(&lock);
	if (table.page && !table.page->ours)
		forget();
}

void peer_forget_all(void)
{
	enter();
	sig_unlock(&lock);
}

/* Those of clofork.c are registered before: its lock is taken within ours. */
static int register_handlers(void)
{
	static _Atomic int state;
	int rc = clofork_ready();

	return rc ? rc : fork_handlers(&state, before_fork, after_fork,
				       after_fork);
}

__attribute__((constructor)) static void register_early(void)
{
	register_handlers();
}

static int page_make(void)
{
	struct nonce_page *p = table.page;
	uint64_t nonce[2];

	if (getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce))
		return kedge_reason(-EIO, "the kernel gives no random numbers");
	if (!p) {
		p = page_of_process();
		if (!p)
			return kedge_reason(-errno, "a page cannot be kept "
					    "from forked children");
	}
	memcpy(p->nonce, nonce, sizeof(nonce));
	p->ours = 1;
	table.page = p;
	return 0;
}

int peer_table_get(uint64_t nonce[2], uint64_t *at)
{
	int rc = register_handlers();

	if (rc)
		return rc;
	enter();
	if (!table.refs)
		rc = page_make();
	if (!rc) {
		table.refs++;
		memcpy(nonce, table.page->nonce, sizeof(table.page->nonce));
		*at = (uintptr_t)table.page->nonce;
	}
	sig_unlock(&lock);
	return rc;
}

void peer_table_put(void)
{
	struct watcher *w = NULL;

	enter();
	if (table.refs && !--table.refs) {
		munmap(table.page, kedge__page_size());
		table.page = NULL;
		w = table.watcher;
		table.watcher = NULL;
	}
	sig_unlock(&lock);
	watcher_end(w);
}

/* ---- peers ---- */

static bool lives(const struct peer *p)
{
	struct pollfd f = { .fd = p->pidfd.fd, .events = POLLIN };

	return f.fd >= 0 && !poll(&f, 1, 0);
}

bool peer_lives(const struct peer *p)
{
	return lives(p);
}

int peer_fd(const struct peer *p)
{
	return p ? p->pidfd.fd : -1;
}

/* The socket knows its process itself; a number may have found another one. */
static int pidfd_of(pid_t pid, int sock, bool made_it)
{
	socklen_t len = sizeof(int);
	int fd = -1;

	if (made_it &&
	    !getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) && fd >= 0)
		return fd;
	fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (fd < 0 && pid > 0 && (errno == EMFILE || errno == ENFILE))
		return kedge_reason(-errno, "no descriptor is left for the "
				    "peer's process: raise ulimit -n");
	return fd < 0 ? -ESRCH : fd;
}

static struct peer *known(pid_t pid)
{
	struct list *l, *tmp;

	list_for_each_safe(l, tmp, &table.peers)
		if (peer_of(l)->pid == pid && lives(peer_of(l)) &&
		    clofork_ours(&peer_of(l)->pidfd))
			return peer_of(l);
	return NULL;
}

static int peer_new(pid_t pid, int sock, bool made_it, struct peer **out)
{
	struct peer *p = calloc(1, sizeof(*p));
	int fd, rc;

	if (!p)
		return -ENOMEM;
	clofork_init(&p->pidfd);
	fd = pidfd_of(pid, sock, made_it);
	rc = fd < 0 ? fd : clofork_keep(&p->pidfd, fd);
	if (rc && rc != -ESRCH) {
		free(p);
		return rc;
	}
	p->pid = pid;
	list_init(&p->channels);
	list_add_tail(&table.peers, &p->node);
	*out = p;
	return 0;
}

int peer_get(pid_t pid, int sock, bool made_it, struct peer **out)
{
	struct peer *p;
	int rc = 0;

	enter();
	p = known(pid);
	if (!p)
		rc = peer_new(pid, sock, made_it, &p);
	if (!rc) {
		p->refs++;
		*out = p;
	}
	sig_unlock(&lock);
	return rc;
}

static void unwatch(struct peer *p)
{
	/* A forked child may have the pidfd: closing it would not do. */
	if (p->watched && table.watcher)
		epoll_ctl(table.watcher->epoll.fd, EPOLL_CTL_DEL, p->pidfd.fd,
			  NULL);
	p->watched = false;
}

void peer_put(struct peer *p)
{
	enter();
	if (!--p->refs) {
		unwatch(p);
		peer_free(p);
	}
	sig_unlock(&lock);
}

/* ---- death ---- */

/* The event is that of a peer that there was: it may be gone since. */
static void peer_died(const void *which)
{
	struct list *l, *tmp, *c, *next;
	struct clofork *sock;

	enter();
	list_for_each_safe(l, tmp, &table.peers) {
		struct peer *p = peer_of(l);

		if (p != which || !p->watched || lives(p))
			continue;
		unwatch(p);
		list_for_each_safe(c, next, &p->channels) {
			sock = &list_entry(c, struct shm, watch)->sock;
			if (clofork_ours(sock))
				shutdown(sock->fd, SHUT_RDWR);
		}
	}
	sig_unlock(&lock);
}

static void *watch(void *arg)
{
	struct watcher *w = arg;
	struct pollfd p[] = { { .fd = w->sees.fd },
			      { .fd = w->epoll.fd, .events = POLLIN } };
	struct epoll_event ev;

	while (clofork_ours(&w->sees)) {
		if (poll(p, ARRAY_SIZE(p), -1) < 0)
			continue;
		if (p[0].revents || p[1].revents & ~POLLIN)
			break;
		if (epoll_wait(w->epoll.fd, &ev, 1, 0) == 1)
			peer_died(ev.data.ptr);
	}
	return NULL;
}

static int watcher_open(struct watcher *w)
{
	int rc = clofork_begin(), sv[2] = { -1, -1 };

	if (rc)
		return rc;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return clofork_end(&w->wakeup, -1);
	clofork_end(&w->wakeup, sv[0]);
	rc = clofork_keep(&w->sees, sv[1]);
	return rc ? rc : clofork_keep(&w->epoll, epoll_create1(EPOLL_CLOEXEC));
}

static void service_ends(struct service *s)
{
	watcher_stop(container_of(s, struct watcher, service));
}

/* Signals are blocked here, and so in the thread. */
static int watcher_start(struct watcher **out)
{
	struct watcher *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	clofork_init(&w->wakeup);
	clofork_init(&w->sees);
	clofork_init(&w->epoll);
	w->service.end = service_ends;
	rc = watcher_open(w);
	if (rc)
		goto free_watcher;
	rc = service_begin(&w->service);
	if (rc)
		goto free_watcher;
	rc = thread_start(&w->thread, watch, w);
	if (rc)
		goto leave_services;
	service_runs(&w->service);
	*out = w;
	return 0;

leave_services:
	service_end(&w->service);
free_watcher:
	watcher_free(w);
	return rc;
}

/* The application has closed what the thread needs: it ends, and so do the
 * channels that there are, as their sockets are closed, too. */
static void drop_closed_watcher(void)
{
	struct watcher *w = NULL;
	struct list *l, *tmp;

	enter();
	if (table.watcher && !clofork_ours(&table.watcher->wakeup)) {
		w = table.watcher;
		table.watcher = NULL;
		list_for_each_safe(l, tmp, &table.peers)
			peer_of(l)->watched = false;
	}
	sig_unlock(&lock);
	watcher_end(w);
}

/* An event once: what cannot be removed from the set does not show for ever. */
static int watch_peer(struct peer *p)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT,
				  .data.ptr = p };
	int rc = table.watcher ? 0 : watcher_start(&table.watcher);

	if (!rc && !p->watched)
		rc = epoll_ctl(table.watcher->epoll.fd, EPOLL_CTL_ADD,
			       p->pidfd.fd, &ev) ? -errno : 0;
	p->watched |= !rc;
	return rc;
}

int peer_watch(struct shm *s)
{
	struct peer *p = s->peer;
	int rc;

	/* An end that this process has itself dies with it. */
	if (p->pidfd.fd < 0 || p->pid == getpid())
		return 0;
	drop_closed_watcher();
	enter();
	rc = watch_peer(p);
	if (!rc)
		list_add_tail(&p->channels, &s->watch);
	sig_unlock(&lock);
	return rc ? kedge_reason(rc, "nothing can be set up that sees the "
				 "peer's death: %s", strerror(-rc)) : 0;
}

/* The thread looks at the socket under the lock: a peer that died before it was
 * here is not told of again. */
void peer_socket(struct shm *s, struct clofork *sock)
{
	const struct peer *p = s->peer;

	enter();
	clofork_move(&s->sock, sock);
	if (p->pidfd.fd >= 0 && p->pid != getpid() && !lives(p))
		shutdown(s->sock.fd, SHUT_RDWR);
	sig_unlock(&lock);
}

void peer_unwatch(struct shm *s)
{
	enter();
	list_remove(&s->watch);
	sig_unlock(&lock);
}

/* ---- the peer's rights ---- */

#define LINES 4

struct rights {
	char line[LINES][128];
	struct stat ns;
};

static bool rights_of(const char *dir, struct rights *r)
{
	static const char *const keys[LINES] = { "Uid:", "Gid:", "CapPrm:",
						 "CapEff:" };
	char path[64], line[128];
	int found = 0, i;
	FILE *f;

	memset(r, 0, sizeof(*r));
	snprintf(path, sizeof(path), "%s/ns/user", dir);
	if (stat(path, &r->ns))
		return false;
	snprintf(path, sizeof(path), "%s/status", dir);
	f = fopen(path, "re");
	if (!f)
		return false;
	/* Other lines may be longer: their rest begins with no such key. */
	while (fgets(line, sizeof(line), f))
		for (i = 0; i < LINES; i++)
			if (!strncmp(line, keys[i], strlen(keys[i]))) {
				strcpy(r->line[i], line);
				found |= 1 << i;
			}
	fclose(f);
	return found == (1 << LINES) - 1;
}

const char *peer_differs(pid_t pid)
{
	static const char *const what[LINES] = { "user ids", "group ids",
						 "capabilities",
						 "capabilities" };
	struct rights mine, its;
	char dir[32];
	int i;

	snprintf(dir, sizeof(dir), "/proc/%d", (int)pid);
	if (!rights_of("/proc/thread-self", &mine) || !rights_of(dir, &its))
		return "no look at it in /proc";
	for (i = 0; i < LINES; i++)
		if (strcmp(mine.line[i], its.line[i]))
			return what[i];
	if (mine.ns.st_ino != its.ns.st_ino || mine.ns.st_dev != its.ns.st_dev)
		return "a user namespace";
	return NULL;
}

/* ---- what strangers leave behind ---- */

static void *close_it(void *arg)
{
	close((int)(intptr_t)arg);
	return NULL;
}

/*
 * The last close of a file may wait as long as whoever made it likes: a TCP
 * socket that lingers, a file system that a process serves. It may come as a
 * descriptor, or lie unread in a socket.
 */
void close_aside(int fd)
{
	pthread_attr_t attr;
	pthread_t thread;
	bool started;

	if (pthread_attr_init(&attr)) {
		close(fd);
		return;
	}
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	signals_block();
	started = !pthread_create(&thread, &attr, close_it,
				  (void *)(intptr_t)fd);
	signals_restore();
	pthread_attr_destroy(&attr);
	if (!started)
		close(fd);
}
