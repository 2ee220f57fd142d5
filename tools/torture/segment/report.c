// SPDX-License-Identifier: BSD-2-Clause
/* kedge torture --segment: the run, the report and the exit status. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/util.h"
#include "tools/torture/segment/storm_cmd.h"

static void tick(void *arg, uint64_t ms)
{
	util_progress_at(arg, ms / 1000);
}

static json_t *report_json(const struct storm_opts *o, const struct storm_result *r)
{
	json_t *j = json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
		"s:I, s:f}",
		"backend", r->backend, "rounds", (json_int_t)r->rounds, "conversions",
		(json_int_t)r->conversions, "copied", (json_int_t)r->copied, "forks",
		(json_int_t)r->forks, "attachments", (json_int_t)r->attachments, "looks",
		(json_int_t)r->looks, "changed", (json_int_t)r->changed, "stale",
		(json_int_t)r->stale, "torn", (json_int_t)r->torn, "lost",
		(json_int_t)r->lost, "crashes", (json_int_t)r->crashes, "kills",
		(json_int_t)r->kills, "owner_kills", (json_int_t)r->owner_kills, "seed",
		(json_int_t)o->seed, "elapsed", (double)r->ns / 1e9);

	if (j && *r->found)
		json_object_set_new(j, "found", util_json_text(r->found));
	return j;
}

static void print(const struct storm_opts *o, const struct storm_result *r)
{
	char a[UTIL_HUMAN], b[UTIL_HUMAN], c[UTIL_HUMAN];

	printf("segments: %s; 8 threads store, %u processes look; seed %" PRIu64 "\n",
	       r->backend, STORM_ATTACHERS, o->seed);
	printf("%s rounds and %s conversions under stores, %" PRIu64 " forks; %" PRIu64
	       " attachers and %" PRIu64 " owners killed\n",
	       util_human_count(a, r->rounds), util_human_count(b, r->conversions), r->forks,
	       r->kills, r->owner_kills);
	printf("%s attachments, %s looks, %s changes met, in %.1f s\n",
	       util_human_count(a, r->attachments), util_human_count(b, r->looks),
	       util_human_count(c, r->changed), (double)r->ns / 1e9);
	printf("%s%" PRIu64 " stale, %" PRIu64 " torn, %" PRIu64 " lost, %" PRIu64
	       " crashes%s\n",
	       util_colour(storm_is_right(r) ? UTIL_GREEN : UTIL_RED), r->stale, r->torn,
	       r->lost, r->crashes, util_colour(UTIL_PLAIN));
	if (*r->found)
		printf("the first: %s\n", r->found);
}

int storm_torture(struct storm_opts *o)
{
	struct util_progress progress;
	struct storm_result res;
	int rc;

	o->tick = tick;
	o->tick_arg = &progress;
	util_progress_start(&progress, "seconds", (uint64_t)o->seconds, false);
	rc = storm_run(o, &res);
	util_progress_stop(&progress);
	if (rc) {
		util_error("no segments to attach: %s; it takes Linux 6.8 or later, or the "
			   "module kedge_segment",
			   rc == -EOPNOTSUPP ? res.found : strerror(-rc));
		return CMD_CANNOT;
	}
	if (!util_flags.json)
		print(o, &res);
	else if (util_json_print(report_json(o, &res)))
		return CMD_CANNOT;
	return storm_is_right(&res) ? CMD_OK : CMD_FINDING;
}
