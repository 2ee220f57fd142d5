// SPDX-License-Identifier: BSD-2-Clause
/*
 * A memory monitor for libfabric's registration caches, over a notifier. libfabric opens it by
 * itself, as it does providers: *-fi.so in its provider folder, or in FI_PROVIDER_PATH. It is no
 * provider; it gives libfabric a struct fid_mem_monitor (rdma/fi_ext.h) and stays loaded.
 *
 * libfabric calls subscribe when a registration was made, keeps it if that succeeds, asks valid at
 * each hit, and takes registrations out of its caches when it is told of a range (notify). All but
 * that run with its lock, which notify takes: a thread of ours tells it.
 *
 * The idea that an outside library watches memory for libfabric's caches is libfabric's own.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "ranges.h"
#include "sight.h"

/* libfabric's default is 1,024 registrations a cache; some never say that one is gone. */
#define RANGES_MAX 8192u
#define TELL_MAX   64
#define WAIT_NS	   100000000

/* For libfabric's log alone. */
static struct fi_provider self = { .name = "kedge", .fi_version = FI_VERSION(1, 13) };

static struct {
	struct kedge_notifier *nf; /* NULL: nothing can be watched */
	struct ranges *_Atomic ranges;
	pthread_t thread;
	bool has_thread;
	bool imported;
} m;

/* Held while libfabric is told, which takes its locks. */
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool holds; /* it, while it forks */

/* ---- the thread that tells libfabric ---- */

static void *tell(void *monitor)
{
	struct fid_mem_monitor *mon = monitor;
	struct ranges *t = atomic_load(&m.ranges);
	struct span all[TELL_MAX];
	size_t n, i;

	prctl(PR_SET_NAME, "kedge-fi");
	while ((n = ranges_wait(t, all, TELL_MAX))) {
		pthread_mutex_lock(&telling);
		for (i = 0; i < n; i++)
			mon->import_ops->notify(mon, all[i].at, all[i].len);
		pthread_mutex_unlock(&telling);
	}
	return NULL;
}

static int start_thread(struct fid_mem_monitor *mon)
{
	sigset_t every, saved;
	int rc;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &saved);
	rc = pthread_create(&m.thread, NULL, tell, mon);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	m.has_thread = !rc;
	return rc;
}

/* ---- what libfabric calls ---- */

static void say_how(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };

	if (kedge_notifier_info(m.nf, &info))
		return;
	FI_INFO(&self, FI_LOG_MR, "kedge watches memory by \"%s\"; a hit is %s\n", info.backend,
		info.check == KEDGE_CHECK_LOAD ? "a load" : "a load and a question to the kernel");
}

/* Nothing is kept where nothing can be watched: that is slow, and not wrong. */
static void open_notifier(void)
{
	struct kedge_notifier_info info = { .size = sizeof(info) };
	int rc = kedge_notifier_open(NULL, &m.nf);

	if (!rc && !kedge_notifier_info(m.nf, &info) && info.level == KEDGE_LEVEL_NONE) {
		kedge_notifier_close(m.nf);
		rc = kedge_reason(-EOPNOTSUPP, "nothing can be watched here: see kedge info");
	}
	if (!rc) {
		say_how();
		return;
	}
	m.nf = NULL;
	FI_WARN(&self, FI_LOG_MR, "registrations are not kept, which is slow: %s\n",
		kedge_strerror(rc));
}

/* With the lock of libfabric's for the states of monitors: one at a time. */
static int begin(struct fid_mem_monitor *mon)
{
	struct ranges *t;
	int rc;

	open_notifier();
	rc = ranges_open(m.nf, m.nf ? RANGES_MAX : 0, &t);
	if (rc)
		return rc;
	atomic_store(&m.ranges, t);
	if (m.nf && (rc = start_thread(mon)))
		FI_WARN(&self, FI_LOG_MR, "no thread: registrations that have to go stay, %s\n",
			strerror(rc));
	return 0;
}

/* A thread that were cancelled here would take libfabric's lock along. */
static int start(struct fid_mem_monitor *mon)
{
	int saved, rc = 0;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	if (!atomic_load(&m.ranges))
		rc = begin(mon);
	pthread_setcancelstate(saved, &saved);
	return rc;
}

static void stop(struct fid_mem_monitor *mon)
{
	(void)mon;
	ranges_forget(atomic_load(&m.ranges));
}

static int subscribe(struct fid_mem_monitor *mon, const void *at, size_t len)
{
	const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	struct ranges *t = atomic_load(&m.ranges);
	int saved;
	bool kept;

	(void)mon;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved);
	kept = ranges_keep(t, at, len, sight_before(frame));
	pthread_setcancelstate(saved, &saved);
	sight_note(frame, ranges_clock(t));
	/* It is used, and not kept. */
	return kept ? 0 : -FI_EAGAIN;
}

/* The watch may serve other caches, and the next registration. */
static void unsubscribe(struct fid_mem_monitor *mon, const void *at, size_t len)
{
	(void)mon;
	(void)at;
	(void)len;
}

static bool valid(struct fid_mem_monitor *mon, const void *at, size_t len)
{
	(void)mon;
	return ranges_valid(atomic_load_explicit(&m.ranges, memory_order_relaxed), at, len);
}

static struct fi_ops_mem_monitor ops = {
	.size = sizeof(ops),
	.start = start,
	.stop = stop,
	.subscribe = subscribe,
	.unsubscribe = unsubscribe,
	.valid = valid,
};

static struct fid_mem_monitor monitor = {
	.fid.fclass = FI_CLASS_MEM_MONITOR,
	.export_ops = &ops,
};

/* ---- beginning and end ---- */

/* As long as it is waited for the thread, which libfabric's locks may keep. */
static struct timespec soon(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += WAIT_NS;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/*
 * A child of a program with one thread has libfabric's locks free, so the thread of ours must have
 * none of them now. A caller that has one itself, and for which the thread waits, forks after a
 * while all the same: its child has that lock anyhow.
 */
static void before_fork(void)
{
	const struct timespec until = soon();

	holds = !pthread_mutex_timedlock(&telling, &until);
}

static void after_fork(void)
{
	if (holds)
		pthread_mutex_unlock(&telling);
	holds = false;
}

static void after_fork_in_child(void)
{
	struct ranges *t = atomic_load(&m.ranges);

	pthread_mutex_init(&telling, NULL);
	holds = m.has_thread = false;
	if (t)
		ranges_after_fork(t);
}

/* Before libfabric's own end, as it is a library of this one: it must not be told after that. One
 * that exits with libfabric's lock is not kept from it. */
__attribute__((destructor)) static void end(void)
{
	const struct timespec until = soon();

	if (!m.has_thread)
		return;
	ranges_stop(atomic_load(&m.ranges));
	pthread_timedjoin_np(m.thread, NULL, &until);
	m.has_thread = false;
}

/* libfabric's own choice is by the same variable, before this is called. */
static bool is_wanted(void)
{
	const char *which = getenv("FI_MR_CACHE_MONITOR");

	return !which || !*which || !strcmp(which, "kedge");
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_prov_ini(void)
{
	int rc;

	if (!is_wanted()) {
		FI_INFO(&self, FI_LOG_MR, "FI_MR_CACHE_MONITOR asks for another than kedge\n");
		return NULL;
	}
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
	rc = fi_import(FI_VERSION(1, 13), "mr_cache", NULL, 0, 0, &monitor.fid, NULL);
	if (rc == -FI_EBUSY)
		FI_WARN(&self, FI_LOG_MR, "another library watches memory for libfabric already; "
			"kedge does not\n");
	else if (rc)
		FI_WARN(&self, FI_LOG_MR, "libfabric takes no monitor: %s\n", fi_strerror(-rc));
	m.imported = !rc;
	return NULL;
}

/* For libkedge-preload-verbs: libfabric's caches ask this library. */
__attribute__((visibility("default"))) bool kedge_fi_watches(void);

bool kedge_fi_watches(void)
{
	return m.imported;
}
