// SPDX-License-Identifier: BSD-2-Clause
/*
 * Some kernels' UFFDIO_MOVE (Linux 6.12's does) tries for ever to split a huge page that
 * is pinned, where its pages are mapped one by one; only a signal that kills ends it.
 * That a page is part of such a one no unprivileged call tells: fork() in a program that
 * has registered memory is enough to make one.
 *
 * So a thread looks now and then at moves that are under way. Pages go out in order, so
 * the first that is still there is the one at work. If that has taken the mover 100 ms of
 * processor time (a mover that waits for a processor is not at fault), its
 * place in the scratch space is given a page of zeros: the kernel finds that the
 * destination is taken (EEXIST) and returns. The mover takes that for -EBUSY, and drops
 * what is in the scratch space where nothing was moved to.
 *
 * A guard is looked at and removed under the lock, so no page is put into the scratch
 * space of a move that has ended. A move while other threads are stopped has a lock of its
 * own, as one of them may be stopped with the other. This thread runs on meanwhile. It is
 * there from the first swap on until there has been none for a second.
 */
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process/owner.h"
#include "base/process/service.h"
#include "base/process/stop.h"
#include "base/process/thread.h"
#include "pages/move.h"

#define LOOK_NS	   100000000
#define IDLE_LOOKS 10 /* without a swap, before the thread ends */

static _Atomic int owner; /* the process that what follows belongs to */
static struct sig_lock lock = SIG_LOCK_INIT; /* guards: */
static struct move_guard *guards;
static struct sig_lock alone_lock = SIG_LOCK_INIT; /* guards: */
static struct move_guard *alone; /* of a move while other threads are stopped */
static unsigned int users; /* swaps under way */
static bool running;
static struct service service;
static pthread_t thread;
static _Atomic uint32_t stop; /* a futex */

/* The first page of the source that is still there, or 0. */
static uintptr_t at_work(const struct move_guard *g)
{
	struct scan_region_v1 r;
	struct scan_arg_v1 s = {
		.size = sizeof(s),
		.start = g->src,
		.end = g->src + g->len,
		.vec = (uintptr_t)&r,
		.vec_len = 1,
		.max_pages = 1,
		.category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
		.return_mask = SCAN_PRESENT,
	};

	return ioctl(g->ctx->pagemap, PAGEMAP_SCAN_V1, &s) == 1 ? r.start : 0;
}

static void end_move(const struct move_guard *g, uintptr_t page)
{
	struct uffdio_zeropage z = {
		.range = { .start = g->dst + (page - g->src),
			   .len = kedge__page_size() },
		.mode = UFFDIO_ZEROPAGE_MODE_DONTWAKE,
	};

	ioctl(g->ctx->uffd, UFFDIO_ZEROPAGE, &z);
}

static uint64_t cpu_ns(const struct move_guard *g)
{
	struct timespec t;

	return clock_gettime(g->cpu, &t) ? 0
					 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void look(struct move_guard *g)
{
	uintptr_t page = at_work(g);
	uint64_t now = cpu_ns(g);

	if (!page || page != g->seen) {
		g->seen = page;
		g->since = now;
	} else if (now - g->since >= LOOK_NS) {
		end_move(g, page);
	}
}

/* True: the thread ends by itself. @idle: looks without a swap. */
static bool look_at_all(unsigned int *idle)
{
	struct move_guard *g;
	bool over;

	sig_lock_blocked(&alone_lock);
	if (alone)
		look(alone);
	sig_unlock_blocked(&alone_lock);
	sig_lock_blocked(&lock);
	for (g = guards; g; g = g->next)
		look(g);
	*idle = users ? 0 : *idle + 1;
	over = *idle > IDLE_LOOKS && service_leave(&service);
	if (over) {
		others_stopped_spare(0);
		running = false;
	}
	sig_unlock_blocked(&lock);
	return over;
}

static void pause_unless_stopped(uint64_t deadline)
{
	struct timespec pause;

	do {
		pause = clock_wait_ts(deadline);
		syscall(SYS_futex, &stop, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);
	} while (!atomic_load(&stop) && clock_left_ns(deadline));
}

static void *watch(void *unused)
{
	unsigned int idle = 0;

	(void)unused;
	others_stopped_spare((pid_t)syscall(SYS_gettid));
	do
		pause_unless_stopped(clock_after_ns(LOOK_NS));
	while (!atomic_load(&stop) && !look_at_all(&idle));
	/* If it ended by itself there may be another one by now. */
	if (atomic_load(&stop))
		others_stopped_spare(0);
	return NULL;
}

static void end_thread(struct service *s)
{
	(void)s;
	atomic_store(&stop, 1);
	syscall(SYS_futex, &stop, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	pthread_join(thread, NULL);
}

/* A forked child has the parent's list, and no thread. */
static void anew(void)
{
	sig_lock_init(&lock);
	sig_lock_init(&alone_lock);
	others_stopped_spare(0);
	guards = alone = NULL;
	users = 0;
	running = false;
}

/*
 * ThreadSanitizer ends a forked child that starts a thread, if its parent had several:
 * with it the thread is there in tests alone that say so.
 */
__attribute__((weak, noinline)) bool move_guard_wanted(void)
{
#ifdef __SANITIZE_THREAD__
	return false;
#else
	return true;
#endif
}

/* With the lock. Without the thread a move may not return, as without all of this. */
static void start(void)
{
	if (!move_guard_wanted())
		return;
	atomic_store(&stop, 0);
	service.end = end_thread;
	running = !service_begin(&service);
	if (!running)
		return;
	if (!thread_start(&thread, watch, NULL)) {
		/* Before the swap returns, so that whoever counts threads knows it. */
		pthread_setname_np(thread, "kedge-pages");
		service_runs(&service);
		return;
	}
	service_end(&service);
	running = false;
}

void move_guard_ready(void)
{
	owner_adopt(&owner, anew);
	sig_lock_blocked(&lock);
	users++;
	if (!running)
		start();
	sig_unlock_blocked(&lock);
}

void move_guard_done(void)
{
	sig_lock_blocked(&lock);
	users--;
	sig_unlock_blocked(&lock);
}

/* It is the processor time of the process that has stopped the others. */
static void set_alone(struct move_guard *g)
{
	sig_lock_blocked(&alone_lock);
	alone = g;
	sig_unlock_blocked(&alone_lock);
}

void move_guard_begin(struct move_guard *g)
{
	g->seen = 0;
	if (g->ctx->alone) {
		if (clock_getcpuclockid((pid_t)syscall(SYS_getpid), &g->cpu))
			g->cpu = CLOCK_MONOTONIC;
		set_alone(g);
		return;
	}
	if (pthread_getcpuclockid(pthread_self(), &g->cpu))
		g->cpu = CLOCK_MONOTONIC;
	sig_lock_blocked(&lock);
	g->next = guards;
	guards = g;
	sig_unlock_blocked(&lock);
}

void move_guard_end(struct move_guard *g)
{
	struct move_guard **link;

	if (g->ctx->alone) {
		set_alone(NULL);
		return;
	}
	sig_lock_blocked(&lock);
	for (link = &guards; *link != g; link = &(*link)->next)
		;
	*link = g->next;
	sig_unlock_blocked(&lock);
}

/* As in service.c: the code may be unloaded. */
__attribute__((destructor)) static void end(void)
{
	bool was;

	if (atomic_load(&owner) != getpid())
		return;
	sig_lock(&lock);
	was = running && service_end(&service);
	running = false;
	sig_unlock(&lock);
	if (was)
		end_thread(&service);
}
