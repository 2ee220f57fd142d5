// SPDX-License-Identifier: BSD-2-Clause
/* A process's number without a system call: never the parent's, however it was made. */
#include "base/process/page.h"
#include "cases.h"

#define THREADS 4

static void *is_mine(void *arg)
{
	assert_int_equal(process_pid(), getpid());
	return arg;
}

/* The first calls, at once. */
static void threads_find_the_same(void **state)
{
	pthread_t t[THREADS];

	run_threads(t, THREADS, is_mine, NULL, 0);
	join_threads(t, THREADS);
	is_mine(NULL);
}

static void ends_well(pid_t pid)
{

	ended_well(pid);
}

static void check_twice(void)
{
	CHILD_CHECK(process_pid() == (pid_t)syscall(SYS_getpid));
	CHILD_CHECK(process_pid() == (pid_t)syscall(SYS_getpid));
}

static void a_child_has_its_own(void **state)
{
	pid_t pid, again;
	int status;

	is_mine(NULL);
	pid = fork();
	if (!pid) {
		check_twice();
		again = fork();
		if (!again) {
			check_twice();
			_exit(0);
		}
		CHILD_CHECK(waitpid(again, &status, 0) == again && !status);
		check_twice();
		_exit(0);
	}
	ends_well(pid);
	is_mine(NULL);
}

/* No handler of fork() runs. */
static void a_child_around_libc_has_its_own(void **state)
{
	pid_t pid;

	is_mine(NULL);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid) {
		check_twice();
		syscall(SYS_exit_group, 0);
	}
	ends_well(pid);
	is_mine(NULL);
}

#define LISTED PLAIN
#include "test_page.cases.h"
