// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread "kedge-handles": peers come to it with a handle, are given what it is of, and
 * stay connected, so that it hears when one ends. It runs in the table of descriptors of
 * the keeper, which starts it. Accesses do not involve it.
 *
 * The socket's name is no secret, so peers that have not shown a handle yet are few, and the
 * oldest makes room; another user's is refused. A wrong handle ends the
 * connection: guessing 128 bits takes a connection a try.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/base.h"
#include "base/process/own.h"
#include "base/process/service.h"
#include "base/process/thread.h"
#include "region/keeper.h"
#include "region/share/share.h"

/*
 * By the system calls themselves: ThreadSanitizer knows one table of descriptors, and takes
 * a number of this one for the program's.
 */
#define CLOSE(fd)     syscall(SYS_close, fd)
#define WATCH(fd, ev) syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, ev)

#define BACKLOG 128
#define ASKING	64 /* peers that have not shown a handle */
#define TRIES	8
#define LINGER_MS 1

static struct sig_lock serve_lock = SIG_LOCK_INIT; /* guards: */
static bool runs;
static struct service service;

/* The thread's; set before it starts. */
static pthread_t thread;
static uint64_t name;
static int listener, epoll, stop, spare;
static struct conn *asking[ASKING];
static unsigned int asking_next;
static unsigned int lingering; /* of those, that may be inside without a connection */
static struct list conns; /* by @of_all: those that have shown one, and the others */

/* ---- one peer ---- */

static void forget_asking(const struct conn *c)
{
	unsigned int i;

	for (i = 0; i < ASKING; i++)
		if (asking[i] == c)
			asking[i] = NULL;
}

/* Out of the gate, or without its memory. A peer that has sealed the file against seals is
 * taken for that, too. */
static bool is_gone(const struct conn *c)
{
	uint32_t inside = 0;

	if (syscall(SYS_pread64, c->gate_fd, &inside, sizeof(inside),
		    offsetof(struct gate, inside)) == sizeof(inside) && !inside)
		return true;
	return !syscall(SYS_fcntl, c->gate_fd, F_ADD_SEALS, F_SEAL_WRITE) || errno != EBUSY;
}

static void end_conn(struct conn *c)
{
	sig_lock_blocked(&shares_lock);
	gate_take(c);
	sig_unlock_blocked(&shares_lock);
	forget_asking(c);
	list_remove(&c->of_all);
	if (c->gate)
		own_unmap(c->gate, kedge__page_size());
	if (c->gate_fd >= 0)
		CLOSE(c->gate_fd);
	if (c->fd >= 0)
		CLOSE(c->fd);
	lingering -= c->lingers;
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
	bool lingers;

	sig_lock_blocked(&shares_lock);
	lingers = gate_lingers(c);
	if (lingers) {
		own_unmap(c->gate, kedge__page_size());
		c->gate = NULL;
	}
	sig_unlock_blocked(&shares_lock);
	lingering += lingers;
	CLOSE(c->fd);
	c->fd = -1;
	if (!lingers || is_gone(c))
		end_conn(c);
}

static void look_after_lingering(void)
{
	struct list *l, *tmp;
	struct conn *c;

	list_for_each_safe(l, tmp, &conns) {
		c = list_entry(l, struct conn, of_all);
		if (c->lingers && is_gone(c))
			end_conn(c);
	}
}

static void refuse(int fd, uint32_t seq, int rc)
{
	struct region_answer a = { .magic = REGION_MAGIC, .version = REGION_VERSION,
				   .seq = seq, .rc = rc };

	syscall(SYS_sendto, fd, &a, sizeof(a), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

/* A page that cannot be made shorter under a mapping of it. */
static int make_gate(struct conn *c)
{
	int fd = (int)syscall(SYS_memfd_create, "kedge-gate", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	long at = 0;
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (syscall(SYS_ftruncate, fd, kedge__page_size()) ||
	    syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		rc = -errno;
	if (!rc)
		at = syscall(SYS_mmap, NULL, kedge__page_size(), PROT_READ | PROT_WRITE,
			     MAP_SHARED, fd, 0);
	if (!rc && at == -1)
		rc = -ENOMEM;
	if (!rc)
		c->gate = (struct gate *)at;
	if (!rc && madvise(c->gate, kedge__page_size(), MADV_DONTFORK))
		rc = -errno;
	c->gate_fd = fd;
	return rc;
}

/* The region's memfd, for as much as the handle gives. */
static int open_pages(const struct slot *s)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", s->region->fd);
	if (s->access & ~KEDGE_HANDLE_READ)
		fd = (int)syscall(SYS_fcntl, s->region->fd, F_DUPFD_CLOEXEC, 0);
	else
		fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int send_answer(int to, const struct region_answer *a, const int fd[2])
{
	char space[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)a, sizeof(*a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(c), fd, 2 * sizeof(int));
	return syscall(SYS_sendmsg, to, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (long)sizeof(*a)
		       ? 0 : -errno;
}

static void fill_answer(struct region_answer *a, const struct slot *s)
{
	*a = (struct region_answer){ .magic = REGION_MAGIC, .version = REGION_VERSION,
				     .access = s->access, .offset = s->offset,
				     .max_len = s->len, .epoch = s->region->epoch,
				     .page_size = s->region->page_size };
}

/* With shares_lock, so that the region is not closed meanwhile. Two descriptors in any case. */
static int give(struct conn *c, struct slot *s, int gate, uint32_t seq)
{
	const int pages = open_pages(s);
	const int fd[2] = { gate < 0 ? pages : gate, pages };
	struct region_answer a;
	int rc;

	if (pages < 0)
		return pages;
	fill_answer(&a, s);
	a.seq = seq;
	rc = send_answer(c->fd, &a, fd);
	CLOSE(pages);
	return rc;
}

/* Likewise. */
static int let_in(struct conn *c, struct slot *s, uint32_t seq)
{
	int rc = make_gate(c);

	if (rc)
		return rc;
	gate_open_to(c, s);
	rc = give(c, s, c->gate_fd, seq);
	if (rc)
		gate_take(c);
	return rc;
}

/* Likewise: the region was moved, or the peer says so. It has its gate. */
static int give_again(struct conn *c, uint32_t seq)
{
	int rc = c->slot ? give(c, c->slot, -1, seq) : -EKEYREVOKED;

	/* It asks once more at its next access. */
	if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM) {
		refuse(c->fd, seq, rc);
		rc = 0;
	}
	return rc;
}

static int answer(struct conn *c, const struct region_ask *ask)
{
	struct handle_words w;
	struct slot *s;
	int rc;

	if (ask->magic != REGION_MAGIC || ask->version != REGION_VERSION ||
	    !handle_read(&ask->handle, &w))
		return -EPROTO;
	sig_lock_blocked(&shares_lock);
	if (c->gate) {
		rc = give_again(c, ask->seq);
	} else {
		rc = slot_find(&w, &s);
		if (!rc)
			rc = let_in(c, s, ask->seq);
	}
	sig_unlock_blocked(&shares_lock);
	return rc;
}

static void serve(struct conn *c, uint32_t events)
{
	struct region_ask ask = { .seq = 0 };
	int rc = -EPROTO;

	forget_asking(c);
	/* Its end comes with what it may have said before. */
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		hang_up(c);
		return;
	}
	if (syscall(SYS_recvfrom, c->fd, &ask, sizeof(ask), MSG_DONTWAIT | MSG_TRUNC, NULL,
		    NULL) == (long)sizeof(ask))
		rc = answer(c, &ask);
	if (rc) {
		refuse(c->fd, ask.seq, rc);
		hang_up(c);
	}
}

/* ---- those that come ---- */

static bool is_foreign(int fd, pid_t *pid)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return true;
	*pid = peer.pid;
	return peer.uid && peer.uid != geteuid();
}

static void add(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	struct conn *c = calloc(1, sizeof(*c));
	struct conn **place = &asking[asking_next++ % ASKING];
	int rc = c ? 0 : -ENOMEM;

	if (!rc && is_foreign(fd, &c->pid))
		rc = -EACCES;
	ev.data.ptr = c;
	if (!rc && WATCH(fd, &ev))
		rc = -errno;
	if (rc) {
		refuse(fd, 0, rc);
		CLOSE(fd);
		free(c);
		return;
	}
	if (*place)
		end_conn(*place);
	*place = c;
	c->fd = fd;
	c->gate_fd = -1;
	list_add_tail(&conns, &c->of_all);
}

/* The table is full, or memory: the peer is told, by the descriptor that is kept for that. */
static void turn_away(int err)
{
	const struct timespec nap = { 0, 10000000 };
	int fd;

	if (spare >= 0)
		CLOSE(spare);
	fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) {
		refuse(fd, 0, -err);
		CLOSE(fd);
	} else {
		/* It waits there still, and would be heard of at once. */
		nanosleep(&nap, NULL);
	}
	spare = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
}

static void come(void)
{
	int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		add(fd);
	else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		turn_away(errno);
}

/* ---- the thread ---- */

static void *run(void *unused)
{
	struct epoll_event ev;
	long n;

	(void)unused;
	prctl(PR_SET_NAME, "kedge-handles");
	for (;;) {
		/* One at a time: what one event ends may have had the next. */
		n = syscall(SYS_epoll_pwait, epoll, &ev, 1, lingering ? LINGER_MS : -1, NULL, 0);
		if (lingering)
			look_after_lingering();
		if (n < 1)
			continue;
		if (ev.data.ptr == &stop)
			break;
		if (ev.data.ptr == &listener)
			come();
		else
			serve(ev.data.ptr, ev.events);
	}
	return NULL;
}

static int watch(int fd, void *what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = what };

	return WATCH(fd, &ev) ? -errno : 0;
}

static int listen_somewhere(void)
{
	struct sockaddr_un a;
	int try;

	listener = (int)syscall(SYS_socket, AF_UNIX,
				SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener < 0)
		return -errno;
	for (try = 0; try < TRIES; try++) {
		randombytes_buf(&name, sizeof(name));
		if (!syscall(SYS_bind, listener, &a, handle_address(name, &a)))
			return syscall(SYS_listen, listener, BACKLOG) ? -errno : 0;
	}
	return -errno;
}

static void close_all(void)
{
	const int fd[] = { listener, epoll, stop, spare };
	struct list *l, *tmp;
	unsigned int i;

	list_for_each_safe(l, tmp, &conns)
		end_conn(list_entry(l, struct conn, of_all));
	for (i = 0; i < sizeof(fd) / sizeof(*fd); i++)
		if (fd[i] >= 0)
			CLOSE(fd[i]);
	listener = epoll = stop = spare = -1;
}

static int open_all(void)
{
	int rc = listen_somewhere();

	epoll = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	stop = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);
	spare = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
	if (!rc && (epoll < 0 || stop < 0 || spare < 0))
		rc = -errno;
	if (!rc)
		rc = watch(listener, &listener);
	if (!rc)
		rc = watch(stop, &stop);
	return rc;
}

/* By the keeper: the thread has its table of descriptors then, and its signals. */
static int start(void *unused)
{
	int rc;

	(void)unused;
	list_init(&conns);
	lingering = 0;
	rc = open_all();
	if (!rc)
		rc = thread_start(&thread, run, NULL);
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

/* Before the keeper's is ended, as it began later. */
static void end_thread(struct service *s)
{
	(void)s;
	if (!keeper_call(say_stop, NULL))
		pthread_join(thread, NULL);
	keeper_call(finish, NULL);
}

static void end(void)
{
	sig_lock(&serve_lock);
	if (runs && service_end(&service))
		end_thread(&service);
	runs = false;
	sig_unlock(&serve_lock);
}

static int begin(void)
{
	int rc;

	service.end = end_thread;
	rc = service_begin(&service);
	if (rc)
		return kedge_reason(rc, "no memory for a thread");
	rc = keeper_call(start, NULL);
	if (!rc) {
		service_runs(&service);
		keeper_before_end(end);
		return 0;
	}
	service_end(&service);
	return error_no_fd(-rc) ? error_no_fd(-rc)
				: kedge_reason(rc, "no thread can be made to answer peers: "
					       "error %d", -rc);
}

int serve_use(uint64_t *socket_name)
{
	int rc = 0;

	sig_lock(&serve_lock);
	if (!runs)
		rc = begin();
	runs = !rc;
	*socket_name = name;
	sig_unlock(&serve_lock);
	return rc;
}

/* A child has neither the parent's gates nor its descriptors. */
void serve_forget(void)
{
	sig_lock_init(&serve_lock);
	runs = false;
	memset(asking, 0, sizeof(asking));
}
