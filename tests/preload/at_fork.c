// SPDX-License-Identifier: BSD-2-Clause
/* A library that starts a thread in each new process, as runtimes of sanitizers do. */
#include <pthread.h>
#include <stdlib.h>

static void *nothing(void *arg)
{
	return arg;
}

static void thread_in_child(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
		abort();
}

__attribute__((constructor)) static void at_forks(void)
{
	if (pthread_atfork(NULL, NULL, thread_in_child))
		abort();
}
