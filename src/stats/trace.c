// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ring of changes and the thread that writes it. Those that add take a lock, as they hold one
 * already that is slower than this; the thread copies out under it and writes without it, so that a
 * file that is slow holds up no change. It sleeps on a futex, not on a descriptor, which the
 * notifier's monitor would not have.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/process/clofork.h"
#include "base/process/own.h"
#include "base/process/owner.h"
#include "base/process/service.h"
#include "stats/target.h"
#include "stats/trace.h"

#define RING	   4096u /* a power of 2 */
#define EVERY_S	   1
#define PATIENCE_MS 500 /* with a reader of a pipe, until it was in vain */

struct trace_ring {
	uint64_t head, tail, lost;
	struct trace_change change[RING];
};

struct trace_ring *_Atomic trace_ring;

static _Atomic int owner; /* the process that what follows belongs to */
static struct sig_lock lock = SIG_LOCK_INIT; /* guards the ring and: */
static bool tried, runs;
static _Atomic bool with_stack, stop;
static _Atomic uint32_t news; /* the futex: grows as there is something to write */
/* The thread's, and that of its start and end. */
static struct target target;
static struct clofork file;
static int failed, patience_ms;
static struct service service;
static pthread_t thread;

static void anew(void)
{
	sig_lock_init(&lock);
	atomic_store(&trace_ring, NULL);
	tried = runs = false;
	atomic_store(&with_stack, false);
	atomic_store(&stop, false);
	memset(&service, 0, sizeof(service));
	clofork_init(&file);
	failed = 0;
	patience_ms = PATIENCE_MS;
}

/* By the one way that takes no lock of the loader's, which a thread within dlclose() holds, and of
 * which a forked child may find another's. In other C libraries there is none. */
static uintptr_t base_of(void *pc)
{
#ifdef DLFO_STRUCT_HAS_EH_DBASE
	struct dl_find_object found;

	if (!_dl_find_object(pc, &found))
		return (uintptr_t)found.dlfo_link_map->l_addr;
#endif
	(void)pc;
	return 0;
}

void trace_take_stack(struct trace_stack *s)
{
	void *pc[TRACE_FRAMES + 1];
	int n, i;

	s->cnt = 0;
	if (likely(!trace_on()) || !atomic_load_explicit(&with_stack, memory_order_relaxed))
		return;
	n = backtrace(pc, TRACE_FRAMES + 1);
	/* The first is this function's. */
	for (i = 1; i < n; i++) {
		s->pc[i - 1] = (uintptr_t)pc[i];
		s->base[i - 1] = base_of(pc[i]);
	}
	s->cnt = n > 1 ? (uint32_t)n - 1 : 0;
}

static void wake(void)
{
	atomic_fetch_add(&news, 1);
	syscall(SYS_futex, &news, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void trace_add(const struct trace_change *c)
{
	struct trace_ring *r;
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	sig_lock_blocked(&lock);
	r = atomic_load_explicit(&trace_ring, memory_order_relaxed);
	if (r && r->head - r->tail == RING) {
		r->lost++;
	} else if (r) {
		struct trace_change *to = &r->change[r->head++ % RING];

		*to = *c;
		to->ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	}
	sig_unlock_blocked(&lock);
	if (r)
		wake();
}

/* The oldest, or false. *@lost: those before it that found no room. */
static bool take(struct trace_change *c, uint64_t *lost)
{
	struct trace_ring *r;
	bool any;

	sig_lock(&lock);
	r = atomic_load_explicit(&trace_ring, memory_order_relaxed);
	*lost = r->lost;
	r->lost = 0;
	any = r->head != r->tail;
	if (any)
		*c = r->change[r->tail++ % RING];
	sig_unlock(&lock);
	return any;
}

/* Each failure is told once, not at each change. */
static void tell(int rc)
{
	if (rc && rc != failed)
		kedge__log(KEDGE_LOG_WARN, "KEDGE_TRACE: changes are not written to %s: %s",
			   target.path, kedge_strerror(rc));
	failed = rc;
}

/* A pipe without a reader is an error, and one that is full is not waited for without end: the
 * program's exit waits for this thread. */
static int open_file(void)
{
	if (clofork_ours(&file))
		return 0;
	/* One that the program has closed: its number may be another's. */
	clofork_close(&file);
	return clofork_keep(&file, open(target.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
				O_NONBLOCK | O_NOCTTY | (target.own_name ? O_NOFOLLOW : 0),
				0644));
}

static int no_more(int err)
{
	return err == ENOSPC ? kedge_reason(-err, "there is no room") : -err;
}

static int write_text(const char *text, size_t len)
{
	struct pollfd p;
	ssize_t n;
	int rc = open_file();

	while (!rc && len) {
		n = write(file.fd, text, len);
		if (n > 0) {
			text += n;
			len -= (size_t)n;
			continue;
		}
		p = (struct pollfd){ .fd = file.fd, .events = POLLOUT };
		if (n < 0 && errno == EAGAIN)
			rc = clock_poll(&p, 1, clock_after_ms((uint64_t)patience_ms)) > 0
				     ? 0 : kedge_reason(-EAGAIN, "nobody reads the pipe");
		else if (n == 0 || errno != EINTR)
			rc = no_more(n ? errno : ENOSPC);
	}
	if (rc == -EAGAIN)
		patience_ms = 0;
	return rc;
}

/* False, and that is told: it could not be written. */
static bool written(const char *text, size_t len)
{
	const int rc = write_text(text, len);

	tell(rc);
	return !rc;
}

static void write_all(void)
{
	static char text[TRACE_LINE_MAX];
	static uint64_t lost; /* and not said yet */
	struct trace_change c;
	uint64_t more;
	bool any;

	do {
		any = take(&c, &more);
		lost += more;
		if (lost && written(text, (size_t)snprintf(text, sizeof(text), "lost=%llu\n",
							   (unsigned long long)lost)))
			lost = 0;
		if (any && !written(text, trace_line(text, sizeof(text), &c)))
			lost++;
	} while (any);
}

static void *run(void *unused)
{
	const struct timespec every = { .tv_sec = EVERY_S };
	uint32_t seen;

	do {
		/* Before the look: what is added behind it ends the sleep. */
		seen = atomic_load(&news);
		write_all();
		if (!atomic_load(&stop))
			syscall(SYS_futex, &news, FUTEX_WAIT_PRIVATE, seen, &every, NULL, 0);
	} while (!atomic_load(&stop));
	write_all();
	return unused;
}

static void end_thread(struct service *unused)
{
	(void)unused;
	atomic_store(&stop, true);
	wake();
	pthread_join(thread, NULL);
}

static bool can_unwind;

static bool stack_wanted(void)
{
	const char *value = kedge__env("KEDGE_TRACE_STACK");

	return value && *value && strcmp(value, "0");
}

/* The first backtrace() loads a library, for which it takes the loader's lock. A thread that holds
 * that may wait for a lock of ours: so it is made before there are any. */
__attribute__((constructor)) static void load_unwinder(void)
{
	void *pc[2];

	if (stack_wanted())
		can_unwind = backtrace(pc, 2) > 0;
}

static int start_writing(void)
{
	struct trace_ring *r = own_map(sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	atomic_store(&with_stack, can_unwind && stack_wanted());
	/* Before the thread, which looks into it. */
	atomic_store(&trace_ring, r);
	service.end = end_thread;
	rc = service_start(&service, &thread, run, "kedge-trace", "write the trace");
	if (!rc)
		return 0;
	atomic_store(&trace_ring, NULL);
	own_unmap(r, sizeof(*r));
	return rc;
}

static int start(const char *value)
{
	int rc = 0;

	snprintf(target.path, sizeof(target.path), "%s", value);
	if (!target_named(value))
		rc = kedge_reason(-EINVAL, "it names no file: KEDGE_TRACE=FILE");
	if (!rc)
		rc = target_parse(&target, value, "trace");
	if (!rc && target.socket)
		rc = kedge_reason(-EINVAL, "a trace goes to a file, not to a socket");
	if (!rc)
		rc = open_file();
	if (rc)
		return rc;
	rc = start_writing();
	if (rc)
		clofork_close(&file);
	return rc;
}

void trace_begin(void)
{
	const char *value = kedge__env("KEDGE_TRACE");
	int rc = 0;

	if (likely(!value || !*value || !strcmp(value, "0")))
		return;
	owner_adopt(&owner, anew);
	sig_lock(&lock);
	if (!tried) {
		tried = true;
		rc = start(value);
		runs = !rc;
	}
	sig_unlock(&lock);
	tell(rc);
}

/* As the process ends, or the library goes. */
__attribute__((destructor)) static void end_trace(void)
{
	bool was;

	if (atomic_load(&owner) != getpid())
		return;
	sig_lock(&lock);
	was = runs;
	runs = false;
	sig_unlock(&lock);
	if (was && service_end(&service))
		end_thread(&service);
	clofork_close(&file);
}
