/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge bench watch. The parent (watch_run.c) lets child processes take turns:
 * one for each way to live with munmap() (watch_munmap.c), then kedge's
 * notifier and a plain userfaultfd for the cost of watching itself
 * (watch_cost.c). watch_plain.c is that plain userfaultfd.
 */
#ifndef TOOLS_BENCH_WATCH_H
#define TOOLS_BENCH_WATCH_H

#include "tools/bench/bench.h"

#define WATCH_LEN    (64u << 10)
#define WATCH_STRIDE (2 * WATCH_LEN)
#define WATCH_WHY    200

/* ---- a plain userfaultfd: watch_plain.c ---- */

struct plain;

/* 0, or a negative errno with the reason in @why. */
int plain_open(struct plain **out, char why[WATCH_WHY]);
void plain_close(struct plain *p);
/* 0 or a negative errno */
int plain_add(struct plain *p, void *addr, size_t len);
int plain_remove(struct plain *p, void *addr, size_t len);

/* ---- system calls that no library sees: watch_raw.c ---- */

/* Returns as the kernel does: a negative errno, or the result. */
long raw_munmap(void *addr, size_t len);
long raw_madvise(void *addr, size_t len, int advice);
long raw_getppid(void);

/* ---- munmap: watch_munmap.c ---- */

/**
 * enum munmap_config - how a process lives with munmap()
 * @CFG_NONE:      libc's own munmap(), nothing open: a process without kedge
 * @CFG_CONTROL:   the same in another process: what differs is noise
 * @CFG_LINKED:    libkedge-hooks' munmap(), no notifier open
 * @CFG_UNWATCHED: the same, a notifier open that watches other memory
 * @CFG_NEAR:      the same, and memory 64 KiB away is watched too
 * @CFG_WATCHED:   libkedge-hooks' munmap() of memory that is watched
 * @CFG_RAW:       watched, and unmapped by a system call instruction
 * @CFG_PLAIN:     watched by the plain userfaultfd, unmapped likewise
 */
enum munmap_config {
	CFG_NONE,
	CFG_CONTROL,
	CFG_LINKED,
	CFG_UNWATCHED,
	CFG_NEAR,
	CFG_WATCHED,
	CFG_RAW,
	CFG_PLAIN,
	CFG_CNT,
};

/** struct munmap_cfg - what a child is started with
 * @config:   enum munmap_config
 * @one_cpu:  it and its threads use one CPU
 * @notifier: kedge's backend, or NULL
 */
struct munmap_cfg {
	enum munmap_config config;
	bool one_cpu;
	const char *notifier;
};

struct munmap_req {
	uint32_t ops;
	uint32_t count_insn;
	uint64_t pace_ns;
};

/** struct munmap_rep - a batch's result
 * @ns:     median of its munmap() calls
 * @best_ns: the least
 * @insn:   median of the instructions
 * @backend, @level, @hooked: in the first message, of a child with a notifier
 */
struct munmap_rep {
	int32_t rc;
	uint32_t hooked;
	double ns;
	double best_ns;
	double insn;
	char backend[16];
	char level[16];
	char why[WATCH_WHY];
};

/* A child's main; @arg is its struct munmap_cfg. */
void munmap_child(int fd, void *arg);

/* ---- the cost of watching: watch_cost.c ---- */

/**
 * enum cost_step - what is timed
 * @COST_GENERATION: kedge_notifier_generation()
 * @COST_SYSCALL:    the cheapest system call, to compare it with
 * @COST_ADD:        watch memory mapped a moment ago
 * @COST_ADD_AGAIN:  watch what is watched already
 * @COST_REMOVE_ONE: end one of two watches of the same memory
 * @COST_EVENT:      madvise(MADV_DONTNEED) of watched memory by a system call
 *                   instruction, and the event read
 * @COST_READ:       read one of many events that wait
 * @COST_REMOVE:     end the last watch
 */
enum cost_step {
	COST_GENERATION,
	COST_SYSCALL,
	COST_ADD,
	COST_ADD_AGAIN,
	COST_REMOVE_ONE,
	COST_EVENT,
	COST_READ,
	COST_REMOVE,
	COST_CNT,
};

/* A plain userfaultfd takes two mappings a watch, and they are limited. */
#define COST_PLAIN_MAX 20000u
#define COST_MAX       1000000u

/** struct cost_cfg - what a child is started with
 * @watches:  that exist already
 * @plain:    the plain userfaultfd; else kedge
 * @notifier: kedge's backend, or NULL
 */
struct cost_cfg {
	uint64_t watches;
	bool plain;
	const char *notifier;
};

/** struct cost_rep - a round's result; ns 0: this side has no such step */
struct cost_rep {
	int32_t rc;
	uint32_t reserved;
	double ns[COST_CNT];
	char why[WATCH_WHY];
};

/* A child's main; any message asks for a round. */
void cost_child(int fd, void *arg);

extern const char *const munmap_names[CFG_CNT];
extern const char *const cost_names[COST_CNT];

/* ---- the run: watch_run.c; the result: watch_report.c ---- */

struct watch_opts {
	char *watches_text;
	char *pace_text;
	char *cpus_text;
	char *notifier;
	int rounds;
	int instructions;
	int csv;
	struct number_list watches;
	struct number_list pace;
	uint32_t cpus;
};

/** struct munmap_row - a configuration's figures
 * @insn_ratio: @insn divided by none's
 * @over:     median of (this - none) of the same round, ns
 * @ratio:    median of (this / none) of the same round; @lo and @hi its
 *            quartiles
 * @vs_plain: @over divided by the plain way's
 * @insn:     instructions, 0 where they are not counted
 */
struct munmap_row {
	enum munmap_config config;
	bool one_cpu;
	uint64_t pace_us;
	double ns;
	double best_ns;
	double over;
	double ratio;
	double lo;
	double hi;
	double vs_plain;
	double insn;
	double insn_ratio;
};

struct cost_row {
	enum cost_step step;
	uint64_t watches;
	double ns[2];
	double best_ns[2];
};

#define MUNMAP_ROWS_MAX (CFG_CNT * 2 * LIST_MAX)
#define COST_ROWS_MAX	(COST_CNT * LIST_MAX)

/** struct watch_result - everything
 * @insn_rc: 0, or why instructions are not counted
 */
struct watch_result {
	char backend[16];
	char level[16];
	bool hooked;
	int insn_rc;
	size_t munmap_n;
	size_t cost_n;
	struct munmap_row munmap[MUNMAP_ROWS_MAX];
	struct cost_row cost[COST_ROWS_MAX];
};

/* 0, or an exit status with a message printed. */
int watch_run(const struct watch_opts *opt, struct watch_result *res);
int watch_report(const struct watch_opts *opt, const struct watch_result *res);

#endif /* TOOLS_BENCH_WATCH_H */
