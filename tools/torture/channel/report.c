// SPDX-License-Identifier: BSD-2-Clause
/* The counts of kedge torture --channel, and the exit status. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/torture/channel/chan.h"

static bool is_bad(const struct chan_result *r)
{
	return r->wrong || r->lost || r->leaks || r->crashes || r->hangs;
}

static json_t *ways_json(const struct chan_tally *t)
{
	json_t *o = json_object();
	uint32_t way;

	for (way = KEDGE_WAY_EAGER; o && way < KEDGE_WAY_COUNT; way++)
		json_object_set_new(o, kedge_way_name(way),
				    json_integer((json_int_t)t->ways[way]));
	return o;
}

static json_t *found_json(const struct chan_tally *t)
{
	json_t *a = json_array();
	uint32_t i;

	for (i = 0; a && i < t->why_cnt; i++)
		json_array_append_new(a, util_json_text(t->why[i]));
	return a;
}

static int report_json(const struct chan_opts *opts,
		       const struct chan_result *r)
{
	const struct chan_tally *t = &r->sum;

	return util_json_print(json_pack(
		"{s:I, s:I, s:I, s:I, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I}, "
		"s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, "
		"s:I, s:f}",
		"messages", (json_int_t)r->messages, "sessions",
		(json_int_t)r->sessions, "whole", (json_int_t)t->whole,
		"bytes", (json_int_t)t->bytes, "ways", ways_json(t),
		"errors", "cancelled", (json_int_t)t->cancelled, "timed_out",
		(json_int_t)t->timed_out, "truncated",
		(json_int_t)t->truncated, "reset", (json_int_t)t->reset,
		"faults", (json_int_t)t->faults, "other",
		(json_int_t)t->other, "deaths", (json_int_t)r->deaths,
		"notice_ms", (double)t->notice_ns / 1e6, "stops",
		(json_int_t)r->stops, "forks", (json_int_t)t->forks, "maps",
		(json_int_t)t->maps, "attached_bytes",
		(json_int_t)t->attached, "wrong", (json_int_t)r->wrong, "lost",
		(json_int_t)r->lost, "leaks", (json_int_t)r->leaks, "crashes",
		(json_int_t)r->crashes, "hangs", (json_int_t)r->hangs, "found",
		found_json(t), "sizes", chan_mix_names[opts->mix], "seed",
		(json_int_t)opts->seed, "elapsed",
		(double)r->elapsed_ns / 1e9));
}

static void print_ways(const struct chan_tally *t)
{
	char n[UTIL_HUMAN];
	uint32_t way;

	for (way = KEDGE_WAY_EAGER; way < KEDGE_WAY_COUNT; way++)
		printf("%s %s %s", way == KEDGE_WAY_EAGER ? "" : ",",
		       util_human_count(n, t->ways[way]), kedge_way_name(way));
	putchar('\n');
}

static void report_text(const struct chan_opts *opts,
			const struct chan_result *r)
{
	const struct chan_tally *t = &r->sum;
	char sent[UTIL_HUMAN], whole[UTIL_HUMAN], bytes[UTIL_HUMAN];
	char late[UTIL_HUMAN], attached[UTIL_HUMAN];
	uint32_t i;

	printf("messages: %s sent, %s received whole, %s; %s by segments\n",
	       util_human_count(sent, r->messages),
	       util_human_count(whole, t->whole),
	       util_human_bytes(bytes, t->bytes),
	       util_human_bytes(attached, t->attached));
	printf("ways:    ");
	print_ways(t);
	printf("errors:   %" PRIu64 " cancelled, %" PRIu64 " timed out, %" PRIu64
	       " truncated, %" PRIu64 " reset, %" PRIu64 " faults, %" PRIu64
	       " other\n", t->cancelled, t->timed_out, t->truncated, t->reset,
	       t->faults, t->other);
	printf("tricks:   %" PRIu64 " sessions, %" PRIu64 " deaths (noticed "
	       "within %s), %" PRIu64 " stops, %" PRIu64 " forks, %" PRIu64
	       " mappings changed\n\n", r->sessions, r->deaths,
	       util_human_ns(late, (double)t->notice_ns), r->stops, t->forks,
	       t->maps);
	for (i = 0; i < t->why_cnt; i++)
		printf("%s\n", t->why[i]);
	printf("%s%" PRIu64 " wrong, %" PRIu64 " lost, %" PRIu64 " leaks, %"
	       PRIu64 " crashes, %" PRIu64 " hangs%s in %.1f s, sizes %s, seed "
	       "%" PRIu64 "\n", util_colour(is_bad(r) ? UTIL_RED : UTIL_GREEN),
	       r->wrong, r->lost, r->leaks, r->crashes, r->hangs,
	       util_colour(UTIL_PLAIN), (double)r->elapsed_ns / 1e9,
	       chan_mix_names[opts->mix], opts->seed);
}

int chan_report(const struct chan_opts *opts, const struct chan_result *r)
{
	if (!util_flags.json)
		report_text(opts, r);
	else if (report_json(opts, r))
		return CMD_CANNOT;
	return is_bad(r) ? CMD_FINDING : CMD_OK;
}
