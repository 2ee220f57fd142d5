// SPDX-License-Identifier: BSD-2-Clause
/* See cases.h. */
#include "cases.h"

/* The memory of the case that runs; a place is free where the length is 0. */
static struct {
	void *at;
	size_t len;
} memory[256];
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static void exchange(const void *was, void *at, size_t len)
{
	size_t i;

	pthread_mutex_lock(&memory_lock);
	for (i = 0; i < ARRAY_SIZE(memory) - 1 && memory[i].at != was; i++)
		;
	/* One that finds no place is freed by its case. */
	if (memory[i].at == was) {
		memory[i].at = at;
		memory[i].len = len;
	}
	pthread_mutex_unlock(&memory_lock);
}

void case_has(void *at, size_t len)
{
	exchange(NULL, at, len);
}

void case_lets_go(const void *at)
{
	exchange(at, NULL, 0);
}

int case_end(void **state)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(memory); i++) {
		if (memory[i].at)
			munmap(memory[i].at, memory[i].len);
		memory[i].at = NULL;
	}
	return 0;
}

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
