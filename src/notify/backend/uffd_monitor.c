// SPDX-License-Identifier: BSD-2-Clause
/*
 * The userfaultfd backend's thread: it reads the kernel's events and queues
 * them. uffd.c has the proof of what it must do in which order.
 *
 * It does not allocate or free, takes no lock but nf->lock, and no thread waits
 * for an event while it holds that: signals are blocked under it and no memory
 * is unmapped there. So a thread that sits in munmap() within an
 * allocator, whichever it is, always gets its answer.
 *
 * It has its own table of file descriptors: a program that closes all
 * descriptors it does not know can not cut it off, which would leave munmap()
 * hanging or unseen. It may run on every CPU that the process may use, whatever
 * the thread that opened the notifier is bound to: others wait for its answer.
 * uffd_place.c has the exception.
 */
#include <limits.h>
#include <linux/close_range.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/announce/announce.h"
#include "notify/announce/origin.h"
#include "notify/backend/uffd.h"
#include "notify/backend/uffd_range.h"
#include "notify/backend/uffd_who.h"
#include "notify/carry.h"
#include "stats/trace.h"

#define EVENTS_A_ROUND	64 /* then others get the lock */
#define NO_WAKEUP_MS	50
#define OWN_FDS		3

/* glibc moves the heap's end down within itself, with the heap's lock held. */
static bool heap_shrank(uint64_t start)
{
	return start == round_up((uint64_t)syscall(SYS_brk, 0),
				 kedge__page_size());
}

/*
 * Watched memory that libc handed out went by a call that libkedge-hooks did not
 * announce: this program unmaps around libc what it maps through it. The next such
 * change may be in the window that the hooks were to close, so from now on all
 * lookups ask; in other memory they did (origin.c). An announced change brings an
 * event, too, where the range was armed again meanwhile; it is still under way
 * then.
 */
static void hooks_were_passed_by(struct kedge_notifier *nf, uint64_t start,
				 uint64_t end)
{
	struct uffd *u = nf->backend;

	if (nf_asks(nf) != ASKS_NOT || announce_active(start, end) ||
	    !origin_some(start, end) || heap_shrank(start))
		return;
	announce_passed_by();
	/* The caller moves the generation: it was told to somebody. */
	atomic_store_explicit(&nf->page->asks,
			      u->counts ? ASKS_KERNEL : ASKS_LOST,
			      memory_order_relaxed);
}

/* [start, end) is another mapping now, or unmapped. */
static size_t gone(struct kedge_notifier *nf, uint32_t kind, uint64_t start,
		   uint64_t end)
{
	size_t told;

	armed_cut(nf, start, end);
	told = queue_publish(nf, kind, start, end);
	if (told)
		hooks_were_passed_by(nf, start, end);
	return told;
}

static size_t told_by(struct kedge_notifier *nf, const struct uffd_msg *m)
{
	struct uffd *u = nf->backend;
	uint64_t start, end, to;

	if (m->event == UFFD_EVENT_REMAP) {
		start = m->arg.remap.from;
		end = start + m->arg.remap.len;
		to = m->arg.remap.to;
		registered_add(nf, to, to + m->arg.remap.len);
		carry_follow(nf, start, to, m->arg.remap.len);
		return gone(nf, KEDGE_EVENT_REMAP, start, end);
	}
	start = m->arg.remove.start;
	end = m->arg.remove.end;
	if (m->event == UFFD_EVENT_UNMAP) {
		if (start <= u->wakeup && u->wakeup < end)
			atomic_store(&u->wakeup_gone, true);
		registered_cut(nf, start, end);
		return gone(nf, KEDGE_EVENT_UNMAP, start, end);
	}
	if (m->event == UFFD_EVENT_REMOVE) {
		if (start == u->wakeup)
			return 0; /* it was rung */
		taint_add(nf, start, end);
		return queue_publish(nf, KEDGE_EVENT_REMOVE, start, end);
	}
	return queue_publish(nf, KEDGE_EVENT_OTHER, 0, UINT64_MAX);
}

/*
 * An epoll descriptor in the thread's own table: poll() fails where RLIMIT_NOFILE
 * is 0, as in sandboxes. Negative: it cannot be had.
 */
static int open_epoll(const struct uffd *u)
{
	struct epoll_event want = { .events = EPOLLIN };
	long ep = syscall(SYS_epoll_create1, EPOLL_CLOEXEC);

	if (ep >= 0 &&
	    syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, u->fd, &want)) {
		syscall(SYS_close, ep);
		ep = -1;
	}
	return (int)ep;
}

static bool readable(struct uffd *u, int timeout_ms)
{
	struct pollfd p = { .fd = u->fd, .events = POLLIN };
	struct epoll_event got;
	long n;

	if (u->epoll < 0)
		return poll(&p, 1, timeout_ms);
	/* Not the library's: sanitizers know one table of descriptors. */
	n = syscall(SYS_epoll_pwait, u->epoll, &got, 1, timeout_ms, NULL, 0);
	if (n < 0 && errno == EBADF) /* the table is not ours alone */
		u->epoll = -1;
	return n;
}

static void trace_event(const struct uffd_msg *m, const struct who *w, size_t told)
{
	const bool remap = m->event == UFFD_EVENT_REMAP;
	struct trace_change c = {
		.by = TRACE_KERNEL,
		.kind = m->event == UFFD_EVENT_UNMAP ? KEDGE_EVENT_UNMAP
			: remap ? KEDGE_EVENT_REMAP : KEDGE_EVENT_REMOVE,
		.start = remap ? m->arg.remap.from : m->arg.remove.start,
		.end = remap ? m->arg.remap.from + m->arg.remap.len : m->arg.remove.end,
		.tid = who_did(w, m),
		.watches = told,
	};

	trace_add(&c);
}

/*
 * The caller of on_event has to hear of a change before the call that makes it returns. The read
 * lets that go, and only then tells what it was. So an event is awaited, on_event is told that
 * anything may have changed, and that one event is read: the kernel hands the oldest out first.
 * Returns how many may be read.
 */
static int push_event(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	if (likely(!nf->push.fn) || atomic_load(&u->closing))
		return EVENTS_A_ROUND;
	/* One that came between this look and the read would have no call. */
	if (!readable(u, 0))
		return 0;
	push_begin(&nf->push);
	push_call(&nf->push, KEDGE_EVENT_OTHER, KEDGE_EVENT_UNSURE, 0, UINT64_MAX);
	return 1;
}

/* Read what there is and queue it: points 1 and 2 of uffd.c. */
static void handle_events(struct kedge_notifier *nf)
{
	const bool trace = trace_on();
	int most = push_event(nf), n;
	struct uffd *u = nf->backend;
	struct uffd_msg m;
	uint64_t g;
	size_t told = 0, one;
	struct who who;

	/* The thread that the read lets go cannot be found behind it; so the look is for one event,
	 * as another thread's may be of the same range. */
	if (unlikely(trace)) {
		who_waits(&who);
		most = most ? 1 : 0;
	}
	sig_lock_blocked(&nf->lock);
	announce_reading(1);
	g = atomic_load_explicit(&nf->page->generation, memory_order_relaxed);
	/* seq_cst: before the read() in every eye; partner: the hit's load. */
	atomic_store_explicit(&nf->page->generation, g | 1,
			      memory_order_seq_cst);
	for (n = 0; n < most; n++) {
		if (syscall(SYS_read, u->fd, &m, sizeof(m)) !=
		    (long)sizeof(m))
			break;
		one = told_by(nf, &m);
		told += one;
		if (unlikely(trace) && one)
			trace_event(&m, &who, one);
	}
	/* release: a thread that sees the new generation sees the queue. */
	atomic_store_explicit(&nf->page->generation,
			      told ? g + GENERATION_STEP : g,
			      memory_order_release);
	queue_signal(nf);
	announce_reading(-1);
	sig_unlock_blocked(&nf->lock);
}

static bool more_than_one_cpu(void)
{
	cpu_set_t set;

	/* Fails where there are more CPUs than fit: that is more than one. */
	return sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) > 1;
}

/* Events come in bursts: how long to keep looking after this one. */
static uint64_t spin_until(struct uffd *u, uint64_t now)
{
	uint64_t gap = now - u->last_ns;

	u->last_ns = now;
	if (gap > 4 * u->spin_ns)
		gap = 4 * u->spin_ns;
	u->gap_ns = (3 * u->gap_ns + gap) / 4;
	if (u->gap_ns >= u->spin_ns || !more_than_one_cpu())
		return 0;
	return now + u->spin_ns;
}

/* Wait for an event, or for the end. A failure to wait is looked into. */
static void wait_event(struct uffd *u, uint64_t spin)
{
	for (;;) {
		bool spinning = spin && clock_ns() < spin;
		bool deaf = atomic_load(&u->wakeup_gone);

		if (readable(u, spinning ? 0 : deaf ? NO_WAKEUP_MS : -1) ||
		    atomic_load(&u->closing))
			return;
		if (spinning)
			cpu_relax();
	}
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* A table of descriptors for this thread alone, with just what it needs. */
static void own_descriptors(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	int keep[OWN_FDS + TRIPWIRE_FDS] = { u->fd, nf->pipe[1],
					    nf->maps_fd };
	unsigned int from = 0, flags = CLOSE_RANGE_UNSHARE, i, cnt = OWN_FDS;

	if (u->tripwire)
		cnt += tripwire_fds(u->tripwire, keep + cnt);
	qsort(keep, cnt, sizeof(keep[0]), by_number);
	for (i = 0; i < cnt; i++) {
		if ((unsigned int)keep[i] > from) {
			/* A first failure leaves the table shared: so be it. */
			if (syscall(SYS_close_range, from, keep[i] - 1, flags))
				return;
			flags = 0;
			atomic_store(&u->own_table, true);
		}
		from = (unsigned int)keep[i] + 1;
	}
	if (!flags)
		syscall(SYS_close_range, from, UINT_MAX, flags);
}

static void let_go_of(void *arg, uint64_t start, uint64_t end)
{
	struct kedge_notifier *nf = arg;
	struct uffd *u = nf->backend;
	bool ours;

	if (start <= u->wakeup && u->wakeup < end)
		return;
	sig_lock_blocked(&nf->lock);
	ours = tree_first_overlap(&nf->registered, start, end);
	sig_unlock_blocked(&nf->lock);
	if (ours)
		uffd_unregister(u->fd, start, end);
}

static uint64_t cuts_now(struct kedge_notifier *nf)
{
	uint64_t cuts;

	sig_lock_blocked(&nf->lock);
	cuts = nf->cuts;
	sig_unlock_blocked(&nf->lock);
	return cuts;
}

/* Tests let the other thread go on here. */
__attribute__((weak, noinline)) void monitor_stopping(void)
{
}

__attribute__((weak, noinline)) void monitor_let_go(void)
{
}

/*
 * Unregister all that may be registered, mapping by mapping, and answer until no
 * call waits for an answer. The monitor's own page comes first: the thread that ends the
 * monitor may be about to drop it, and would wait for an answer if the question whether
 * a call waits came before. A forked child may hold a copy of the descriptor:
 * closing ours would then not end the registrations, and an munmap() would wait
 * for ever. The mappings are read again while events came in between: mremap()
 * takes a registration along.
 */
static void let_go(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	uint64_t cuts;

	/* Still registered it must not be unmapped: no monitor would answer. */
	if (!atomic_load(&u->wakeup_gone) &&
	    uffd_unregister(u->fd, u->wakeup, u->wakeup + kedge__page_size()))
		atomic_store(&u->wakeup_gone, true);
	do {
		cuts = cuts_now(nf);
		vma_each(nf->maps_fd, let_go_of, nf);
		handle_events(nf);
		while (uffd_ask_kernel(u) == UFFD_CHANGING) {
			sched_yield();
			handle_events(nf);
		}
	} while (cuts_now(nf) != cuts);
	monitor_let_go();
}

static _Thread_local bool a_monitor;

bool uffd_is_monitor(void)
{
	return a_monitor;
}

static void *monitor(void *arg)
{
	struct kedge_notifier *nf = arg;
	struct uffd *u = nf->backend;
	uint64_t spin = 0, now;

	a_monitor = true;
	prctl(PR_SET_NAME, UFFD_MONITOR_NAME);
	own_descriptors(nf);
	u->epoll = open_epoll(u);
	uffd_place_first(&u->place);
	nf->threads.monitor = (int)syscall(SYS_gettid);
	atomic_store(&u->tid, nf->threads.monitor);
	sem_post(&u->ready);
	while (!atomic_load(&u->closing)) {
		wait_event(u, spin);
		handle_events(nf);
		now = clock_ns();
		uffd_place_again(&u->place, now);
		spin = spin_until(u, now);
	}
	let_go(nf);
	if (u->epoll >= 0)
		syscall(SYS_close, u->epoll);
	atomic_store(&u->tid, 0);
	/*
	 * The last: what could not be unregistered (a seccomp filter) is let go
	 * by that, before this thread's own end unmaps or drops anything.
	 */
	if (atomic_load(&u->own_table))
		syscall(SYS_close, u->fd);
	return NULL;
}

static int start_thread(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	pthread_attr_t attr;
	sigset_t all, saved;
	int rc = -pthread_attr_init(&attr);

	if (rc)
		return rc;
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN > 65536
						 ? PTHREAD_STACK_MIN
						 : 65536);
	/* No signal is ever the monitor's: it could not be handled there. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = -pthread_create(&u->thread, &attr, monitor, nf);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	pthread_attr_destroy(&attr);
	return rc ? kedge_reason(rc, "no thread to be had for the monitor: "
				     "raise ulimit -u")
		  : 0;
}

static void stop_thread(struct uffd *u)
{
	void *wakeup = (void *)(uintptr_t)u->wakeup;

	/* Before the monitor closes its copy, so that it has the last. */
	if (atomic_load(&u->own_table) && uffd_fd_is_ours(u)) {
		close(u->fd);
		u->closed = true;
	}
	atomic_store(&u->closing, true);
	monitor_stopping();
	/*
	 * If its page was unmapped, the monitor looks from time to time. A
	 * seccomp filter may refuse the one call, and hardly the other.
	 */
	if (!atomic_load(&u->wakeup_gone) &&
	    madvise(wakeup, kedge__page_size(), MADV_DONTNEED))
		munmap(wakeup, kedge__page_size());
	pthread_join(u->thread, NULL);
}

/* The process ends, and the monitor first: no hit may be believed any more. */
static void end_service(struct service *s)
{
	struct uffd *u = container_of(s, struct uffd, service);

	stop_thread(u);
	sig_lock_blocked(&u->nf->lock);
	notify_must_ask(u->nf, ASKS_LOST);
	sig_unlock_blocked(&u->nf->lock);
}

int uffd_monitor_start(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	int rc;

	u->service.end = end_service;
	rc = service_begin(&u->service);
	if (rc)
		return rc;
	rc = start_thread(nf);
	if (rc) {
		service_end(&u->service);
		return rc;
	}
	service_runs(&u->service);
	/* Till then a close_range() of the application's would cut it off. */
	while (sem_wait(&u->ready) && errno == EINTR)
		;
	return 0;
}

void uffd_monitor_stop(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	if (service_end(&u->service))
		stop_thread(u);
}
