// SPDX-License-Identifier: BSD-2-Clause
/* Options of all benchmarks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"

#define ROUNDS_MAX 100000

int bench_check(const char *option, int rounds, int csv)
{
	if (rounds < 1 || rounds > ROUNDS_MAX)
		return util_usage("--%s: %d is not in 1..%d", option, rounds,
				  ROUNDS_MAX);
	if (csv && util_flags.json)
		return util_usage("--csv or --json, not both");
	return UTIL_GO_ON;
}

int bench_parse_sizes(const char *text, uint64_t step, uint64_t max,
		      const char *what, struct number_list *sizes)
{
	char *copy = strdup(text), *save = NULL, *word;
	int rc = UTIL_GO_ON;
	uint64_t size;

	if (!copy)
		return util_fail(-ENOMEM, "--size");
	for (word = strtok_r(copy, ",", &save); word && rc == UTIL_GO_ON;
	     word = strtok_r(NULL, ",", &save)) {
		if (sizes->n == LIST_MAX)
			rc = util_usage("--size: more than %d sizes",
					LIST_MAX);
		else if (util_parse_size(word, &size) || !size || size > max ||
			 size % step)
			rc = util_usage("--size: '%s' is no %s", word, what);
		else
			sizes->v[sizes->n++] = size;
	}
	if (rc == UTIL_GO_ON && !sizes->n)
		rc = util_usage("--size: sizes and commas, please");
	free(copy);
	return rc;
}

int bench_start(const char *help, struct poptOption *table,
		int (*parse)(void *opt), int (*run)(void *opt), void *opt,
		int argc, char **argv)
{
	const struct util_cmd cmd = { .synopsis = "[OPTION...]",
				      .help = help,
				      .opts = table };
	struct util_args args;
	int rc;

	rc = util_options(&cmd, argc, argv, &args);
	if (rc == UTIL_GO_ON)
		rc = parse(opt);
	if (rc == UTIL_GO_ON)
		rc = run(opt);
	util_free_texts(table);
	return rc;
}

size_t bench_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}
