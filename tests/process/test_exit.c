// SPDX-License-Identifier: BSD-2-Clause
/* The end of a process, by every way, while a cache is open. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"

static int child_ends(void (*how)(void), int want)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		static struct rig r;
		char *mem = map_anon(NULL, RIG_LEN);
		int rc = rig_open(&r);

		if (!rc)
			rc = rig_check(&r, mem, RIG_LEN) ? 1 : 0;
		if (rc)
			_exit(rc);
		how();
		_exit(1);
	}
	if (pid < 0)
		return proc_fail("fork: %s", strerror(errno));
	status = proc_wait(pid, 20);
	if (status == -1)
		return proc_fail("the process never ends");
	if (WIFEXITED(status) && WEXITSTATUS(status) == PROC_SKIP)
		return PROC_SKIP;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != want)
		return proc_fail("wait status %#x, not exit status %d",
				 (unsigned int)status, want);
	return 0;
}

static void by_pthread_exit(void)
{
	pthread_exit(NULL);
}

static void by_exit(void)
{
	exit(3);
}

static void *exit_later(void *arg)
{
	sleep_ms(20);
	exit(4);
}

static void by_a_threads_exit(void)
{
	pthread_t t;

	pthread_create(&t, NULL, exit_later, NULL);
	pthread_exit(NULL);
}

static void *return_later(void *arg)
{
	sleep_ms(20);
	return NULL;
}

static void by_the_last_threads_return(void)
{
	pthread_t t;

	pthread_create(&t, NULL, return_later, NULL);
	pthread_exit(NULL);
}

/* ThreadSanitizer has a thread of its own, which is no more the last than ours. */
static int not_alone(void)
{
#ifdef __SANITIZE_THREAD__
	return proc_skip("ThreadSanitizer's thread keeps the process");
#else
	return 0;
#endif
}

static int main_thread_alone(void)
{
	int rc = not_alone();

	return rc ? rc : child_ends(by_pthread_exit, 0);
}

static int last_thread(void)
{
	int rc = not_alone();

	return rc ? rc : child_ends(by_the_last_threads_return, 0);
}

static int exit_with_cache(void)
{
	return child_ends(by_exit, 3);
}

static int exit_of_a_thread(void)
{
	return child_ends(by_a_threads_exit, 4);
}

int main(int argc, char **argv)
{
	static const struct proc_case cases[] = {
		{ "exit() with an open cache", exit_with_cache, 0 },
		{ "pthread_exit() in the only thread", main_thread_alone, 0 },
		{ "pthread_exit() in main, then the last thread returns",
		  last_thread, 0 },
		{ "pthread_exit() in main, then exit() in a thread",
		  exit_of_a_thread, 0 },
	};

	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
