// SPDX-License-Identifier: BSD-2-Clause
/*
 * One thread calls libfabric, for owners and peers of this process. So descriptors of libfabric's,
 * which it neither shows nor looks after, are in a table of that thread alone: a program that
 * closes what it does not know cannot close them, nor does libfabric then write to the program's;
 * and a forked child does not have them. Providers move data while they are called; so the thread
 * has the descriptors of owners' ends in an epoll set, looks at what has become ready for a while,
 * and sleeps. An end that puts and gets is looked at again and again until that is done: its
 * descriptor is of no use, as libfabric 1.17 leaves that of "net" readable after a completion.
 *
 * Other threads have other tables, so they wake it by a signal, which it has blocked and reads by a
 * signalfd. SIGURG is ignored where it is not asked for. What it does with its descriptors is
 * system calls by their numbers: ThreadSanitizer takes the program's for the same ones.
 *
 * Requests of other threads are in a stack, linked by compare-and-swap, as a thread that asks may
 * be interrupted by a handler that waits for this thread. It takes all of the stack at once, and
 * turns it round. Before it sleeps it stores @asleep and then loads the stack; others store there
 * and then load @asleep (all seq_cst): one of both sees the other's.
 *
 * A process forks while the thread is not in libfabric, so that a child finds libfabric's locks
 * free and its lists whole. The child has another thread then, with ends of its own.
 */
#include <pthread.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/owner.h"
#include "base/process/service.h"
#include "region/ofi/driver.h"

#define STACK_LEN ((size_t)1 << 20)
#define WAKE	  SIGURG
#define SIGNALS_LEN 8 /* of the kernel's set of them */
#define EVENTS	  64
#define HOT_NS	  50000 /* after something was done: more may follow */
#define LOOKS	  16	/* turns after which the descriptors of others are looked at */
#define NAP_NS	  50000

struct call {
	struct work work;
	int (*fn)(void *arg);
	void *arg;
	int rc;
	char reason[256];
	_Atomic uint32_t done;
};

static _Atomic int owner; /* the process that what follows belongs to */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool started; /* stored with it */
static struct service service;
static pthread_t thread;

/* Held by the thread but when it sleeps, and over a fork. */
static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned int forks;

static struct work shut;
static struct work *_Atomic head; /* &shut: it has ended */
static _Atomic bool asleep;
static _Atomic int tid;

/* The thread's own. */
static bool over;
static int epoll_fd;
static int signal_fd;
static struct list hot, ticking, cold;

/* ---- what others want ---- */

bool driver_push(struct work *w)
{
	struct work *was = atomic_load(&head);

	do {
		if (was == &shut)
			return false;
		w->next = was;
	} while (!atomic_compare_exchange_weak(&head, &was, w));
	if (atomic_load(&asleep) && atomic_exchange(&asleep, false))
		syscall(SYS_tgkill, getpid(), atomic_load(&tid), WAKE);
	return true;
}

static bool run_all(struct work *next_head)
{
	struct work *w = atomic_exchange(&head, next_head), *first = NULL, *next;

	for (; w; w = next) {
		next = w->next;
		w->next = first;
		first = w;
	}
	for (w = first; w; w = next) {
		next = w->next;
		w->fn(w);
	}
	return first;
}

static void run_call(struct work *w)
{
	struct call *c = container_of(w, struct call, work);

	c->rc = over ? kedge_reason(-ESHUTDOWN, "the program's threads have ended")
		     : c->fn(c->arg);
	if (c->rc < 0)
		snprintf(c->reason, sizeof(c->reason), "%s", kedge_strerror(c->rc));
	/* It may be gone once that is stored; its address is all that the kernel is told. */
	atomic_store(&c->done, 1);
	syscall(SYS_futex, &c->done, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int driver_call(int (*fn)(void *arg), void *arg)
{
	struct call c = { .work = { NULL, run_call }, .fn = fn, .arg = arg };

	if (!driver_push(&c.work))
		return kedge_reason(-ESHUTDOWN, "the program's threads have ended");
	while (!atomic_load(&c.done))
		syscall(SYS_futex, &c.done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return c.rc < 0 ? kedge_reason(c.rc, "%s", c.reason) : c.rc;
}

/* ---- what is polled ---- */

static void put_in(struct list *l, struct polled *p)
{
	list_remove(&p->node);
	list_add_tail(l, &p->node);
}

void polled_heat(struct polled *p)
{
	p->until = clock_ns() + HOT_NS;
	put_in(&hot, p);
}

int polled_add(struct polled *p)
{
	struct epoll_event ev = { .events = EPOLLIN, .data = { .ptr = p } };

	list_init(&p->node);
	if (p->fd >= 0 && syscall(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_ADD, p->fd, &ev))
		return kedge_reason(-errno, "a provider's descriptor cannot be waited for: "
				    "error %d", errno);
	polled_heat(p);
	return 0;
}

void polled_remove(struct polled *p)
{
	struct epoll_event unused = { .events = 0 };

	if (p->fd >= 0)
		syscall(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_DEL, p->fd, &unused);
	list_remove(&p->node);
}

/* It stays hot where something has come meanwhile. */
static void cool(struct polled *p)
{
	if (p->tick)
		put_in(&ticking, p);
	else if (p->fd < 0 || !fi_trywait(p->fabric, &p->cq, 1))
		put_in(&cold, p);
}

static bool take_turns(void)
{
	struct list *l, *tmp;
	struct polled *p;
	uint64_t now;
	bool any = false;

	list_for_each_safe(l, tmp, &hot) {
		p = list_entry(l, struct polled, node);
		now = clock_ns();
		if (p->turn(p)) {
			p->until = now + HOT_NS;
			any = true;
		} else if (now >= p->until) {
			cool(p);
		}
	}
	return any;
}

static void end_all(struct list *of)
{
	struct list *l, *tmp;
	struct polled *p;

	list_for_each_safe(l, tmp, of) {
		p = list_entry(l, struct polled, node);
		polled_remove(p);
		p->end(p);
	}
}

/* ---- the thread ---- */

/* Without the lock. */
static void look(int ms)
{
	struct epoll_event ev[EVENTS];
	struct signalfd_siginfo si;
	long i, n;

	n = syscall(SYS_epoll_pwait, epoll_fd, ev, EVENTS, ms, NULL, 0UL);
	for (i = 0; i < n; i++) {
		if (ev[i].data.ptr)
			polled_heat(ev[i].data.ptr);
		else
			syscall(SYS_read, signal_fd, &si, sizeof(si));
	}
}

/* A turn each. */
static void tick(void)
{
	static uint64_t next;
	struct list *l, *tmp;
	uint64_t now;

	if (list_empty(&ticking))
		return;
	now = clock_ns();
	if (now < next)
		return;
	next = now + NAP_NS;
	list_for_each_safe(l, tmp, &ticking) {
		list_entry(l, struct polled, node)->until = 0;
		put_in(&hot, list_entry(l, struct polled, node));
	}
}

static void sleep_for_more(void)
{
	const struct timespec nap = { 0, NAP_NS };

	if (!list_empty(&ticking)) {
		syscall(SYS_nanosleep, &nap, NULL);
		look(0);
		return;
	}
	atomic_store(&asleep, true);
	if (!atomic_load(&head))
		look(-1);
	atomic_store(&asleep, false);
}

/* Others that want the lock get it. */
static void be_out(void)
{
	const struct timespec nap = { 0, NAP_NS };

	while (atomic_load(&forks))
		syscall(SYS_nanosleep, &nap, NULL);
}

static void serve(void)
{
	unsigned int turns = 0;
	bool any;

	while (!over) {
		pthread_mutex_lock(&library);
		any = run_all(NULL);
		any |= take_turns();
		pthread_mutex_unlock(&library);
		be_out();
		tick();
		if (list_empty(&hot) && !over)
			sleep_for_more();
		else if (++turns % LOOKS == 0)
			look(0);
		else if (!any)
			sched_yield();
	}
	pthread_mutex_lock(&library);
	end_all(&hot);
	end_all(&ticking);
	end_all(&cold);
	run_all(&shut);
	pthread_mutex_unlock(&library);
}

static int new_epoll(void)
{
	return (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
}

/* Programs' standard streams are not there. Messages that libfabric writes to the numbers of these
 * would go to a peer if a connection had one of them: so they are those of epoll sets, which refuse
 * what is written. */
static int own_table(void)
{
	int i;

	if (syscall(SYS_close_range, 0, UINT_MAX, CLOSE_RANGE_UNSHARE)) {
		if (unshare(CLONE_FILES))
			return kedge_reason(-errno, "no table of descriptors of its own for "
					    "kedge's thread: allow close_range() or "
					    "unshare(CLONE_FILES) in the container's seccomp "
					    "profile");
		syscall(SYS_close_range, 0, UINT_MAX, 0);
	}
	for (i = 0; i <= STDERR_FILENO; i++)
		if (new_epoll() < 0)
			return kedge_reason(-errno, "no descriptor: error %d", errno);
	return 0;
}

static int prepare(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	sigset_t wake;
	int rc = own_table();

	if (rc)
		return rc;
	sigemptyset(&wake);
	sigaddset(&wake, WAKE);
	epoll_fd = new_epoll();
	signal_fd = (int)syscall(SYS_signalfd4, -1, &wake, (size_t)SIGNALS_LEN,
				 SFD_CLOEXEC | SFD_NONBLOCK);
	if (epoll_fd < 0 || signal_fd < 0 ||
	    syscall(SYS_epoll_ctl, epoll_fd, EPOLL_CTL_ADD, signal_fd, &ev))
		return kedge_reason(-errno, "no descriptor to wait on: error %d", errno);
	atomic_store(&tid, (int)syscall(SYS_gettid));
	return 0;
}

static void *run(void *arg)
{
	struct call *c = arg;
	int rc = prepare();

	prctl(PR_SET_NAME, "kedge-ofi");
	c->rc = rc;
	if (rc)
		snprintf(c->reason, sizeof(c->reason), "%s", kedge_strerror(rc));
	atomic_store(&c->done, 1);
	syscall(SYS_futex, &c->done, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	if (!rc)
		serve();
	return NULL;
}

/* ---- its beginning and end ---- */

static void say_over(struct work *unused)
{
	(void)unused;
	over = true;
}

static void end_thread(struct service *s)
{
	static struct work stop = { .fn = say_over };

	(void)s;
	driver_push(&stop);
	pthread_join(thread, NULL);
}

/* exit() ends it before libfabric's own functions for the end of a process run. */
static void at_exit(void)
{
	if (atomic_load(&owner) == getpid() && started && kedge__service_end(&service))
		end_thread(&service);
}

/* With signals blocked. */
static int create(struct call *c)
{
	pthread_attr_t attr;
	int rc;

	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setstacksize(&attr, STACK_LEN);
	rc = pthread_create(&thread, &attr, run, c);
	pthread_attr_destroy(&attr);
	return -rc;
}

static int start(void)
{
	struct call c = { .fn = NULL };
	int rc;

	service.end = end_thread;
	rc = kedge__service_begin(&service);
	if (rc)
		return kedge_reason(rc, "no memory for a thread");
	rc = create(&c);
	if (rc) {
		kedge__service_end(&service);
		return kedge_reason(rc, "no thread can be made to call libfabric: RLIMIT_NPROC "
				    "(ulimit -u), pids.max, or RLIMIT_AS (ulimit -v)");
	}
	while (!atomic_load(&c.done))
		syscall(SYS_futex, &c.done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	if (!c.rc) {
		kedge__service_runs(&service);
		return 0;
	}
	if (kedge__service_end(&service))
		pthread_join(thread, NULL);
	return kedge_reason(c.rc, "%s", c.reason);
}

static void anew(void)
{
	pthread_mutex_init(&start_lock, NULL);
	started = over = false;
	atomic_store(&head, NULL);
	atomic_store(&asleep, false);
	list_init(&hot);
	list_init(&ticking);
	list_init(&cold);
}

int driver_use(bool ours)
{
	sigset_t all, saved;
	int rc = 0;

	owner_adopt(&owner, anew);
	/* A handler of the program's may wait for a thread that comes here. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	pthread_mutex_lock(&start_lock);
	if (!started)
		rc = start();
	started = started || !rc;
	pthread_mutex_unlock(&start_lock);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (ours)
		kedge__service_thread_is_ours();
	return rc;
}

void driver_ends_at_exit(void)
{
	static _Atomic bool set;

	if (!atomic_exchange(&set, true))
		atexit(at_exit);
}

/* ---- a process that forks ---- */

static void before_fork(void)
{
	atomic_fetch_add(&forks, 1);
	pthread_mutex_lock(&library);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&library);
	atomic_fetch_sub(&forks, 1);
}

static void in_child(void)
{
	pthread_mutex_unlock(&library);
	atomic_store(&forks, 0);
}

/* As the library is loaded, and so before the program's own: they run before these in a fork, and
 * may wait for a thread that waits for libfabric. */
__attribute__((constructor)) static void register_early(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}
