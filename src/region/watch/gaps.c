// SPDX-License-Identifier: BSD-2-Clause
/* Gaps: see gaps.h. */
#include <string.h>

#include "base/base.h"
#include "region/gaps.h"

struct sig_lock gaps_lock = SIG_LOCK_INIT;

static void put(struct gaps *g, uint32_t i, struct gap gap)
{
	memmove(&g->at[i + 1], &g->at[i], (g->cnt - i) * sizeof(gap));
	g->at[i] = gap;
	g->cnt++;
}

static void take(struct gaps *g, uint32_t i)
{
	g->cnt--;
	memmove(&g->at[i], &g->at[i + 1], (g->cnt - i) * sizeof(g->at[0]));
}

/* There is room for the next one. */
static void make_room(struct gaps *g)
{
	uint32_t i, best = 0;

	if (g->cnt <= GAPS_MAX)
		return;
	for (i = 1; i + 1 < g->cnt; i++)
		if (g->at[i + 1].from - g->at[i].to < g->at[best + 1].from - g->at[best].to)
			best = i;
	g->at[best].to = g->at[best + 1].to;
	take(g, best + 1);
}

void gaps_add(struct gaps *g, uint64_t from, uint64_t to)
{
	uint32_t i = 0;

	if (from >= to)
		return;
	while (i < g->cnt && g->at[i].to < from)
		i++;
	while (i < g->cnt && g->at[i].from <= to) {
		from = g->at[i].from < from ? g->at[i].from : from;
		to = g->at[i].to > to ? g->at[i].to : to;
		take(g, i);
	}
	put(g, i, (struct gap){ from, to });
	make_room(g);
}

void gaps_cut(struct gaps *g, uint64_t from, uint64_t to)
{
	struct gap was;
	uint32_t i = 0;

	while (i < g->cnt) {
		was = g->at[i];
		if (was.to <= from || was.from >= to) {
			i++;
			continue;
		}
		take(g, i);
		if (was.to > to)
			put(g, i, (struct gap){ to, was.to });
		if (was.from < from)
			put(g, i++, (struct gap){ was.from, from });
		i += was.to > to;
	}
	make_room(g);
}

const struct gap *gaps_find(const struct gaps *g, uint64_t from, uint64_t to)
{
	uint32_t i;

	for (i = 0; i < g->cnt; i++)
		if (g->at[i].from < to && g->at[i].to > from)
			return &g->at[i];
	return NULL;
}

uint64_t gaps_len(const struct gaps *g)
{
	uint64_t len = 0;
	uint32_t i;

	for (i = 0; i < g->cnt; i++)
		len += g->at[i].to - g->at[i].from;
	return len;
}
