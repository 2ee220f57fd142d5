// SPDX-License-Identifier: BSD-2-Clause
/*
 * A program that knows nothing of kedge, for preloading: threads that allocate,
 * map, fork and end. Wrong contents or a crash fail it.
 */
#include "check.h"

#define THREADS 4
#define ROUNDS	400

static void fill(unsigned char *p, size_t len, unsigned char with)
{
	CHECK(p && p != MAP_FAILED);
	memset(p, with, len);
}

static void *churn(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	unsigned char *p, *q;
	size_t len;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		len = (size_t)rand_r(&seed) % (512 << 10) + 1;
		p = malloc(len);
		fill(p, len, (unsigned char)i);
		q = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		fill(q, 65536, 1);
		CHECK(!madvise(q, 65536, MADV_DONTNEED) && !q[0]);
		CHECK(!munmap(q, 65536));
		p = realloc(p, 2 * len);
		CHECK(p && p[0] == (unsigned char)i &&
		      p[len - 1] == (unsigned char)i);
		free(p);
	}
	return NULL;
}

static void vfork_and_exec(char *self)
{
	char *argv[] = { self, "exit", NULL };
	int status;
	pid_t pid = vfork();

	if (!pid) {
		execv("/proc/self/exe", argv);
		_exit(1);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
}

int main(int argc, char **argv)
{
	pthread_t t[THREADS];
	uintptr_t i;
	int status;
	pid_t pid;

	if (argc > 1)
		return strcmp(argv[1], "exit") != 0;
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, churn, (void *)(i + 1)));
	vfork_and_exec(argv[0]);
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_join(t[i], NULL));
	pid = fork();
	if (!pid) {
		churn((void *)9);
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	return 0;
}
