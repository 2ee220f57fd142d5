// SPDX-License-Identifier: BSD-2-Clause
/* Other threads stop, whatever they are at, and go on as if nothing had been. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/process/stop.h"
#include "cases.h"

#define THREADS 4
#define ROUNDS	200

static _Atomic bool over;
static _Atomic uint64_t turns[THREADS];
static _Atomic unsigned int got, ended;
static sem_t never;

static void *count(void *arg)
{
	_Atomic uint64_t *n = arg;

	while (!over)
		(*n)++;
	return NULL;
}

static void *call_all_the_time(void *arg)
{
	_Atomic uint64_t *n = arg;

	while (!over) {
		syscall(SYS_getppid);
		(*n)++;
	}
	return NULL;
}

static void *sleep_in_a_call(void *arg)
{
	(void)arg;
	while (sem_wait(&never) && errno == EINTR)
		;
	return NULL;
}

static void *end_at_once(void *arg)
{
	ended++;
	return arg;
}

/* Threads that come and go, so that the list is never what it was. */
static void *start_others(void *arg)
{
	pthread_t t;

	while (!over)
		if (!pthread_create(&t, NULL, end_at_once, NULL))
			pthread_join(t, NULL);
	return arg;
}

struct look {
	uint64_t at[THREADS];
	unsigned int calls;
	bool moved;
};

/* None makes a turn while this one makes some. Beside load each may take a slice of another. */
static int look(void *arg)
{
	struct look *l = arg;
	int i, k;

	l->calls++;
	for (i = 0; i < THREADS; i++)
		l->at[i] = turns[i];
	for (k = 0; k < 10; k++)
		syscall(SYS_sched_yield);
	for (i = 0; i < THREADS; i++)
		l->moved |= l->at[i] != turns[i];
	return 7;
}

static void start_all(pthread_t t[THREADS + 2])
{
	int i;

	over = false;
	sem_init(&never, 0, 0);
	for (i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, i % 2 ? count : call_all_the_time,
			       (void *)&turns[i]);
	pthread_create(&t[THREADS], NULL, sleep_in_a_call, NULL);
	pthread_create(&t[THREADS + 1], NULL, start_others, NULL);
}

static void end_all(pthread_t t[THREADS + 2])
{
	int i;

	over = true;
	sem_post(&never);
	for (i = 0; i < THREADS + 2; i++)
		pthread_join(t[i], NULL);
}

/* A thread that is long in the kernel, or waits for a processor, holds it up: again then. */
static int stopped(struct look *l)
{
	sigset_t all, saved;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	while ((rc = others_stopped(look, l)) == -EAGAIN)
		;
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return rc;
}

static void no_other_thread_runs(void **state)
{
	pthread_t t[THREADS + 2];
	struct look l = { .calls = 0 };
	uint64_t before;
	int i, rc;

	start_all(t);
	rc = stopped(&l);
	if (rc == -EPERM) {
		end_all(t);
		skip();
	}
	for (i = 1; i < ROUNDS; i++) {
		/* Each time they have gone on. */
		before = turns[0];
		WAIT_FOR(turns[0] != before);
		assert_int_equal(stopped(&l), 7);
	}
	WAIT_FOR(ended > 0);
	end_all(t);
	assert_false(l.moved);
	assert_int_equal(l.calls, ROUNDS);
}

static _Atomic pid_t sleeper;

/* One of the calls that fail with EINTR where a thread was stopped. */
static void *wait_for_an_event(void *arg)
{
	const int *fd = arg;
	struct epoll_event ev;

	sleeper = (pid_t)syscall(SYS_gettid);
	return epoll_wait(*fd, &ev, 1, -1) == 1 ? NULL : (void *)1;
}

static int out_of_kernel(void)
{
	sigset_t all, saved;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	while ((rc = others_out_of_kernel()) == -EAGAIN)
		;
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return rc;
}

/* Those that run are stopped and go on; one that sleeps hears nothing of it. */
static void sleepers_are_left_alone(void **state)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd = epoll_create1(0), wakes = eventfd(0, 0), i, rc;
	pthread_t t[THREADS + 2], waits;
	uint64_t before;
	void *bad;

	sleeper = 0;
	assert_int_equal(epoll_ctl(fd, EPOLL_CTL_ADD, wakes, &ev), 0);
	assert_int_equal(pthread_create(&waits, NULL, wait_for_an_event, &fd), 0);
	WAIT_FOR(sleeper && is_asleep(sleeper));
	start_all(t);
	rc = out_of_kernel();
	for (i = 1; i < ROUNDS && !rc; i++) {
		before = turns[0];
		WAIT_FOR(turns[0] != before);
		rc = out_of_kernel();
	}
	eventfd_write(wakes, 1);
	pthread_join(waits, &bad);
	end_all(t);
	close(fd);
	close(wakes);
	if (rc == -EPERM)
		skip();
	assert_int_equal(rc, 0);
	assert_null(bad);
}

static void note(int sig)
{
	(void)sig;
	got++;
}

/* One that is about to be taken when its thread is stopped is taken afterwards. */
static void no_signal_is_lost(void **state)
{
	const struct sigaction sa = { .sa_handler = note };
	struct look l = { .calls = 0 };
	unsigned int i;
	pthread_t t;
	int rc = 7;

	over = false;
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t, NULL, count, (void *)&turns[0]);
	for (i = 0; i < ROUNDS && rc == 7; i++) {
		got = 0;
		pthread_kill(t, SIGUSR1);
		rc = stopped(&l);
		WAIT_FOR(got == 1);
	}
	over = true;
	pthread_join(t, NULL);
	if (rc == -EPERM)
		skip();
	assert_int_equal(rc, 7);
}

static int say(void *arg)
{
	*(pid_t *)arg = (pid_t)syscall(SYS_gettid);
	return -3;
}

/* In a child: no other thread is left there. */
static int call_in_child(void *arg)
{
	pid_t by = 0;

	(void)arg;
	CHILD_CHECK(others_stopped(say, &by) == -3);
	CHILD_CHECK(by == (pid_t)syscall(SYS_gettid));
	return 0;
}

static void one_thread_calls_itself(void **state)
{
	assert_int_equal(in_child(call_in_child, NULL), 0);
}

static void forbid_ptrace(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	CHILD_CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHILD_CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

static int call_where_it_is_forbidden(void *arg)
{
	pid_t by = 0;
	pthread_t t;

	(void)arg;
	over = false;
	forbid_ptrace();
	CHILD_CHECK(!pthread_create(&t, NULL, count, (void *)&turns[0]));
	CHILD_CHECK(others_stopped(say, &by) == -EPERM);
	CHILD_CHECK(!by);
	over = true;
	CHILD_CHECK(!pthread_join(t, NULL));
	/* No process is left. */
	CHILD_CHECK(waitpid(-1, NULL, __WALL | WNOHANG) < 0 && errno == ECHILD);
	return 0;
}

static void a_filter_is_told_from_a_delay(void **state)
{
	assert_int_equal(in_child(call_where_it_is_forbidden, NULL), 0);
}

#define LISTED PLAIN
#include "test_stop.cases.h"
