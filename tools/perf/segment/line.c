// SPDX-License-Identifier: BSD-2-Clause
/*
 * Lines of 64 bytes that go there and back, for both processes: seven words, and
 * in the eighth the number of the line, which is stored last and waited for. A
 * line holds one number at a time, and is written again when its answer is here.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include "tools/perf/segment/segment.h"

#define WORDS (SEG_LINE / sizeof(uint64_t))
/* Loads until the other process gets the CPU, or is looked for. */
#define SPINS	  20000u
#define SPINS_ONE 50u

void seg_line_put(void *to, uint64_t n)
{
	uint64_t *w = to;
	size_t i;

	for (i = 0; i < WORDS - 1; i++)
		__atomic_store_n(&w[i], n + i, __ATOMIC_RELAXED);
	/* With the acquire in seg_line_take(): without it the number could be
	 * seen before the words. */
	__atomic_store_n(&w[WORDS - 1], n, __ATOMIC_RELEASE);
}

int seg_line_take(const void *from, uint64_t n, const struct seg_wait *how)
{
	struct pollfd gone = { .fd = how->fd }; /* asks for hang-ups alone */
	const uint64_t *w = from;
	unsigned int spins = 0;
	uint64_t bad = 0;
	size_t i;

	/* See seg_line_put(). */
	while (__atomic_load_n(&w[WORDS - 1], __ATOMIC_ACQUIRE) != n) {
		if (++spins < (how->yield ? SPINS_ONE : SPINS))
			continue;
		spins = 0;
		sched_yield();
		if (poll(&gone, 1, 0) > 0)
			return -EPIPE;
	}
	for (i = 0; i < WORDS - 1; i++)
		bad |= __atomic_load_n(&w[i], __ATOMIC_RELAXED) ^ (n + i);
	return bad != 0;
}

long seg_preempted(void)
{
	struct rusage ru;

	return getrusage(RUSAGE_THREAD, &ru) ? 0 : ru.ru_nivcsw;
}

void seg_chain(char *at)
{
	const size_t cnt = SEG_CHAIN / SEG_LINE;
	size_t i;

	/* One cycle through all (Knuth: the factor less one is a multiple of four, the
	 * addend is odd), in steps that no prefetcher knows. */
	for (i = 0; i < cnt; i++)
		*(uint64_t *)(void *)(at + i * SEG_LINE) = (i * 1021 + 1) % cnt;
}
