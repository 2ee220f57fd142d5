// SPDX-License-Identifier: BSD-2-Clause
/*
 * What a session and its messages are. A class has lengths of one order, so
 * that a receive for a class knows how much it needs, and the mix says how many
 * of each there are: of the mixed one a message costs few microseconds in the
 * mean, though some have megabytes.
 */
#include <string.h>

#include "tools/torture/channel/chan.h"

#define GOLDEN 0x9e3779b97f4a7c15u
#define WORD   sizeof(uint64_t)

const char *const chan_mix_names[CHAN_MIXES + 1] = {
	[CHAN_SMALL] = "small",
	[CHAN_MIXED] = "mixed",
	[CHAN_LARGE] = "large",
};

/* Bytes at most. The third and the fifth pass the borders of what goes eagerly, over
 * TCP and over shared memory. */
static const uint32_t class_max[CHAN_CLASSES] = { 64,	 1024,	 9000,
						  40960, 614400, 8 << 20 };

/* Of 2,048. */
static const uint16_t weight[CHAN_MIXES][CHAN_CLASSES] = {
	[CHAN_SMALL] = { 1024, 768, 252, 4, 0, 0 },
	[CHAN_MIXED] = { 1100, 640, 223, 74, 10, 1 },
	[CHAN_LARGE] = { 200, 200, 448, 400, 600, 200 },
};

static inline uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t draw(const struct chan_go *go, unsigned int from,
			    uint32_t n)
{
	return mix(mix(go->seed + from) + n * GOLDEN);
}

uint32_t chan_class(const struct chan_go *go, unsigned int from, uint32_t n)
{
	uint32_t at = draw(go, from, n) & 2047, class = 0;

	while (at >= weight[go->mix][class])
		at -= weight[go->mix][class++];
	return class;
}

size_t chan_class_max(uint32_t class)
{
	return class_max[class];
}

size_t chan_len(const struct chan_go *go, unsigned int from, uint32_t n)
{
	uint64_t v = draw(go, from, n) >> 11;
	uint32_t max = class_max[chan_class(go, from, n)];
	size_t len = (v >> 8) % (max + 1);

	/* Whole pages, and a byte beside that. */
	if (len > 8192 && !(v & 3))
		len = len / 4096 * 4096 + (v >> 2) % 3 - 1;
	return len < max ? len : max;
}

void chan_plan(struct util_rng *rng, uint32_t mix, struct chan_go *go)
{
	static const uint32_t ways[] = { KEDGE_WAY_AUTO, KEDGE_WAY_AUTO,
					 KEDGE_WAY_DIRECT, KEDGE_WAY_SWAP,
					 KEDGE_WAY_SWAP,
					 KEDGE_WAY_COPY, KEDGE_WAY_REGISTER };
	unsigned int i;

	go->seed = util_rng_next(rng);
	go->mix = mix == CHAN_MIXED && !util_rng_below(rng, 4) ? CHAN_LARGE
							       : mix;
	go->messages = 1000u << util_rng_below(rng, 8);
	if (go->mix == CHAN_LARGE)
		go->messages /= 100;
	for (i = 0; i < 2; i++) {
		go->way[i] = ways[util_rng_below(rng, ARRAY_SIZE(ways))];
		go->flags[i] = util_rng_below(rng, 8) ? 0
						      : KEDGE_CHANNEL_NO_CMA;
		go->timeout_ms[i] = util_rng_below(rng, 3)
					    ? 0 : 20 + util_rng_below(rng, 200);
		go->eager_max[i] = util_rng_below(rng, 3)
					   ? 0 : 1 + util_rng_below(rng, 20000);
		go->unexpected[i] = util_rng_below(rng, 3)
					    ? 0 : 1 + util_rng_below(rng, 100);
	}
}

static inline uint64_t base_of(const struct chan_go *go, unsigned int from,
			       uint32_t n)
{
	return mix(draw(go, from, n) + GOLDEN);
}

/* Any other offset, message, direction or session has other words. */
static inline uint64_t word_at(uint64_t base, size_t i)
{
	uint64_t z = base + i * GOLDEN;

	return (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
}

void chan_fill(const struct chan_go *go, unsigned int from, uint32_t n,
	       void *buf, size_t len)
{
	const uint64_t base = base_of(go, from, n);
	const size_t words = len / WORD;
	uint8_t *to = buf;
	uint64_t w;
	size_t i;

	for (i = 0; i < words; i++) {
		w = word_at(base, i);
		memcpy(to + i * WORD, &w, WORD);
	}
	w = word_at(base, words);
	if (len % WORD)
		memcpy(to + words * WORD, &w, len % WORD);
}

int64_t chan_verify(const struct chan_go *go, unsigned int from, uint32_t n,
		    const void *buf, size_t len)
{
	const uint64_t base = base_of(go, from, n);
	const uint8_t *at = buf;
	size_t i, part;
	uint64_t w;

	for (i = 0; i < len; i += WORD) {
		part = len - i < WORD ? len - i : WORD;
		w = word_at(base, i / WORD);
		if (likely(part == WORD ? !memcmp(at + i, &w, WORD)
					: !memcmp(at + i, &w, part)))
			continue;
		while (at[i] == ((const uint8_t *)&w)[i % WORD])
			i++;
		return (int64_t)i;
	}
	return -1;
}
