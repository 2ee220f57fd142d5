// SPDX-License-Identifier: BSD-2-Clause
/* kedge top: what caches, notifiers and channels of running programs do. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kedge/kedge.h>

#include "base/base.h"
#include "tools/common/util.h"
#include "tools/common/who.h"
#include "tools/top/top.h"

static const char help_text[] =
	"Shows the counters of programs that were begun with KEDGE_STATS=unix:PATH or\n"
	"KEDGE_STATS=PATH: registration caches, notifiers, and channels. Each WHERE is a\n"
	"process's number, a socket, a file, or a folder of them; without one, all\n"
	"processes of this host that may be asked are.\n\n"
	"Of a cache, MOST FOR is the reason for which most registrations were not kept,\n"
	"and BY the kind of change that most were lost to: see kedge_cache_stats(3).\n"
	"The first table has totals, those that follow have what was counted by the\n"
	"second.\n\n"
	"Exit status: 0, or 3 if a process does not answer, or there is none at WHERE.\n";

struct top_opts {
	double delay;
	int count;
	int once;
	int prometheus;
	int port;
};

/* Where something was asked for, and no process answers, is one of them. */
static int tell_silent(const struct sources *s, bool asked)
{
	char path[PATH_MAX];
	int status = CMD_OK;
	size_t i, answers = 0;

	for (i = 0; i < s->cnt; i++)
		answers += !s->v[i].status;
	for (i = 0; i < s->cnt; i++) {
		const char *why = s->v[i].status ? source_silence(&s->v[i]) : NULL;

		if (why) {
			util_error("%s: %s", who_plain(path, sizeof(path), s->v[i].path), why);
			status = CMD_CANNOT;
		}
	}
	if (asked && !answers && !status) {
		util_error("no process publishes there; files of those that have ended are shown "
			   "if they are named themselves");
		status = CMD_CANNOT;
	}
	return status;
}

static int find(struct sources *s, char *const *words)
{
	int rc = sources_find(s, words);

	return rc ? util_fail(rc, "no counters") : 0;
}

static json_t *silent_rows(const struct sources *s)
{
	json_t *silent = json_array();
	size_t i;

	for (i = 0; i < s->cnt; i++) {
		const char *why = s->v[i].status ? source_silence(&s->v[i]) : NULL;

		if (why)
			json_array_append_new(silent, json_pack("{s:o, s:s}", "source",
								util_json_text(s->v[i].path),
								"reason", why));
	}
	return silent;
}

static int print_prometheus(struct sources *s, bool asked)
{
	size_t len;
	char *text = merge_text(s, &len);

	if (!text)
		return util_fail(-ENOMEM, "cannot print the counters");
	fwrite(text, 1, len, stdout);
	free(text);
	return tell_silent(s, asked);
}

static int print_once(struct sources *s, bool prometheus, bool asked)
{
	json_t *now;

	if (prometheus)
		return print_prometheus(s, asked);
	now = merge_objects(s);
	if (util_flags.json) {
		if (util_json_print(json_pack("{s:o, s:o}", "objects", now, "silent",
					      silent_rows(s))))
			return CMD_CANNOT;
	} else {
		table_print(now, NULL, 1, s);
		json_decref(now);
	}
	fflush(stdout);
	return tell_silent(s, asked);
}

static void wait_for(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds };

	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	fflush(stdout);
	nanosleep(&t, NULL);
}

/* Until it is ended, or @count times. */
static int watch(const struct top_opts *o, char *const *words)
{
	const bool clears = isatty(STDOUT_FILENO);
	json_t *now, *before = NULL;
	int turn, status = CMD_OK;
	bool ends;
	uint64_t at = 0, last;
	struct sources s;

	for (turn = 0; !o->count || turn < o->count; turn++) {
		if (turn)
			wait_for(o->delay);
		status = find(&s, words);
		if (status)
			break;
		last = at;
		at = clock_ns();
		now = merge_objects(&s);
		printf("%s", clears ? "\033[H\033[2J" : turn ? "\n" : "");
		table_print(now, before, (double)(at - last) / 1e9, &s);
		fflush(stdout);
		status = tell_silent(&s, false);
		json_decref(before);
		before = now;
		ends = status && !json_array_size(now);
		sources_end(&s);
		/* All that was named is silent. */
		if (ends)
			break;
	}
	json_decref(before);
	return status;
}

static int top(const struct top_opts *o, char *const *words)
{
	struct sources s;
	int status;

	if (o->port >= 0)
		return serve((unsigned int)o->port, words);
	if (!o->once && !o->prometheus && !util_flags.json)
		return watch(o, words);
	status = find(&s, words);
	if (status)
		return status;
	status = print_once(&s, o->prometheus, *words);
	sources_end(&s);
	return status;
}

int cmd_top(int argc, char **argv)
{
	struct top_opts o = { .delay = 1, .port = -1 };
	struct poptOption opts[] = {
		{ "delay", 'd', POPT_ARG_DOUBLE | POPT_ARGFLAG_SHOW_DEFAULT, &o.delay, 0,
		  "Between two tables", "SECONDS" },
		{ "count", 'n', POPT_ARG_INT, &o.count, 0, "So many tables, then end", "N" },
		{ "once", '1', POPT_ARG_NONE, &o.once, 0, "Totals, once", NULL },
		{ "prometheus", 'p', POPT_ARG_NONE, &o.prometheus, 0,
		  "All of them in Prometheus' text format, once", NULL },
		{ "serve", 's', POPT_ARG_INT, &o.port, 0,
		  "Answer Prometheus at http://localhost:PORT/metrics", "PORT" },
		POPT_TABLEEND
	};
	struct util_cmd cmd = { .synopsis = "[OPTION...] [WHERE...]", .help = help_text,
				.opts = opts, .max_args = UTIL_MAX_ARGS };
	char *words[UTIL_MAX_ARGS + 1] = { NULL };
	struct util_args args;
	int rc, i;

	rc = util_options(&cmd, argc, argv, &args);
	if (rc != UTIL_GO_ON)
		return rc;
	for (i = 0; i < args.cnt; i++)
		words[i] = args.arg[i];
	if (!(o.delay >= 0.05 && o.delay <= 3600))
		rc = util_usage("--delay: 0.05 to 3600 seconds");
	else if (o.count < 0)
		rc = util_usage("--count: 1 or more");
	else if (o.port != -1 && (o.port < 1 || o.port > 65535))
		rc = util_usage("--serve: a port is 1 to 65535");
	else if (o.port != -1 && (util_flags.json || o.once || o.prometheus))
		rc = util_usage("--serve goes on, and prints nothing");
	else
		rc = top(&o, words);
	util_args_fini(&args);
	return rc;
}
