// SPDX-License-Identifier: BSD-2-Clause
/* kedge bench cache: the command line. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/cache.h"

static const char *const layout_names[] = { "aligned", "offset", NULL };

static int run_bench(void *of)
{
	const struct cache_opts *opt = of;
	struct cache_result res = { 0 };
	int rc;

	rc = opt->plot ? plot_check(opt->plot) : 0;
	if (!rc)
		rc = cache_run(opt, &res);
	if (!rc)
		rc = cache_report(&res, opt->csv);
	if (!rc && opt->plot)
		rc = cache_plot(&res, opt->plot);
	free(res.rows);
	return rc;
}

static int parse_peer(struct cache_opts *opt)
{
	if (!opt->peer_text || !strcmp(opt->peer_text, "none"))
		return UTIL_GO_ON;
	if (strcmp(opt->peer_text, "ucx"))
		return util_usage("--peer: there is no peer '%s', only ucx",
				  opt->peer_text);
	opt->peer = side_ucx();
	if (opt->peer)
		return UTIL_GO_ON;
	util_error("this build has no UCX: install its headers (Debian's "
		   "libucx-dev) and build kedge again");
	return CMD_CANNOT;
}

static int parse(void *of)
{
	struct cache_opts *opt = of;
	const char *entries = "1,1000,100000,1000000";
	int rc = bench_check("batches", opt->batches, opt->csv);

	if (rc != UTIL_GO_ON)
		return rc;
	if (!(opt->seconds >= 0 && opt->seconds <= 3600))
		return util_usage("--seconds: not in 0..3600");
	rc = list_parse("entries",
			      opt->entries_text ? opt->entries_text : entries,
			      1, MAX_ENTRIES, &opt->entries);
	if (rc == UTIL_GO_ON)
		rc = list_parse("threads",
				      opt->threads_text ? opt->threads_text
				      : opt->single	? "1"
							: "1,2",
				      1, opt->single ? 1 : MAX_THREADS,
				      &opt->threads);
	if (rc == UTIL_GO_ON)
		rc = list_parse_words("layout",
				       opt->layout_text ? opt->layout_text
							: "aligned,offset",
				       layout_names, &opt->layouts);
	if (rc == UTIL_GO_ON)
		rc = list_parse_words(
			"bench",
			opt->bench_text ? opt->bench_text
					: "hit,miss,hint,invalidate,unmap",
			kind_names, &opt->kinds);
	/* It is there to be compared with hits. */
	if (opt->ask)
		opt->kinds |= 1u << KIND_CALL;
	if (opt->kinds & (1u << KIND_CALL))
		opt->kinds |= 1u << KIND_HIT;
	return rc == UTIL_GO_ON ? parse_peer(opt) : rc;
}

/* clang-format off */
static const char help[] =
"Entries are 64 KiB with a gap between them, looked up in a random order that is\n"
"the same on both sides; the device registers nothing. kedge and the peer run in\n"
"a process each and take turns in batches of about 1.5 ms. ns is the median of\n"
"the batches for an operation of a thread, best the least.\n"
"\n"
"  hit         get and put of a registered entry\n"
"  miss        get and put of memory mapped a moment ago\n"
"  hint        want 1 MiB, mapped a moment ago, cached (UCX: get and put)\n"
"  invalidate  madvise(MADV_DONTNEED) of an entry, get and put\n"
"  unmap       munmap() of an entry, mmap() at its address, get and put\n"
"  call        getppid() as a system call, in turns with the hits, which are\n"
"              printed as multiples of it (\"x call\") as well\n"
"\n"
"Several threads hit entries of their own (\"own\"), or all the same entries in\n"
"the same order at the same time (\"same\"). \"vs 1\" is the ratio to one thread's\n"
"time, measured in turns with it.\n"
"\n"
"Exit status: 0 done, 2 the command line is wrong, 3 it cannot run here.\n";
/* clang-format on */

int bench_cache(int argc, char **argv)
{
	struct cache_opts opt = { .batches = 41 };
	struct poptOption table[] = {
		{ "peer", 'p', POPT_ARG_STRING, &opt.peer_text, 0,
		  "Measure that cache beside kedge's: ucx", "NAME" },
		{ "entries", 'e', POPT_ARG_STRING, &opt.entries_text, 0,
		  "Registered entries (1,1000,100000,1000000)", "N,..." },
		{ "threads", 't', POPT_ARG_STRING, &opt.threads_text, 0,
		  "Threads that hit (1,2)", "N,..." },
		{ "layout", 'l', POPT_ARG_STRING, &opt.layout_text, 0,
		  "aligned, offset (by 4 KiB), or both", "NAME,..." },
		{ "bench", 'b', POPT_ARG_STRING, &opt.bench_text, 0,
		  "What to measure (all but call)", "NAME,..." },
		{ "notifier", 'n', POPT_ARG_STRING, &opt.notifier, 0,
		  "kedge's backend (auto)", "NAME" },
		{ "single", '1', POPT_ARG_NONE, &opt.single, 0,
		  "kedge's cache has one thread for itself", NULL },
		{ "ask", 'a', POPT_ARG_NONE, &opt.ask, 0,
		  "kedge asks the kernel at each lookup, as without "
		  "libkedge-hooks; adds call", NULL },
		{ "batches", 'B', POPT_ARG_INT, &opt.batches, 0,
		  "Undisturbed batches of each row (41)", "N" },
		{ "seconds", 's', POPT_ARG_DOUBLE, &opt.seconds, 0,
		  "Go on for that long with each row (0)", "N" },
		BENCH_CSV(&opt.csv),
		{ "plot", 'P', POPT_ARG_STRING, &opt.plot, 0,
		  "Draw the hits into FILE with gnuplot", "FILE.svg" },
		POPT_TABLEEND
	};

	return bench_start(help, table, parse, run_bench, &opt, argc, argv);
}
