// SPDX-License-Identifier: BSD-2-Clause
/*
 * The thread "kedge-segment": it reads what the kernel says about converted memory,
 * answers peers, and hears what owners say to this process.
 *
 * It has a table of descriptors of its own, in which all of those are opened: a program
 * that closes what it does not know cannot cut it off, and a forked child inherits none.
 * The one that a program could close is the socket by which calls ask the thread for
 * something (call.c); then they come to it as a peer does.
 *
 * The thread allocates nothing (see internal.h). It ends with the last segment and grant.
 */
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/service.h"
#include "base/process/thread.h"
#include "segment/thread/thread.h"

#define EVENTS	16
#define LOOK_MS 50 /* without the socket to be asked by */

/* Guarded by the gate. */
static unsigned int users;
static bool runs;
static pthread_t thread;
static struct service service;

static _Atomic bool stop;
/* The thread's. */
static int ctl;
static bool has_ctl;

/* ---- the thread ---- */

/* The first also where a filter forbids unshare(), as containers' do. */
static int own_table(void)
{
	if (syscall(SYS_close_range, ctl + 1, UINT_MAX, CLOSE_RANGE_UNSHARE) &&
	    unshare(CLONE_FILES))
		return -errno;
	if (ctl > 0)
		syscall(SYS_close_range, 0, ctl - 1, 0);
	syscall(SYS_close_range, ctl + 1, UINT_MAX, 0);
	return 0;
}

static int open_all(void)
{
	int rc = own_table();

	if (rc)
		return kedge_reason(rc, "no table of descriptors of its own for kedge's "
				    "thread: allow close_range() or unshare(CLONE_FILES) in "
				    "the container's seccomp profile");
	seg->epoll = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	if (seg->epoll < 0)
		return -errno;
	rc = check_make();
	if (!rc)
		rc = serve_open();
	if (!rc)
		rc = fds_watch(ctl, WATCH_CTL, 0);
	has_ctl = !rc;
	return rc;
}

static void end_all(void)
{
	uint32_t i;

	serve_close();
	for (i = 0; i < EXTENTS; i++)
		fds_close(seg->extent[i].uffd);
	fds_close(seg->check_fd);
	fds_close(seg->epoll);
	fds_close(ctl);
}

/* Peers and owners wait for this thread. A refused call is ignored. */
static void run_anywhere(void)
{
	unsigned long cpus[128];

	memset(cpus, 0xff, sizeof(cpus));
	syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus);
	if (getpriority(PRIO_PROCESS, 0) > 0)
		setpriority(PRIO_PROCESS, 0, 0);
}

static int add_grant(const struct seg_call *call, int fd)
{
	int rc = fds_watch(fd, WATCH_GRANT, (uint32_t)call->index);

	if (rc) {
		fds_close(fd);
		return rc;
	}
	recall_begin(fd);
	sig_lock_blocked(&seg_lock);
	seg->grant_fd[call->index] = fd;
	sig_unlock_blocked(&seg_lock);
	return 0;
}

static int add_extent(const struct seg_call *call, int fd)
{
	struct extent *e = &seg->extent[call->index];
	int rd = fds_read_only(fd), rc = rd < 0 ? rd : 0;

	/* A process that has the memfd alone does not open it for more. */
	if (!rc && fchmod(fd, 0400))
		rc = -errno;
	if (rc) {
		fds_close(rd);
		fds_close(fd);
		return rc;
	}
	sig_lock_blocked(&seg_lock);
	e->fd = fd;
	e->read_fd = rd;
	sig_unlock_blocked(&seg_lock);
	return 0;
}

static int add_uffd(const struct seg_call *call, int fd)
{
	struct extent *e = &seg->extent[call->index];
	int rc = fds_watch(fd, WATCH_UFFD, (uint32_t)call->index);

	if (rc) {
		fds_close(fd);
		return rc;
	}
	e->uffd = fd;
	e->woken = false;
	return 0;
}

static int drop_extent(const struct seg_call *call)
{
	struct extent *e = &seg->extent[call->index];

	sig_lock_blocked(&seg_lock);
	fds_close(e->fd);
	fds_close(e->read_fd);
	fds_close(e->uffd);
	e->fd = e->read_fd = e->uffd = -1;
	serve_hang_up_extent(call->index);
	sig_unlock_blocked(&seg_lock);
	return 0;
}

static int release_grant(const struct seg_call *call)
{
	sig_lock_blocked(&seg_lock);
	fds_close(seg->grant_fd[call->index]);
	seg->grant_fd[call->index] = -1;
	sig_unlock_blocked(&seg_lock);
	return 0;
}

static int recall(const struct seg_call *call)
{
	sig_lock_blocked(&seg_lock);
	check_begin();
	serve_gone(call->index, call->start, call->end, true);
	check_end(true);
	sig_unlock_blocked(&seg_lock);
	return 0;
}

static int hang_up(const struct seg_call *call)
{
	sig_lock_blocked(&seg_lock);
	serve_hang_up((const struct kedge_segment *)(uintptr_t)call->start);
	sig_unlock_blocked(&seg_lock);
	return 0;
}

static int do_call(const struct seg_call *call, int fd)
{
	switch (call->op) {
	case SEG_OP_EXTENT:
		return add_extent(call, fd);
	case SEG_OP_UFFD:
		return add_uffd(call, fd);
	case SEG_OP_DROP_EXTENT:
		return drop_extent(call);
	case SEG_OP_FILE:
		return call_send_file(seg->extent[call->index].fd);
	case SEG_OP_HEARS:
		return call_send_file(seg->extent[call->index].uffd);
	case SEG_OP_WATCH:
		return uffd_watch(seg->extent[call->index].uffd, call->start,
				  call->end - call->start);
	case SEG_OP_UNWATCH:
		uffd_unwatch(seg->extent[call->index].uffd, call->start,
			     call->end - call->start);
		return 0;
	case SEG_OP_RECALL:
		return recall(call);
	case SEG_OP_GRANT:
		return add_grant(call, fd);
	case SEG_OP_RELEASE:
		return release_grant(call);
	case SEG_OP_PART:
		demand_tell(call);
		return 0;
	default:
		return hang_up(call);
	}
}

static void close_ctl(void)
{
	if (!has_ctl)
		return;
	has_ctl = false;
	fds_close(ctl);
	ctl = -1;
}

static void control(void)
{
	struct seg_call call;
	int fd, rc = call_next(&call, &fd);

	if (rc > 0) {
		call_answer(do_call(&call, fd));
	} else if (rc < 0) {
		/* The program has closed the other end, or it is over. */
		close_ctl();
	}
}

/* The program has closed the socket that there was. An answer says that this one is heard. */
static void hear_from(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)WATCH_CTL << 32 };
	const struct seg_head yes = seg_head(SEG_SELF);

	/* It is in that set, as a peer's. */
	if (syscall(SYS_epoll_ctl, seg->epoll, EPOLL_CTL_MOD, fd, &ev)) {
		fds_close(fd);
		return;
	}
	close_ctl();
	ctl = fd;
	call_from(fd);
	has_ctl = true;
	syscall(SYS_sendto, fd, &yes, sizeof(yes), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static void peer(uint32_t index)
{
	int fd = serve_conn(index);

	if (fd >= 0)
		hear_from(fd);
}

static void handle(const struct epoll_event *ev)
{
	uint32_t index = (uint32_t)ev->data.u64;

	switch (ev->data.u64 >> 32) {
	case WATCH_CTL:
		control();
		break;
	case WATCH_UFFD:
		monitor_events(index);
		break;
	case WATCH_LISTEN:
		serve_accept();
		break;
	case WATCH_CONN:
		peer(index);
		break;
	case WATCH_GRANT:
		recall_read(index);
		break;
	}
}

static void *run(void *unused)
{
	struct epoll_event ev[EVENTS];
	int i, n;

	(void)unused;
	prctl(PR_SET_NAME, "kedge-segment");
	error_ready();
	n = open_all();
	if (n) {
		end_all();
		call_answer(n);
		return NULL;
	}
	call_answer(0);
	run_anywhere();
	while (!atomic_load(&stop)) {
		n = (int)syscall(SYS_epoll_pwait, seg->epoll, ev, EVENTS,
				 has_ctl ? -1 : LOOK_MS, NULL, 0);
		for (i = 0; i < n; i++)
			handle(&ev[i]);
	}
	end_all();
	return NULL;
}

/* ---- calls ---- */

static void end_thread(struct service *s)
{
	(void)s;
	atomic_store(&stop, true);
	/* It sees that the socket ends, or looks by itself. */
	call_hang_up();
	pthread_join(thread, NULL);
}

static int begin_thread(void)
{
	sigset_t all, saved;
	int rc;

	atomic_store(&stop, false);
	service.end = end_thread;
	rc = service_begin(&service);
	if (rc)
		return rc;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = thread_start(&thread, run, NULL);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (rc) {
		service_end(&service);
		return rc;
	}
	rc = call_wait();
	if (!rc)
		service_runs(&service);
	else if (service_end(&service))
		pthread_join(thread, NULL);
	return rc;
}

static int start_thread(void)
{
	int fd, rc = call_open(&fd);

	if (rc)
		return rc;
	ctl = fd;
	rc = begin_thread();
	/* The thread has its own. */
	close(fd);
	if (rc)
		call_close();
	return rc;
}

static int start(void)
{
	int rc = tables_make();

	if (rc)
		return rc;
	rc = start_thread();
	if (rc)
		tables_free();
	return rc;
}

int service_use(void)
{
	int rc = runs ? 0 : start();

	runs = !rc;
	users += !rc;
	return rc;
}

void service_unuse(void)
{
	/* The thread stays for memory that could not be made private, as that is tried again. */
	if (--users || tables_have_extents())
		return;
	runs = false;
	if (service_end(&service))
		end_thread(&service);
	call_close();
	tables_free();
}

void service_forget(void)
{
	users = 0;
	runs = false;
	convert_forget();
	tables_forget();
}
