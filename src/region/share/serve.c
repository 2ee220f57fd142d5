// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread "kedge-handles": peers come to it with a handle, are given what it is of, and
 * stay connected, so that it hears when one ends. It runs in the table of descriptors of
 * the keeper, which starts it. Accesses of peers that have the memory do not involve it; for
 * others it does them (streams.c).
 *
 * The sockets' names are no secret, so peers that have not shown a handle yet are few, and the
 * oldest makes room; another user's is given no memory. A wrong handle ends the
 * connection: guessing 128 bits takes a connection a try.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/own.h"
#include "base/process/thread.h"
#include "region/keeper.h"
#include "region/share/share.h"
#include "region/stream.h"

/*
 * By the system calls themselves: ThreadSanitizer knows one table of descriptors, and takes
 * a number of this one for the program's.
 */
#define CLOSE(fd)     syscall(SYS_close, fd)
#define WATCH(fd, ev) syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, ev)

#define ASKING	64 /* peers that have not shown a handle: at most, and */
#define PART	8  /* no more than one of so many descriptors */
#define TICK_MS 1
#define LOOK_MS 1000 /* whether the host of one that does not read is there */

static struct sig_lock serve_lock = SIG_LOCK_INIT; /* guards: */
static struct keeper_thread beside;

/* The thread's; set before it starts. */
static uint64_t name;
static int epoll, stop, nudge, spare;
static struct conn *asking[ASKING];
static unsigned int asking_next, asking_max;
static unsigned int lingering; /* of those, that may be inside without a connection */
static unsigned int sending; /* those that do not read what they asked for */
static uint64_t looked;
static unsigned int waiting; /* with a request for a region that is suspended */
static struct list conns; /* by @of_all: those that have shown one, and the others */

/* Of no file: a process in a root of its own may have none. */
static int open_spare(void)
{
	return (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);
}

/* ---- one peer ---- */

static void forget_asking(const struct conn *c)
{
	unsigned int i;

	for (i = 0; i < ASKING; i++)
		if (asking[i] == c)
			asking[i] = NULL;
}

/* A child that has pages for a region (fill.c) may have the connection as well, for a moment, and
 * as long as anyone has it its events would come: with the address of what is freed here. */
static void close_socket(struct conn *c)
{
	if (c->fd < 0)
		return;
	syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, c->fd, NULL);
	CLOSE(c->fd);
	c->fd = -1;
}

static void end_conn(struct conn *c)
{
	sig_lock_blocked(&shares_lock);
	gate_take(c);
	lease_end(c);
	telling_end(c);
	list_remove(&c->at.node);
	sig_unlock_blocked(&shares_lock);
	forget_asking(c);
	list_remove(&c->of_all);
	if (c->gate)
		own_unmap(c->gate, kedge__page_size());
	if (c->gate_fd >= 0)
		CLOSE(c->gate_fd);
	close_socket(c);
	lingering -= c->lingers;
	waiting -= stream_waits(c);
	sending -= c->wants & EPOLLOUT ? 1 : 0;
	stream_end(c);
	free(c);
}

/*
 * The connection is over. A process that ends has given its memory up before, but one may
 * also close a socket while another of its threads is inside. So it is looked whether the gate
 * is mapped anywhere: the kernel seals a file against writing only if it is not, and this
 * process gives its own mapping up for that.
 */
static void hang_up(struct conn *c)
{
	struct gate *gate;
	bool lingers;

	sig_lock_blocked(&shares_lock);
	lingers = gate_lingers(c, &gate);
	if (lingers)
		own_unmap(gate, kedge__page_size());
	sig_unlock_blocked(&shares_lock);
	lingering += lingers;
	close_socket(c);
	if (!lingers || gate_is_gone(c))
		end_conn(c);
}

static void look_after_lingering(void)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &conns) {
		c = list_entry(l, struct conn, of_all);
		if (c->lingers && gate_is_gone(c))
			end_conn(c);
	}
}

/* One that asks for a list has shown no handle, and makes room for others still. */
static int hear(struct conn *c, uint32_t *seq)
{
	union {
		struct region_ask ask;
		struct list_ask list;
	} q = { .ask.seq = 0 };
	const long n = syscall(SYS_recvfrom, c->fd, &q, sizeof(q), MSG_DONTWAIT | MSG_TRUNC, NULL,
			       NULL);

	*seq = q.ask.seq;
	if (n == sizeof(q.list))
		return regions_answer(c, &q.list);
	forget_asking(c);
	return n == sizeof(q.ask) ? give_answer(c, &q.ask) : -EPROTO;
}

static void serve(struct conn *c, uint32_t events)
{
	uint32_t seq;
	int rc;

	/* Its end comes with what it may have said before. */
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		hang_up(c);
		return;
	}
	rc = hear(c, &seq);
	if (rc) {
		give_refusal(c->fd, seq, rc);
		hang_up(c);
	}
}

/* ---- peers for which accesses are done here ---- */

static void watch_stream(struct conn *c)
{
	struct epoll_event ev = { .events = stream_wants(c), .data.ptr = c };

	if (ev.events == c->wants)
		return;
	sending += (ev.events & EPOLLOUT ? 1u : 0u) - (c->wants & EPOLLOUT ? 1u : 0u);
	c->wants = ev.events;
	syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_MOD, c->fd, &ev);
}

static void look_whether_told(struct conn *c)
{
	if (!stream_has_said_moved(c))
		return;
	sig_lock_blocked(&shares_lock);
	telling_end(c);
	sig_unlock_blocked(&shares_lock);
}

/* An owner that brings a region: another thread goes on with it. */
static void hand_over(struct conn *c)
{
	syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, c->fd, NULL);
	stream_hand_over(c);
	c->fd = -1;
}

static void go_on(struct conn *c)
{
	const bool waited = stream_waits(c);
	int rc = stream_go_on(c);

	waiting += (unsigned int)stream_waits(c) - waited;
	if (stream_is_known(c))
		forget_asking(c);
	if (!rc && stream_is_arrival(c)) {
		hand_over(c);
		rc = -ECONNRESET;
	}
	if (rc) {
		end_conn(c);
		return;
	}
	if (lease_look(c))
		stream_say_recalled(c);
	watch_stream(c);
	look_whether_told(c);
}

static void serve_stream(struct conn *c, uint32_t events)
{
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		end_conn(c);
	else
		go_on(c);
}

/* A socket keeps what a host that is gone was to read for a quarter of an hour otherwise. */
static void look_after_sending(void)
{
	struct list *l, *tmp;
	struct conn *c;

	if (clock_ns() - looked < LOOK_MS * UINT64_C(1000000))
		return;
	looked = clock_ns();
	list_for_each_safe(l, tmp, &conns) {
		c = list_entry(l, struct conn, of_all);
		if (c->wants & EPOLLOUT && stream_host_is_gone(c->fd))
			end_conn(c);
	}
}

/* A resumption does not wake this thread: it looks, as long as there are any. */
static void look_after_waiting(void)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &conns) {
		c = list_entry(l, struct conn, of_all);
		if (stream_waits(c))
			go_on(c);
	}
}

/* Those that are idle hear where their region has migrated to, even if this process ends next. */
static void look_after_moved(void)
{
	struct list *l, *tmp;
	struct conn *c;
	uint64_t cnt;
	bool tell;

	syscall(SYS_read, nudge, &cnt, sizeof(cnt));
	list_for_each_safe(l, tmp, &conns) {
		c = list_entry(l, struct conn, of_all);
		sig_lock_blocked(&shares_lock);
		tell = c->moved && !c->told && c->stream;
		sig_unlock_blocked(&shares_lock);
		if (tell) {
			stream_say_moved(c);
			watch_stream(c);
			look_whether_told(c);
		}
		if (c->stream && lease_look(c)) {
			stream_say_recalled(c);
			watch_stream(c);
		}
	}
}

/* ---- those that come ---- */

/* 0, or why not. */
static int prepare(struct conn *c, bool stream)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };
	struct ucred peer;
	int rc = 0;

	c->wants = ev.events;
	if (stream) {
		stream_prepare(c->fd);
		rc = stream_begin(c);
	} else {
		rc = give_may(c->fd, &peer);
		c->pid = peer.pid;
	}
	return !rc && WATCH(c->fd, &ev) ? -errno : rc;
}

static void add(int fd, bool stream, bool local)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct conn **place = &asking[asking_next++ % asking_max];
	int rc = -ENOMEM;

	if (c) {
		c->fd = fd;
		c->gate_fd = -1;
		c->local = local;
		list_init(&c->at.node);
		rc = prepare(c, stream);
	}
	if (rc) {
		if (stream)
			stream_turn_away(fd, rc);
		else
			give_refusal(fd, 0, rc);
		if (c)
			stream_end(c);
		CLOSE(fd);
		free(c);
		return;
	}
	if (*place)
		end_conn(*place);
	*place = c;
	list_add_tail(&conns, &c->of_all);
}

/* The oldest that has not shown a handle goes; false: there is none. */
static bool make_room(void)
{
	const int err = errno;
	unsigned int i;
	struct conn *c;

	for (i = 0; i < asking_max; i++) {
		c = asking[(asking_next + i) % asking_max];
		if (c) {
			end_conn(c);
			return true;
		}
	}
	errno = err;
	return false;
}

/* The table is full, or memory: the peer is told, by the descriptor that is kept for that. */
static void turn_away(const struct listener *at, int err)
{
	const struct timespec nap = { 0, 10000000 };
	int fd;

	if (spare >= 0)
		CLOSE(spare);
	fd = (int)syscall(SYS_accept4, at->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) {
		if (at->stream)
			stream_turn_away(fd, -err);
		else
			give_refusal(fd, 0, -err);
		CLOSE(fd);
	} else {
		/* It waits there still, and would be heard of at once. */
		nanosleep(&nap, NULL);
	}
	spare = open_spare();
}

static void come(const struct listener *to)
{
	const int at = atomic_load_explicit(&to->fd, memory_order_acquire);
	const int fd = (int)syscall(SYS_accept4, at, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		add(fd, to->stream, !to->port);
	else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED && !make_room())
		turn_away(to, errno);
}

/* ---- the thread ---- */

static void handle(void *what, uint32_t events)
{
	struct conn *c = what;

	if (listener_of(what))
		come(listener_of(what));
	else if (c->stream)
		serve_stream(c, events);
	else
		serve(c, events);
}

static int tick_ms(void)
{
	if (lingering || waiting)
		return TICK_MS;
	return sending ? clock_slice_ms(LOOK_MS) : -1;
}

static void *run(void *unused)
{
	struct epoll_event ev;
	long n;

	(void)unused;
	prctl(PR_SET_NAME, "kedge-handles");
	for (;;) {
		/* One at a time: what one event ends may have had the next. */
		n = syscall(SYS_epoll_pwait, epoll, &ev, 1, tick_ms(), NULL, 0);
		if (n == 1 && ev.data.ptr == &stop)
			break;
		if (n == 1 && ev.data.ptr == &nudge)
			look_after_moved();
		else if (n == 1)
			handle(ev.data.ptr, ev.events);
		if (lingering)
			look_after_lingering();
		if (waiting)
			look_after_waiting();
		if (sending)
			look_after_sending();
	}
	return NULL;
}

static int watch(int fd, void *what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = what };

	return WATCH(fd, &ev) ? -errno : 0;
}

static void close_all(void)
{
	const int fd[] = { epoll, stop, nudge, spare };
	struct list *l, *tmp;
	struct conn *c;
	unsigned int i;

	list_for_each_safe(l, tmp, &conns) {
		c = list_entry(l, struct conn, of_all);
		if (c->stream)
			stream_say_closed(c);
		end_conn(c);
	}
	listen_end();
	for (i = 0; i < sizeof(fd) / sizeof(*fd); i++)
		if (fd[i] >= 0)
			CLOSE(fd[i]);
	epoll = stop = nudge = spare = -1;
}

static int open_all(void)
{
	int rc = 0;

	epoll = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	stop = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);
	nudge = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);
	spare = open_spare();
	if (epoll < 0 || stop < 0 || nudge < 0 || spare < 0)
		rc = -errno;
	if (!rc)
		rc = listen_begin(epoll, &name);
	if (!rc)
		rc = watch(stop, &stop);
	if (!rc)
		rc = watch(nudge, &nudge);
	leases_nudge_is(nudge);
	return rc;
}

/* By the keeper: the thread has its table of descriptors then, and its signals. */
static int start(void *unused)
{
	struct rlimit fds;
	int rc;

	(void)unused;
	list_init(&conns);
	lingering = waiting = sending = 0;
	asking_max = ASKING;
	if (!getrlimit(RLIMIT_NOFILE, &fds) && fds.rlim_cur / PART < ASKING)
		asking_max = fds.rlim_cur / PART ? (unsigned int)(fds.rlim_cur / PART) : 1;
	rc = open_all();
	if (!rc)
		rc = thread_start(&beside.thread, run, NULL);
	if (rc)
		close_all();
	return rc;
}

static int say_stop(void *unused)
{
	const uint64_t one = 1;

	(void)unused;
	return syscall(SYS_write, stop, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int finish(void *unused)
{
	(void)unused;
	close_all();
	return 0;
}

/* ---- the others ---- */

static void end(void)
{
	sig_lock(&serve_lock);
	keeper_thread_end(&beside);
	sig_unlock(&serve_lock);
}

static struct keeper_thread beside = { .start = start, .say_stop = say_stop, .finish = finish,
				       .end = end, .what = "answer peers" };

int serve_use(uint64_t *socket_name)
{
	int rc;

	sig_lock(&serve_lock);
	rc = keeper_thread_use(&beside);
	*socket_name = name;
	sig_unlock(&serve_lock);
	return rc;
}

int serve_call(int (*fn)(void *arg), void *arg)
{
	int rc = -ESHUTDOWN;

	sig_lock(&serve_lock);
	if (beside.runs)
		rc = keeper_call(fn, arg);
	sig_unlock(&serve_lock);
	return rc;
}

void serve_nudge(void)
{
	const uint64_t one = 1;

	sig_lock(&serve_lock);
	if (beside.runs)
		syscall(SYS_write, nudge, &one, sizeof(one));
	sig_unlock(&serve_lock);
}

/* A child has neither the parent's gates nor its descriptors. */
void serve_forget(void)
{
	sig_lock_init(&serve_lock);
	listen_forget();
	beside.runs = false;
	memset(asking, 0, sizeof(asking));
}
