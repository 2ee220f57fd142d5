// SPDX-License-Identifier: BSD-2-Clause
#include "vm_fuzz.h"

uint64_t next_random(struct fuzzer *f)
{
	f->state ^= f->state << 13;
	f->state ^= f->state >> 7;
	f->state ^= f->state << 17;
	return f->state;
}

unsigned int below(struct fuzzer *f, unsigned int n)
{
	return (unsigned int)(next_random(f) >> 20) % n;
}

void allow(struct fuzzer *f, const char *call, long rc, const int *errnos)
{
	int got = errno;

	if (rc >= 0)
		return;
	for (; *errnos; errnos++)
		if (*errnos == got)
			return;
	warnx("%s: %s", call, strerror(got));
	f->failed = true;
}

static int calls_cnt;
static void (*any_call)(struct fuzzer *f);

static void *calls(void *arg)
{
	int i;

	for (i = 0; i < calls_cnt; i++)
		any_call(arg);
	return NULL;
}

int fuzz_calls(uint64_t seed, unsigned int seconds, int cnt, void (*call)(struct fuzzer *f))
{
	struct fuzzer f[2] = { { seed * 2 + 1, false }, { ~seed, false } };
	pthread_t other;

	alarm(seconds);
	calls_cnt = cnt;
	any_call = call;
	if (pthread_create(&other, NULL, calls, &f[1]))
		errx(1, "no thread");
	calls(&f[0]);
	pthread_join(other, NULL);
	return f[0].failed || f[1].failed;
}

int fuzz_main(int argc, char **argv, int (*run)(uint64_t seed))
{
	const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) << 16;
	unsigned long runs = 0;
	int status;

	printf("first seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	do {
		status = run(seed);
		if (status) {
			printf("seed %llu: %s %d\n", (unsigned long long)seed,
			       WIFSIGNALED(status) ? "signal" : "exit status",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			return 1;
		}
		runs++;
		seed++;
	} while (time(NULL) < end);
	printf("%lu runs\n", runs);
	return 0;
}
