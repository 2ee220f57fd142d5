// SPDX-License-Identifier: BSD-2-Clause
/* The finds of the demo: a table for people, or JSON. */
#include <stdio.h>

#include "base/base.h"
#include "tools/demo/demo.h"

static void print_head(const struct demo_report *r)
{
	char bytes[UTIL_HUMAN];

	printf("Copying %s, %s, through registered buffers of 1 MiB\n"
	       "by %s; ", r->file->path,
	       util_human_bytes(bytes, r->file->bytes), r->device->label);
	printf("%u buffers, %u chunks under way, a buffer freed and another "
	       "allocated\nbefore %.3g %% of the chunks; %u rounds, seed %llu; "
	       "notifier %s (%s)\n\n",
	       r->app->buffers, r->app->depth, 100 * r->app->churn, r->rounds,
	       (unsigned long long)r->seed, r->notifier,
	       util_level_name(r->level));
}

static void print_row(const struct demo_result *m)
{
	char regs[UTIL_HUMAN], hits[UTIL_HUMAN], stale[UTIL_HUMAN];
	char chunks[UTIL_HUMAN], wrong[2 * UTIL_HUMAN + 4];

	snprintf(wrong, sizeof(wrong), "%s of %s",
		 util_human_count(stale, m->stale),
		 util_human_count(chunks, m->chunks));
	printf("%-9s %6.2f %14s %9s %16s   %s%s%s\n", m->name, m->median,
	       util_human_count(regs, m->registrations),
	       util_human_count(hits, m->hits), wrong,
	       util_colour(m->stale ? UTIL_RED : UTIL_GREEN),
	       m->stale ? "WRONG" : "right", util_colour(UTIL_PLAIN));
}

static void explain_naive(const struct demo_result *naive)
{
	char n[UTIL_HUMAN];

	if (naive->stale)
		printf("naive: %s chunks of the copy are wrong, and no call "
		       "failed. free() gave the pages back and\n"
		       "       malloc() put others at the same address; the "
		       "device still uses the old ones.\n",
		       util_human_count(n, naive->stale));
	else
		printf("naive: lucky this time; no buffer that was freed came "
		       "back with other pages while\n"
		       "       it was in use. A larger file or --churn shows "
		       "what it does.\n");
}

static void explain_kedge(const struct demo_report *r)
{
	if (r->result[DEMO_KEDGE].stale)
		printf("kedge: WRONG DATA. This must not happen: please report "
		       "it with 'kedge info --json'.\n");
	else if (r->level < KEDGE_LEVEL_ADVISORY)
		printf("kedge: right, but it caches nothing without a "
		       "notifier: 'kedge info' tells what to do.\n");
	else
		printf("kedge: right, at %.0f %% of naive's speed and %.2f "
		       "times uncached's.\n",
		       100 * r->vs_naive, r->vs_uncached);
}

void demo_print_text(const struct demo_report *r)
{
	size_t i;

	print_head(r);
	printf("%s%-9s %6s %14s %9s %16s   %s%s\n", util_colour(UTIL_BOLD),
	       "mode", "GB/s", "registrations", "hits", "wrong chunks",
	       "checksum", util_colour(UTIL_PLAIN));
	for (i = 0; i < DEMO_MODES; i++)
		print_row(&r->result[i]);
	putchar('\n');
	explain_naive(&r->result[DEMO_NAIVE]);
	explain_kedge(r);
}

static json_t *mode_json(const struct demo_result *m, uint32_t rounds)
{
	json_t *all = json_array();
	uint32_t i;

	for (i = 0; i < rounds; i++)
		json_array_append_new(all, json_real(m->gbps[i]));
	return json_pack("{s:s, s:f, s:I, s:I, s:I, s:b, s:I, s:o}",
			 "name", m->name, "gbps", m->median,
			 "registrations", (json_int_t)m->registrations,
			 "hits", (json_int_t)m->hits,
			 "stale", (json_int_t)m->stale,
			 "intact", m->stale == 0,
			 "chunks", (json_int_t)m->chunks,
			 "rounds", all);
}

int demo_print_json(const struct demo_report *r)
{
	json_t *modes = json_array();
	size_t i;

	for (i = 0; i < DEMO_MODES; i++)
		json_array_append_new(modes,
				      mode_json(&r->result[i], r->rounds));
	return util_json_print(json_pack(
		"{s:o, s:I, s:s, s:s, s:I, s:f, s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:f, "
		"s:f}",
		"file", util_json_text(r->file->path), "bytes", (json_int_t)r->file->bytes,
		"device", r->device->ops->name, "device_label",
		r->device->label,
		"seed", (json_int_t)r->seed, "churn", 100 * r->app->churn,
		"chunk", (int)DEMO_CHUNK, "buffers", (int)r->app->buffers,
		"depth", (int)r->app->depth, "rounds", (int)r->rounds,
		"notifier", r->notifier, "level", util_level_name(r->level),
		"modes", modes, "vs_naive", r->vs_naive, "vs_uncached",
		r->vs_uncached));
}
