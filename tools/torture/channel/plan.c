// SPDX-License-Identifier: BSD-2-Clause
/*
 * The plan of a session and its messages. A class has lengths of one order, so
 * that a receive for a class knows how much it needs, and the mix says how many
 * of each there are: of the mixed one a message costs few microseconds in the
 * mean, though some have megabytes.
 */
#include <string.h>

#include "tools/common/words.h"
#include "tools/torture/channel/chan.h"

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

static inline uint64_t draw(const struct chan_go *go, unsigned int from,
			    uint32_t n)
{
	return util_mix(util_mix(go->seed + from) + n * UTIL_GOLDEN);
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
	go->segments = !util_rng_below(rng, 3);
	if (!go->segments)
		return;
	/* Where they are made use of. */
	for (i = 0; i < 2; i++) {
		go->way[i] = util_rng_below(rng, 2) ? KEDGE_WAY_AUTO : KEDGE_WAY_DIRECT;
		go->flags[i] = 0;
		go->timeout_ms[i] = 0;
	}
}

static inline uint64_t base_of(const struct chan_go *go, unsigned int from,
			       uint32_t n)
{
	return util_mix(draw(go, from, n) + UTIL_GOLDEN);
}

/* Any other offset, message, direction or session has other words. */
static uint64_t word_at(uint64_t base, size_t i)
{
	uint64_t z = base + i * UTIL_GOLDEN;

	return (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
}

void chan_fill(const struct chan_go *go, unsigned int from, uint32_t n,
	       void *buf, size_t len)
{
	words_fill(buf, len, base_of(go, from, n), word_at);
}

int64_t chan_verify(const struct chan_go *go, unsigned int from, uint32_t n,
		    const void *buf, size_t len)
{
	return words_verify(buf, len, base_of(go, from, n), word_at);
}
