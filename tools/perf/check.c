// SPDX-License-Identifier: BSD-2-Clause
/*
 * What is in a message: 64-bit words of its seed, its number and their offset,
 * so that bytes of an earlier message, of another place or of another message
 * are all wrong bytes. Behind each buffer lies a guard of the same byte.
 */
#include <string.h>

#include "tools/perf/rank.h"

#define GUARD_BYTE 0xa5
#define WORD	   sizeof(uint64_t)

/* splitmix64's last step: near numbers give far ones. */
static inline uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t base_of(uint64_t seed, uint64_t seq)
{
	return mix(mix(seed + 0x9e3779b97f4a7c15u) + seq);
}

static inline uint64_t word_at(uint64_t base, size_t i)
{
	return mix(base + i * 0x9e3779b97f4a7c15u);
}

void perf_fill_guard(void *buf, size_t len)
{
	memset((char *)buf + len, GUARD_BYTE, PERF_GUARD);
}

void perf_fill(void *buf, size_t len, uint64_t seed, uint64_t seq)
{
	const uint64_t base = base_of(seed, seq);
	const size_t words = len / WORD;
	char *to = buf;
	uint64_t w;
	size_t i;

	for (i = 0; i < words; i++) {
		w = word_at(base, i);
		memcpy(to + i * WORD, &w, WORD);
	}
	w = word_at(base, words);
	memcpy(to + words * WORD, &w, len % WORD);
}

/* The first byte of @a that differs from @b's, which some does. */
static size_t differs(const void *a, const void *b)
{
	const unsigned char *x = a, *y = b;
	size_t i = 0;

	while (x[i] == y[i])
		i++;
	return i;
}

int64_t perf_verify(const void *buf, size_t len, uint64_t seed, uint64_t seq)
{
	const uint64_t base = base_of(seed, seq);
	const size_t words = len / WORD;
	const char *from = buf;
	char guard[PERF_GUARD];
	uint64_t w;
	size_t i;

	for (i = 0; i < words; i++) {
		w = word_at(base, i);
		if (memcmp(from + i * WORD, &w, WORD))
			return (int64_t)(i * WORD +
					 differs(from + i * WORD, &w));
	}
	w = word_at(base, words);
	if (memcmp(from + words * WORD, &w, len % WORD))
		return (int64_t)(words * WORD +
				 differs(from + words * WORD, &w));
	memset(guard, GUARD_BYTE, sizeof(guard));
	if (memcmp(from + len, guard, sizeof(guard)))
		return (int64_t)(len + differs(from + len, guard));
	return -1;
}

uint64_t perf_use(const void *buf, size_t len)
{
	const size_t words = len / WORD;
	const char *from = buf;
	uint64_t sum = 0, w;
	size_t i;

	for (i = 0; i < words; i++) {
		memcpy(&w, from + i * WORD, WORD);
		sum += w;
	}
	for (i = words * WORD; i < len; i++)
		sum += (unsigned char)from[i];
	return sum;
}
