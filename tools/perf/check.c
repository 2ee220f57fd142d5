// SPDX-License-Identifier: BSD-2-Clause
/*
 * The content of a message: 64-bit words of its seed, its number and their offset,
 * so that bytes of an earlier message, of another place or of another message
 * are all wrong bytes. Behind each buffer lies a guard of the same byte.
 */
#include <string.h>

#include "tools/common/util.h"
#include "tools/common/words.h"
#include "tools/perf/rank.h"

#define GUARD_BYTE 0xa5
#define WORD	   sizeof(uint64_t)

static inline uint64_t base_of(uint64_t seed, uint64_t seq)
{
	return util_mix(util_mix(seed + UTIL_GOLDEN) + seq);
}

static uint64_t word_at(uint64_t base, size_t i)
{
	return util_mix(base + i * UTIL_GOLDEN);
}

void perf_fill_guard(void *buf, size_t len)
{
	memset((char *)buf + len, GUARD_BYTE, PERF_GUARD);
}

void perf_fill(void *buf, size_t len, uint64_t seed, uint64_t seq)
{
	words_fill(buf, len, base_of(seed, seq), word_at);
}

int64_t perf_verify(const void *buf, size_t len, uint64_t seed, uint64_t seq)
{
	int64_t at = words_verify(buf, len, base_of(seed, seq), word_at);
	const char *end = (const char *)buf + len;
	char guard[PERF_GUARD];

	if (at >= 0)
		return at;
	memset(guard, GUARD_BYTE, sizeof(guard));
	if (memcmp(end, guard, sizeof(guard)))
		return (int64_t)(len + words_differ(end, guard));
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
