/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contents that can be verified: 64-bit words, which word_at() makes of a base
 * and of the word's index. The loops are part of what kedge perf --check
 * measures, so they are inlined, and word_at() with them.
 */
#ifndef TOOLS_COMMON_WORDS_H
#define TOOLS_COMMON_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t words_at_fn(uint64_t base, size_t i);

__attribute__((always_inline))
static inline void words_fill(void *buf, size_t len, uint64_t base,
			      words_at_fn *word_at)
{
	const size_t words = len / sizeof(uint64_t);
	char *to = buf;
	uint64_t w;
	size_t i;

	for (i = 0; i < words; i++) {
		w = word_at(base, i);
		memcpy(to + i * sizeof(w), &w, sizeof(w));
	}
	w = word_at(base, words);
	/* An empty buffer may be NULL, which memcpy() does not take. */
	if (len % sizeof(w))
		memcpy(to + words * sizeof(w), &w, len % sizeof(w));
}

/* The index of the first byte that differs; one does. */
static inline size_t words_differ(const void *a, const void *b)
{
	const unsigned char *x = a, *y = b;
	size_t i = 0;

	while (x[i] == y[i])
		i++;
	return i;
}

/* The offset of the first wrong byte, or -1. */
__attribute__((always_inline))
static inline int64_t words_verify(const void *buf, size_t len, uint64_t base,
				   words_at_fn *word_at)
{
	const size_t words = len / sizeof(uint64_t);
	const char *from = buf;
	uint64_t w;
	size_t i;

	for (i = 0; i < words; i++, from += sizeof(w)) {
		w = word_at(base, i);
		if (memcmp(from, &w, sizeof(w)))
			goto wrong;
	}
	w = word_at(base, words);
	if (!(len % sizeof(w)) || !memcmp(from, &w, len % sizeof(w)))
		return -1;
wrong:
	return from - (const char *)buf + (int64_t)words_differ(from, &w);
}

#endif /* TOOLS_COMMON_WORDS_H */
