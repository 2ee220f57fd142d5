/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the benchmarks share. Whatever is compared runs in child processes, one
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
 * What each benchmark is told: how many rounds, by @option, and --csv. UTIL_GO_ON,
 * or CMD_USAGE with a message.
 */
int bench_check(const char *option, int rounds, int csv);

/* Bytes of a page of memory. */
size_t bench_page(void);

/* ---- instructions: insn.c ---- */

/* A counter of the calling thread's instructions, user and kernel; a file
 * descriptor, or a negative errno where the machine has none. */
int bench_insn_open(void);
/* Instructions so far. */
uint64_t bench_insn_read(int fd);

#endif /* TOOLS_BENCH_BENCH_H */
