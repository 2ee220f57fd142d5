// SPDX-License-Identifier: BSD-2-Clause
/* kedge bench watch: the command line. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/watch.h"

/* The order is that of the bits in struct watch_opts. */
static const char *const cpus_names[] = { "any", "one", NULL };

static int parse(void *of)
{
	struct watch_opts *opt = of;
	int rc = bench_check("rounds", opt->rounds, opt->csv);

	if (rc != UTIL_GO_ON)
		return rc;
	rc = list_parse("pace", opt->pace_text ? opt->pace_text : "0,500",
			      0, 100000, &opt->pace);
	if (rc == UTIL_GO_ON)
		rc = list_parse_words(
			"cpus", opt->cpus_text ? opt->cpus_text : "any,one",
			cpus_names, &opt->cpus);
	if (rc == UTIL_GO_ON)
		rc = list_parse("watches",
				      opt->watches_text ? opt->watches_text
							: "1,1000,100000",
				      1, COST_MAX, &opt->watches);
	return rc;
}

static int run(void *of)
{
	const struct watch_opts *opt = of;
	struct watch_result *res = calloc(1, sizeof(*res));
	int rc;

	if (!res)
		return util_fail(-ENOMEM, "cannot start");
	rc = watch_run(opt, res);
	if (!rc)
		rc = watch_report(opt, res);
	free(res);
	return rc;
}

/* clang-format off */
static const char help[] =
"Times munmap() of 64 KiB that was touched, in processes that take turns:\n"
"\n"
"  none         libc's own munmap(), nothing open: a process without kedge\n"
"  control      the same once more: what differs from none is noise\n"
"  linked       libkedge-hooks' munmap(), where linked; no notifier open\n"
"  unwatched    the same, and a notifier watches 1,000 other ranges\n"
"  near         the same, and memory 64 KiB away is watched too\n"
"  watched      the same, and the memory is watched\n"
"  watched-raw  the same, unmapped by a system call instruction of its own\n"
"  plain        watched by a userfaultfd that one thread polls and reads\n"
"\n"
"\"adds ns\" and \"x none\" are medians of the difference and the ratio to none in\n"
"the same round; \"x plain\" is what is added divided by what plain adds. --pace\n"
"is how long the process is busy with other things before each munmap(): at 0 a\n"
"notifier's thread is still awake, at 500 it sleeps. --cpus one keeps the\n"
"process and its threads on one CPU.\n"
"\n"
"Then times watching itself, beside a plain userfaultfd: add, add-again (what is\n"
"watched already), remove-one (of two), remove, event (an madvise() that drops\n"
"pages, and reading its event), read (one of many), generation (the check of a\n"
"cache's hit) and, for comparison, the cheapest system call.\n"
"\n"
"Exit status: 0 done, 2 the command line is wrong, 3 it cannot run here.\n";
/* clang-format on */

int bench_watch(int argc, char **argv)
{
	struct watch_opts opt = { .rounds = 100 };
	struct poptOption table[] = {
		{ "notifier", 'n', POPT_ARG_STRING, &opt.notifier, 0,
		  "kedge's backend (auto)", "NAME" },
		{ "rounds", 'r', POPT_ARG_INT, &opt.rounds, 0,
		  "Batches of each (100)", "N" },
		{ "pace", 'p', POPT_ARG_STRING, &opt.pace_text, 0,
		  "Microseconds before each munmap() (0,500)", "US,..." },
		{ "cpus", 'C', POPT_ARG_STRING, &opt.cpus_text, 0,
		  "any, one, or both", "NAME,..." },
		{ "watches", 'w', POPT_ARG_STRING, &opt.watches_text, 0,
		  "Watches that exist already (1,1000,100000)", "N,..." },
		{ "instructions", 'i', POPT_ARG_NONE, &opt.instructions, 0,
		  "Count instructions too, where the machine can", NULL },
		BENCH_CSV(&opt.csv),
		POPT_TABLEEND
	};

	return bench_start(help, table, parse, run, &opt, argc, argv);
}
