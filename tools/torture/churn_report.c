// SPDX-License-Identifier: BSD-2-Clause
/* kedge torture --churn: the run, the report and the exit status. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/util.h"
#include "tools/torture/churn_cmd.h"

static void tick(void *arg, uint64_t ms)
{
	util_progress_at(arg, ms / 1000);
}

static double percent(const struct churn_result *r)
{
	return r->gets ? 100.0 * (double)r->stale / (double)r->gets : 0;
}

static json_t *report_json(const struct churn_opts *o,
			   const struct churn_result *r)
{
	json_t *j = json_pack(
		"{s:s, s:s, s:b, s:b, s:b, s:s, s:s, s:i, s:I, s:I, s:f, s:I, "
		"s:I, s:I, s:I, s:f}",
		"notifier", r->backend, "level", util_level_name(r->level),
		"default", o->defaults, "hooked", r->hooked, "per_thread",
		o->apart, "alloc", churn_alloc_names[o->alloc], "route",
		churn_route_names[o->route], "threads", (int)o->threads, "gets",
		(json_int_t)r->gets, "stale", (json_int_t)r->stale, "percent",
		percent(r), "hits", (json_int_t)r->hits, "uncached",
		(json_int_t)r->uncached, "refused", (json_int_t)r->refused,
		"seed", (json_int_t)o->seed, "elapsed", (double)r->ns / 1e9);

	/* The caches' own notifiers cannot be asked. */
	if (j && o->defaults)
		json_object_del(j, "level");
	if (j && *r->text)
		json_object_set_new(j, r->error ? "why" : "found",
				    json_string(r->text));
	return j;
}

static void print(const struct churn_opts *o, const struct churn_result *r)
{
	char gets[UTIL_HUMAN], stale[UTIL_HUMAN], hits[UTIL_HUMAN];
	char uncached[UTIL_HUMAN], refused[UTIL_HUMAN];

	printf("device: uring; notifier: %s%s%s; %s by %s\n", r->backend,
	       o->apart ? ", one for each thread" : "",
	       r->hooked ? ", with hooks" : "", churn_alloc_names[o->alloc],
	       churn_route_names[o->route]);
	printf("%s%s stale of %s gets (%.2f %%)%s in %.1f s, seed %" PRIu64
	       ", %u threads\n",
	       util_colour(r->stale ? UTIL_RED : UTIL_GREEN),
	       util_human_count(stale, r->stale),
	       util_human_count(gets, r->gets), percent(r),
	       util_colour(UTIL_PLAIN), (double)r->ns / 1e9, o->seed,
	       o->threads);
	printf("%s hits, %s not cached, %s refused\n",
	       util_human_count(hits, r->hits),
	       util_human_count(uncached, r->uncached),
	       util_human_count(refused, r->refused));
	if (*r->text)
		printf("%s: %s\n", r->error ? "error" : "stale", r->text);
}

int churn_torture(struct churn_opts *o)
{
	static const struct churn_api api = CHURN_API_LINKED;
	struct util_progress progress;
	struct churn_result res;
	int rc;

	o->api = &api;
	o->tick = tick;
	o->tick_arg = &progress;
	util_progress_start(&progress, "seconds", (uint64_t)o->seconds, false);
	rc = churn_run(o, &res);
	util_progress_stop(&progress);
	if (rc) {
		util_error("cannot run: %s",
			   *res.text ? res.text : strerror(-rc));
		return CMD_CANNOT;
	}
	if (!util_flags.json)
		print(o, &res);
	else if (util_json_print(report_json(o, &res)))
		return CMD_CANNOT;
	if (!res.gets && !res.error)
		return CMD_CANNOT;
	return res.stale || res.error ? CMD_FINDING : CMD_OK;
}
