// SPDX-License-Identifier: BSD-2-Clause
/* The matrix for people, the JSON for programs, and the exit status. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/torture/case.h"

static const char *const status_name[] = {
	[STATUS_OK] = "ok",
	[STATUS_STALE] = "stale",
	[STATUS_UNPROMISED] = "unpromised",
	[STATUS_SKIPPED] = "skipped",
	[STATUS_ERROR] = "error",
};

struct totals {
	uint64_t rounds, stale, unpromised, errors, gets, hits, uncached;
	unsigned int few; /* rows that are short of --rounds */
	unsigned int rows[STATUS_ERROR + 1];
};

static void add_up(const struct torture *t, struct totals *sum)
{
	const struct row *row;
	size_t i;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < t->row_cnt; i++) {
		row = &t->rows[i];
		sum->rounds += row->rounds;
		sum->few += t->rounds && row_wanted(t, row);
		sum->errors += row->errors;
		if (row->promised)
			sum->stale += row->stale;
		else
			sum->unpromised += row->stale;
		sum->gets += row->gets;
		sum->hits += row->hits;
		sum->uncached += row->uncached;
		sum->rows[row_status(row)]++;
	}
}

static json_t *row_json(const struct row *row)
{
	enum status st = row_status(row);
	bool counted = row->mode != MODE_CROWD;
	json_t *j = json_pack(
		"{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:b, s:b}", "event",
		row->ev->name, "route", route_name[row->route], "pages",
		pages_name[row->pages], "mode", mode_name[row->mode], "rounds",
		(json_int_t)row->rounds, "stale", (json_int_t)row->stale,
		"status", status_name[st], "promised", row->promised, "changes",
		!!(row->ev->flags & EV_STALE));

	if (j && counted) {
		json_object_set_new(j, "hits",
				    json_integer((json_int_t)row->hits));
		json_object_set_new(j, "uncached",
				    json_integer((json_int_t)row->uncached));
	}
	if (j && row->errors)
		json_object_set_new(j, "errors",
				    json_integer((json_int_t)row->errors));
	if (j && *row->why)
		json_object_set_new(j, "why", json_string(row->why));
	if (j && *row->found)
		json_object_set_new(j, "found", json_string(row->found));
	return j;
}

static json_t *report_json(const struct torture *t, const struct totals *sum)
{
	const struct kedge_notifier_info *info = &t->rig.info;
	json_t *cases = json_array();
	size_t i;

	for (i = 0; cases && i < t->row_cnt; i++)
		json_array_append_new(cases, row_json(&t->rows[i]));
	return json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, "
		"s:b, s:i, s:I, s:o}",
		"device", t->dio->name, "notifier",
		t->naive ? "naive" : info->backend, "level",
		util_level_name(t->naive ? KEDGE_LEVEL_NONE : info->level),
		"stale", (json_int_t)sum->stale, "unpromised",
		(json_int_t)sum->unpromised, "errors", (json_int_t)sum->errors,
		"rounds", (json_int_t)sum->rounds, "gets",
		(json_int_t)sum->gets, "hits", (json_int_t)sum->hits,
		"uncached", (json_int_t)sum->uncached, "seed",
		(json_int_t)t->seed, "threads", t->threads, "elapsed",
		(double)t->elapsed_ns / 1e9, "hooked", (int)info->hooked,
		"blind", (int)info->blind, "signals", (json_int_t)t->signals,
		"cases", cases);
}

/* One cell: the worst of its rows. */
struct cell {
	bool used;
	enum status worst;
	uint64_t rounds, stale;
};

/* The rank of each status among the others of a cell: the worst has the highest. */
static int badness(enum status st)
{
	static const int bad[] = {
		[STATUS_OK] = 1,	 [STATUS_STALE] = 4,
		[STATUS_UNPROMISED] = 2, [STATUS_SKIPPED] = 0,
		[STATUS_ERROR] = 3,
	};

	return bad[st];
}

static void cell_add(struct cell *c, const struct row *row)
{
	enum status st = row_status(row);

	if (!c->used || badness(st) > badness(c->worst))
		c->worst = st;
	c->used = true;
	c->rounds += row->rounds;
	c->stale += row->stale;
}

static void print_cell(const struct cell *c)
{
	static const enum util_colour colour[] = {
		[STATUS_OK] = UTIL_GREEN,
		[STATUS_STALE] = UTIL_RED,
		[STATUS_UNPROMISED] = UTIL_YELLOW,
		[STATUS_SKIPPED] = UTIL_PLAIN,
		[STATUS_ERROR] = UTIL_RED,
	};
	char text[UTIL_HUMAN] = "";

	if (c->used && c->stale)
		snprintf(text, sizeof(text),
			 c->worst == STATUS_STALE ? "!%" PRIu64
						  : "(%" PRIu64 ")",
			 c->stale);
	else if (c->used && c->worst == STATUS_OK)
		snprintf(text, sizeof(text), "%" PRIu64, c->rounds);
	else if (c->used)
		snprintf(text, sizeof(text), "%s",
			 c->worst == STATUS_ERROR ? "ERROR" : "skip");
	printf("%s%11s%s", c->used ? util_colour(colour[c->worst]) : "", text,
	       c->used ? util_colour(UTIL_PLAIN) : "");
}

static void print_matrix(const struct torture *t)
{
	struct cell cell[ROUTE_CNT];
	const struct event *ev;
	unsigned int rt;
	size_t i = 0;

	printf("\n%-25s", "rounds by route");
	for (rt = 0; rt < ROUTE_CNT; rt++)
		printf("%11s", route_name[rt]);
	putchar('\n');
	while (i < t->row_cnt) {
		ev = t->rows[i].ev;
		memset(cell, 0, sizeof(cell));
		for (; i < t->row_cnt && t->rows[i].ev == ev; i++)
			cell_add(&cell[t->rows[i].route], &t->rows[i]);
		printf("%-25s", ev->name);
		for (rt = 0; rt < ROUTE_CNT; rt++)
			print_cell(&cell[rt]);
		putchar('\n');
	}
}

/* The same reason for many rows is one line. */
static void print_skips(const struct torture *t)
{
	const struct row *row, *prev = NULL;
	size_t i, cnt = 0;

	for (i = 0; i <= t->row_cnt; i++) {
		row = i < t->row_cnt ? &t->rows[i] : NULL;
		if (row && row_status(row) != STATUS_SKIPPED)
			continue;
		if (row && prev && row->ev == prev->ev &&
		    row->pages == prev->pages && !strcmp(row->why, prev->why)) {
			cnt++;
			continue;
		}
		if (prev)
			printf("skipped: %s, %s pages, %zu rows: %s\n",
			       prev->ev->name, pages_name[prev->pages], cnt,
			       *prev->why ? prev->why : "no time");
		prev = row;
		cnt = 1;
	}
}

/* More findings than these say no more. */
#define SHOWN 16

static void print_findings(const struct torture *t, enum status which)
{
	unsigned int cnt = 0;
	const struct row *row;
	size_t i;

	for (i = 0; i < t->row_cnt; i++) {
		row = &t->rows[i];
		/* An error shows even where the row has worse to tell. */
		if (which == STATUS_ERROR ? !row->errors
					  : row_status(row) != which)
			continue;
		if (++cnt > SHOWN)
			continue;
		printf("%s: %s by %s, %s pages, %s: %llu of %llu; %s\n",
		       status_name[which], row->ev->name,
		       route_name[row->route], pages_name[row->pages],
		       mode_name[row->mode],
		       (unsigned long long)(which == STATUS_ERROR ? row->errors
								  : row->stale),
		       (unsigned long long)row->rounds,
		       which == STATUS_ERROR ? row->why : row->found);
	}
	if (cnt > SHOWN)
		printf("%s: %u more rows; --json has them all\n",
		       status_name[which], cnt - SHOWN);
}

static void print_totals(const struct torture *t, const struct totals *sum)
{
	char rounds[UTIL_HUMAN], stale[UTIL_HUMAN], hits[UTIL_HUMAN];
	char gets[UTIL_HUMAN], uncached[UTIL_HUMAN], beyond[UTIL_HUMAN];

	util_human_count(rounds, sum->rounds);
	util_human_count(stale, sum->stale);
	printf("\n%s%s stale of %s rounds%s in %.1f s, seed %" PRIu64
	       ", %d threads\n",
	       util_colour(sum->stale ? UTIL_RED : UTIL_GREEN), stale, rounds,
	       util_colour(UTIL_PLAIN), (double)t->elapsed_ns / 1e9, t->seed,
	       t->threads);
	printf("rows: %u ok, %u stale, %u error, %u skipped; %" PRIu64
	       " errors", sum->rows[0], sum->rows[STATUS_STALE],
	       sum->rows[STATUS_ERROR], sum->rows[STATUS_SKIPPED],
	       sum->errors);
	printf("; lookups outside the crowd: %s, %s hits, %s not cached\n",
	       util_human_count(gets, sum->gets),
	       util_human_count(hits, sum->hits),
	       util_human_count(uncached, sum->uncached));
	if (sum->unpromised)
		printf("%s stale in %u rows where the level promises nothing: "
		       "--strict counts them\n",
		       util_human_count(beyond, sum->unpromised),
		       sum->rows[STATUS_UNPROMISED]);
}

static int no_round(const struct torture *t)
{
	const struct row *row = t->rows;

	while (row < t->rows + t->row_cnt && *row->why)
		row++;
	if (row < t->rows + t->row_cnt)
		util_error("there was no time for a round: give it more --seconds");
	else
		util_error("no row can run here: %s", t->rows[0].why);
	return CMD_CANNOT;
}

int report(struct torture *t)
{
	const struct kedge_notifier_info *info = &t->rig.info;
	struct totals sum;

	add_up(t, &sum);
	if (util_flags.json) {
		if (util_json_print(report_json(t, &sum)))
			return CMD_CANNOT;
	} else {
		printf("device: %s; notifier: %s (%s)%s\n", t->dio->name,
		       t->naive ? "naive" : info->backend,
		       t->naive ? "follows nothing"
				: util_level_name(info->level),
		       info->hooked ? ", with hooks" : "");
		print_matrix(t);
		putchar('\n');
		print_skips(t);
		print_findings(t, STATUS_ERROR);
		print_findings(t, STATUS_UNPROMISED);
		print_findings(t, STATUS_STALE);
		print_totals(t, &sum);
	}
	if (sum.few) {
		util_error("%u rows had fewer than %" PRIu64 " rounds: give it more --seconds",
			   sum.few, t->rounds);
		return CMD_FINDING;
	}
	if (!sum.rounds && !sum.errors)
		return no_round(t);
	return sum.stale || sum.errors ? CMD_FINDING : CMD_OK;
}
