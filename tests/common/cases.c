// SPDX-License-Identifier: BSD-2-Clause
/* See cases.h. */
#include "cases.h"

pthread_t run_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
	return t;
}

void *join_thread(pthread_t t)
{
	void *returned = NULL;

	assert_int_equal(pthread_join(t, &returned), 0);
	return returned;
}

void *in_thread(void *(*fn)(void *), void *arg)
{
	return join_thread(run_thread(fn, arg));
}

void run_threads(pthread_t *t, size_t cnt, void *(*fn)(void *), void *args, size_t size)
{
	size_t i;

	for (i = 0; i < cnt; i++)
		t[i] = run_thread(fn, (char *)args + i * size);
}

void join_threads(const pthread_t *t, size_t cnt)
{
	size_t i;

	for (i = 0; i < cnt; i++)
		assert_null(join_thread(t[i]));
}

void ended_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

void *new_map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}
