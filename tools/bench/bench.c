// SPDX-License-Identifier: BSD-2-Clause
/* kedge bench: finds the benchmark and hands it the rest. */
#include <stdio.h>
#include <string.h>

#include "tools/bench/bench.h"

static const struct benchmark {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} benchmarks[] = {
	{ "cache", bench_cache,
	  "hit, miss, hint and invalidation of the registration cache" },
	{ "watch", bench_watch,
	  "watching memory, and what it adds to munmap()" },
	{ "reg", bench_reg,
	  "registering memory with a device, one by one, cached, hinted" },
	{ "swap", bench_swap,
	  "exchanging pages, beside copying what is in them" },
};

static void print_help(void)
{
	size_t i;

	printf("Usage: kedge bench [--help] BENCHMARK [OPTION...]\n\n"
	       "Measure kedge beside what it is compared with, in one run.\n\n"
	       "Benchmarks:\n");
	for (i = 0; i < ARRAY_SIZE(benchmarks); i++)
		printf("  %-6s %s\n", benchmarks[i].name, benchmarks[i].what);
	printf("\n'kedge bench BENCHMARK --help' tells more.\n");
}

static int no_such(const char *word)
{
	const char *names[ARRAY_SIZE(benchmarks) + 1];
	const char *near;
	size_t i;

	if (*word == '-')
		return util_usage("%s: unknown option", word);
	for (i = 0; i < ARRAY_SIZE(benchmarks); i++)
		names[i] = benchmarks[i].name;
	names[i] = NULL;
	near = util_did_you_mean(word, names);
	if (near)
		return util_usage("there is no benchmark '%s': did you mean "
				  "'%s'?",
				  word, near);
	return util_usage("there is no benchmark '%s'", word);
}

static int run(const struct benchmark *b, int argc, char **argv)
{
	const char *outer = util_name;
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "kedge bench %s", b->name);
	argv[0] = name;
	util_name = name;
	rc = b->run(argc, argv);
	util_name = outer;
	return rc;
}

int cmd_bench(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	size_t i;

	if (!word)
		return util_usage("which benchmark: cache, watch, reg or swap?");
	if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
		print_help();
		return CMD_OK;
	}
	for (i = 0; i < ARRAY_SIZE(benchmarks); i++)
		if (!strcmp(word, benchmarks[i].name))
			return run(&benchmarks[i], argc - 1, argv + 1);
	return no_such(word);
}
