// SPDX-License-Identifier: BSD-2-Clause
/* kedge bench reg: the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/bench/reg.h"

#define SIZE_MAX_	 ((uint64_t)1 << 40)
#define COUNT_MAX	 1000000u
#define MEMORY_PER_SHARE 2 /* of what is free, no more than half */

/* A page, and more of them. */
static int default_sizes(struct reg_opts *opt, uint64_t page)
{
	static const uint64_t more[] = { 64 << 10, 1 << 20 };
	size_t i;

	opt->sizes.v[opt->sizes.n++] = page;
	for (i = 0; i < ARRAY_SIZE(more); i++)
		if (more[i] > page)
			opt->sizes.v[opt->sizes.n++] = more[i];
	return UTIL_GO_ON;
}

static int parse_sizes(struct reg_opts *opt)
{
	uint64_t page = bench_page();
	char what[80];

	if (!opt->sizes_text)
		return default_sizes(opt, page);
	snprintf(what, sizeof(what),
		 "multiple of a page, %llu bytes, such as 64K",
		 (unsigned long long)page);
	return bench_parse_sizes(opt->sizes_text, page, SIZE_MAX_, what,
				 &opt->sizes);
}

static uint64_t largest(const struct number_list *l)
{
	uint64_t max = 0;
	size_t i;

	for (i = 0; i < l->n; i++)
		if (l->v[i] > max)
			max = l->v[i];
	return max;
}

/* Registered memory cannot be swapped out: too much would end the machine. */
static int check_memory(const struct reg_opts *opt)
{
	uint64_t have = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * bench_page();
	uint64_t want;
	char a[UTIL_HUMAN], b[UTIL_HUMAN];

	if (!__builtin_mul_overflow(largest(&opt->sizes),
				    largest(&opt->counts), &want) &&
	    want <= have / MEMORY_PER_SHARE)
		return UTIL_GO_ON;
	util_error("the largest working set is %s, and of %s free memory no "
		   "more than half is pinned: lower --size or --count",
		   util_human_bytes(a, want), util_human_bytes(b, have));
	return CMD_CANNOT;
}

static int parse(void *of)
{
	struct reg_opts *opt = of;
	int rc = bench_check("rounds", opt->rounds, opt->csv);

	if (rc != UTIL_GO_ON)
		return rc;
	rc = list_parse_words("device",
			       opt->devices_text ? opt->devices_text
						 : "noop,uring",
			       reg_device_names, &opt->devices);
	if (rc == UTIL_GO_ON && opt->steps_text)
		rc = list_parse_words("step", opt->steps_text, reg_step_names,
				       &opt->steps);
	if (rc == UTIL_GO_ON)
		rc = parse_sizes(opt);
	if (rc == UTIL_GO_ON)
		rc = list_parse("count",
				      opt->counts_text ? opt->counts_text
						       : "16,256",
				      1, COUNT_MAX, &opt->counts);
	if (rc == UTIL_GO_ON)
		rc = list_parse("threads",
				      opt->threads_text ? opt->threads_text
							: "1",
				      1, REG_THREADS_MAX, &opt->threads);
	if (rc == UTIL_GO_ON)
		rc = list_parse("every",
				      opt->every_text ? opt->every_text
						      : "1024,1e9",
				      1, UINT64_MAX, &opt->every);
	return rc == UTIL_GO_ON ? check_memory(opt) : rc;
}

static int run(void *of)
{
	const struct reg_opts *opt = of;
	struct reg_result res = { NULL };
	int rc = reg_run(opt, &res);

	if (!rc)
		rc = reg_report(opt, &res);
	free(res.row);
	return rc;
}

/* clang-format off */
static const char help[] =
"Times a working set of COUNT buffers of SIZE bytes, side by side in one area\n"
"of memory that has been touched:\n"
"\n"
"  register    the device's own registration call for each, one by one\n"
"  deregister  its end\n"
"  uncached    both at each use\n"
"  miss        kedge_cache_get() and put of what is not registered yet\n"
"  cached      the same of what is\n"
"  hint        kedge_cache_hint() of the whole area, once\n"
"  hinted      kedge_cache_getv() and putv after it\n"
"  anew        kedge_cache_flush() and kedge_cache_hint()\n"
"  resync      kedge_cache_resync() after a page in EVERY was exchanged;\n"
"              a number beyond the area is one page alone, in its middle\n"
"\n"
"\"us\" is the time for all of them, \"ns each\" that for a buffer, \"calls\" how\n"
"often the device was asked to register. \"x\" is the median of the ratio, in the\n"
"same round, to what the step stands in for: register and deregister; register,\n"
"of hint and anew; anew, of resync. With --threads each has its share of the\n"
"buffers.\n"
"\n"
"The devices: noop registers nothing, which leaves what kedge costs; uring is\n"
"io_uring's fixed buffers; verbs is RDMA; ofi is a domain of libfabric's,\n"
"without a cache of its own, of the provider that MODEL names.\n"
"\n"
"Exit status: 0 done, 2 the command line is wrong, 3 it cannot run here.\n";
/* clang-format on */

int bench_reg(int argc, char **argv)
{
	struct reg_opts opt = { .rounds = 15, .steps = (1u << REG_STEPS) - 1 };
	struct poptOption table[] = {
		{ "device", 'd', POPT_ARG_STRING, &opt.devices_text, 0,
		  "noop, uring, verbs, ofi (noop,uring)", "NAME,..." },
		{ "model", 'm', POPT_ARG_STRING, &opt.model, 0,
		  "Which RDMA device (the first with an active port); of "
		  "ofi which provider (verbs)", "NAME" },
		{ "size", 's', POPT_ARG_STRING, &opt.sizes_text, 0,
		  "Of a buffer (a page,64K,1M)", "BYTES,..." },
		{ "count", 'C', POPT_ARG_STRING, &opt.counts_text, 0,
		  "Buffers (16,256)", "N,..." },
		{ "threads", 't', POPT_ARG_STRING, &opt.threads_text, 0,
		  "That share them (1)", "N,..." },
		{ "every", 'e', POPT_ARG_STRING, &opt.every_text, 0,
		  "A page in so many changes before a resync (1024,1e9)",
		  "N,..." },
		{ "step", 'b', POPT_ARG_STRING, &opt.steps_text, 0,
		  "Show these alone", "NAME,..." },
		{ "notifier", 'n', POPT_ARG_STRING, &opt.notifier, 0,
		  "kedge's backend (auto)", "NAME" },
		{ "rounds", 'r', POPT_ARG_INT, &opt.rounds, 0,
		  "Of which the medians are taken (15)", "N" },
		BENCH_CSV(&opt.csv),
		POPT_TABLEEND
	};

	return bench_start(help, table, parse, run, &opt, argc, argv);
}
