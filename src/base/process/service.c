// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process ends when exit() is called, or when its last thread ends; libc then
 * calls exit(0) in that thread. Threads of ours would keep it from that: after
 * pthread_exit() in main the process stayed for ever, and no signal could end it
 * because ours block them all.
 *
 * So the end of each thread that began a service is noticed (a key's destructor).
 * If no other thread of the application is left, the services are ended there and
 * then, and libc sees its last thread end. Otherwise the last one may be a thread
 * that never called us: a keeper is started, a thread that looks now and then
 * whether only we are left, ends the services and is the last itself. It exists
 * only where a thread that began a service has ended before the process.
 *
 * The monitor could not be the last: it has no descriptors but its own, so exit()
 * there could not write what stdio still holds.
 *
 * Threads are counted by the links of /proc/self/task. A main thread that has
 * ended stays in the count until the process ends. A service counts when its thread is
 * there: one that counted before stood for a thread of the application's, and the keeper
 * ended all services of a process that was starting one.
 */
#include "base/process/service.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/lock.h"
#include "base/process/owner.h"
#include "base/process/thread.h"

#define LOOK_EVERY_MS 200

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t began; /* set in threads that began a service */
static _Atomic bool have_key;

static _Atomic int owner; /* the process that what follows belongs to */
static struct sig_lock lock = SIG_LOCK_INIT; /* guards: */
static struct service *services;
static unsigned int cnt; /* services that run */
static unsigned int starting;
static bool keeper;

static void anew(void)
{
	sig_lock_init(&lock);
	services = NULL;
	cnt = 0;
	starting = 0;
	keeper = false;
}

/* A forked child has the parent's list, but not its threads. */
static void adopt(void)
{
	owner_adopt(&owner, anew);
}

/* The number of threads; 0 if that can't be told. */
static unsigned int threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) || st.st_nlink < 3
		       ? 0
		       : (unsigned int)st.st_nlink - 2;
}

/* True: the main thread has ended, and is only counted. */
static bool main_is_gone(void)
{
	char path[48], text[256], *state;
	long fd, n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	state = strrchr(text, ')'); /* the name may hold anything */
	return state && state[1] == ' ' && state[2] == 'Z';
}

/* True: the calling thread is the last but for ours. With the lock. */
static bool alone(bool am_keeper)
{
	unsigned int all = threads(), ours = cnt + keeper + !am_keeper;

	return !starting && (all == ours || (all == ours + 1 && main_is_gone()));
}

/* With the lock, which the ends do not take. */
static void end_all(void)
{
	struct service *s;

	for (s = services; s; s = s->next)
		if (!s->ended) {
			s->ended = true;
			cnt--;
			s->end(s);
		}
}

static void pause_until(uint64_t deadline)
{
	struct timespec pause;

	do {
		pause = clock_wait_ts(deadline);
		syscall(SYS_nanosleep, &pause, NULL);
	} while (clock_left_ns(deadline));
}

static void *keep(void *arg)
{
	bool last = false;

	while (!last) {
		pause_until(clock_after_ms(LOOK_EVERY_MS));
		sig_lock(&lock);
		last = (!cnt && !starting) || alone(true);
		if (last) {
			end_all();
			keeper = false;
		}
		sig_unlock(&lock);
	}
	/* If exit() runs here, it is the application's code. */
	pthread_sigmask(SIG_SETMASK, arg, NULL);
	return NULL;
}

/* With the lock: signals are blocked, and so they are in the new thread. */
static void start_keeper(void)
{
	static sigset_t unblocked;
	pthread_attr_t attr;
	pthread_t thread;

	signals_before(&unblocked);
	if (pthread_attr_init(&attr))
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	keeper = !pthread_create(&thread, &attr, keep, &unblocked);
	if (keeper)
		pthread_setname_np(thread, "kedge-keeper");
	pthread_attr_destroy(&attr);
}

void service_thread_is_ours(void)
{
	if (have_key)
		pthread_setspecific(began, NULL);
}

/* A thread that began a service ends. */
static void thread_ends(void *unused)
{
	if (atomic_load(&owner) != getpid())
		return;
	sig_lock(&lock);
	if (cnt && alone(false))
		end_all();
	else if (cnt && !keeper)
		start_keeper();
	sig_unlock(&lock);
}

static void init_once(void)
{
	have_key = !pthread_key_create(&began, thread_ends);
}

/* As in refs.c: libkedge.a within a plug-in that is unloaded. */
__attribute__((destructor)) static void delete_key(void)
{
	if (atomic_exchange(&have_key, false))
		pthread_key_delete(began);
}

int service_begin(struct service *s)
{
	pthread_once(&once, init_once);
	if (have_key && pthread_setspecific(began, &once))
		return -ENOMEM;
	adopt();
	s->ended = s->runs = false;
	sig_lock(&lock);
	s->next = services;
	services = s;
	starting++;
	sig_unlock(&lock);
	return 0;
}

/* The thread may have left by itself. */
void service_runs(struct service *s)
{
	sig_lock(&lock);
	if (!s->ended && !s->runs) {
		s->runs = true;
		starting--;
		cnt++;
	}
	sig_unlock(&lock);
}

/* With the lock. False: its thread was ended already. */
static bool forget(struct service *s)
{
	struct service **link;
	bool running = !s->ended;

	for (link = &services; *link; link = &(*link)->next)
		if (*link == s) {
			*link = s->next;
			cnt -= running && s->runs;
			starting -= running && !s->runs;
			break;
		}
	return running;
}

bool service_end(struct service *s)
{
	bool running;

	adopt();
	sig_lock(&lock);
	running = forget(s);
	s->ended = true; /* service_leave() may be next */
	sig_unlock(&lock);
	return running;
}

int service_start(struct service *s, pthread_t *thread, void *(*run)(void *), const char *name,
		  const char *what)
{
	int rc = service_begin(s);

	if (rc)
		return rc;
	rc = thread_start(thread, run, NULL);
	if (rc) {
		service_end(s);
		return thread_refused(rc, what);
	}
	pthread_setname_np(*thread, name);
	service_runs(s);
	return 0;
}

int kedge__service_begin(struct service *s)
{
	return service_begin(s);
}

void kedge__service_runs(struct service *s)
{
	service_runs(s);
}

bool kedge__service_end(struct service *s)
{
	return service_end(s);
}

void kedge__service_thread_is_ours(void)
{
	service_thread_is_ours();
}

bool service_alone(void)
{
	bool is;

	adopt();
	sig_lock(&lock);
	is = alone(false);
	sig_unlock(&lock);
	return is;
}

/* The end of services waits for their threads with the lock. */
bool service_leave(struct service *s)
{
	bool ours;

	if (pthread_mutex_trylock(&lock.mutex))
		return false;
	ours = !s->ended && forget(s);
	s->ended = s->ended || ours;
	sig_unlock_blocked(&lock);
	return ours && !pthread_detach(pthread_self());
}
