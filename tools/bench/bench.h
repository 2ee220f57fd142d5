/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The benchmarks' common ground. Sides that are compared run in child processes, one
 * a side, that take turns in short batches: each side has its address space to
 * itself, and both meet the same noise.
 */
#ifndef TOOLS_BENCH_BENCH_H
#define TOOLS_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"
#include "tools/common/list.h"
#include "tools/common/plot.h"
#include "tools/common/proc.h"
#include "tools/common/util.h"

int bench_cache(int argc, char **argv);
int bench_watch(int argc, char **argv);
int bench_reg(int argc, char **argv);
int bench_swap(int argc, char **argv);

/* ---- options: options.c ---- */

/*
 * Options of each benchmark: how many rounds, by @option, and --csv. UTIL_GO_ON,
 * or CMD_USAGE with a message.
 */
int bench_check(const char *option, int rounds, int csv);

/*
 * --size: multiples of @step up to @max, with commas between them. UTIL_GO_ON,
 * or an exit status with a message, which calls them @what.
 */
int bench_parse_sizes(const char *text, uint64_t step, uint64_t max,
		      const char *what, struct number_list *sizes);

/* Each benchmark's entry for --csv in its table of options. */
#define BENCH_CSV(at)                                      \
	{                                                  \
		"csv", 'c', POPT_ARG_NONE, at, 0,          \
			"Print CSV instead of text", NULL, \
	}

/*
 * Read the command line by @table and do what it says; an exit status. Both
 * functions get @opt: @parse returns UTIL_GO_ON, or an exit status with a
 * message printed; @run returns an exit status. The table's texts are freed.
 */
int bench_start(const char *help, struct poptOption *table,
		int (*parse)(void *opt), int (*run)(void *opt), void *opt,
		int argc, char **argv);

/* Bytes of a page of memory. */
size_t bench_page(void);

/* ---- instructions: insn.c ---- */

/* A counter of the calling thread's instructions, user and kernel; a file
 * descriptor, or a negative errno where the machine has none. */
int bench_insn_open(void);
/* Instructions so far. */
uint64_t bench_insn_read(int fd);

#endif /* TOOLS_BENCH_BENCH_H */
