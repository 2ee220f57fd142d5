// SPDX-License-Identifier: BSD-2-Clause
/* The end of a process, by every way, while a cache is open. */
#include "proc.h"

struct way {
	void (*how)(void);
	int want;
	bool alone; /* its thread is the last */
};

static int child_ends(const void *variant)
{
	const struct way *w = variant;
	pid_t pid;
	int status;

#ifdef __SANITIZE_THREAD__
	if (w->alone)
		return proc_skip("ThreadSanitizer's thread keeps the process");
#endif
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
		w->how();
		_exit(1);
	}
	if (pid < 0)
		return proc_fail("fork: %s", strerror(errno));
	status = proc_wait(pid, 20);
	if (status == -1)
		return proc_fail("the process never ends");
	if (WIFEXITED(status) && WEXITSTATUS(status) == PROC_SKIP)
		return PROC_SKIP;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != w->want)
		return proc_fail("wait status %#x, not exit status %d",
				 (unsigned int)status, w->want);
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

#define WAY(name, ...) { name, NULL, 0, child_ends, &(const struct way){ __VA_ARGS__ } }

static const struct proc_case cases[] = {
	WAY("exit() with an open cache", by_exit, 3, false),
	WAY("pthread_exit() in the only thread", by_pthread_exit, 0, true),
	WAY("pthread_exit() in main, then the last thread returns",
	    by_the_last_threads_return, 0, true),
	WAY("pthread_exit() in main, then exit() in a thread", by_a_threads_exit, 4,
	    false),
};

int main(int argc, char **argv)
{
	return proc_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
