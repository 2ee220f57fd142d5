/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge perf --segment: what it costs to load, store and copy in memory that is
 * another process's. The owner (owner.c) is a child, one for each backend; this
 * process attaches what is its, and takes the time (measure.c), in turns with
 * the same done by the system's own means, which a row has as "beside".
 */
#ifndef TOOLS_PERF_SEGMENT_SEGMENT_H
#define TOOLS_PERF_SEGMENT_SEGMENT_H

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define SEG_PART     ((size_t)64 << 10)	 /* what is attached and mapped in a loop */
#define SEG_TOUCHED  ((size_t)1 << 20)	 /* whose pages are touched for the first time */
#define SEG_CHAIN    ((size_t)64 << 10)	 /* that dependent loads go through */
#define SEG_MADE     ((size_t)16 << 20)	 /* what is made a segment, and private again */
#define SEG_LINE     ((size_t)64)
#define SEG_LINES    4096u /* the two lines of an exchange are at the end of such a block */
#define SEG_BACKENDS 2u

/* Names of the option and of the rows, in the order of enum seg_place. */
enum seg_place { SEG_CONVERT, SEG_MODULE };
extern const char *const seg_backend_names[SEG_BACKENDS + 1];

/* ---- the owner: owner.c ---- */

enum seg_kind { SEG_MAKE, SEG_ECHO };

/** struct seg_req - what the owner is asked for
 * @kind:   enum seg_kind
 * @huge:   the memory that is made a segment has huge pages
 * @shared: the lines are those of shared memory, not of the segment
 * @cnt:    lines to answer
 * @first:  the number of the first: a line cannot tell, it may be there already
 */
struct seg_req {
	uint32_t kind;
	uint32_t huge;
	uint32_t shared;
	uint32_t pad;
	uint64_t cnt;
	uint64_t first;
};

/** struct seg_rep - the owner's answer, and what it says first
 * @rc:  0 or a negative errno
 * @wrong: lines that came with other contents
 * @copy_ns, @make_ns, @remove_ns: for SEG_MADE bytes
 * @id:  of the segment that is measured
 * @why: memory can only be copied here, in words; may be empty
 */
struct seg_rep {
	int32_t rc;
	uint32_t preempted;
	uint64_t wrong;
	double copy_ns;
	double make_ns;
	double remove_ns;
	struct kedge_segment_id id;
	char why[128];
};

/** struct seg_owner - how a child is started
 * @len:   of its segment; the lines are its last SEG_LINES bytes
 * @lines: of shared memory
 * @yield: both processes are on one CPU
 */
struct seg_owner {
	uint32_t backend;
	size_t len;
	char *lines;
	bool yield;
};

/* The child's main; @arg is its struct seg_owner. */
void seg_owner_child(int fd, void *arg);

/* ---- lines: line.c ---- */

/** struct seg_wait - how to wait for the other process
 * @fd:    is hung up when it has ended
 * @yield: both are on one CPU
 */
struct seg_wait {
	int fd;
	bool yield;
};

/* Puts number @n into the line at @to: seven words, and then itself. */
void seg_line_put(void *to, uint64_t n);
/*
 * Waits for number @n in the line at @from and loads all of it. 0, 1 if its
 * contents are others, or -EPIPE.
 */
int seg_line_take(const void *from, uint64_t n, const struct seg_wait *how);
/* Involuntary switches of this thread so far: it lost its CPU in between where
 * they differ. */
long seg_preempted(void);
/* Words at every line of SEG_CHAIN bytes, each with the index of the next. */
void seg_chain(char *at);

/* ---- the run ---- */

enum seg_bench {
	SEG_LOAD,
	SEG_VALID,
	SEG_ATTACH,
	SEG_TOUCH_LOAD,
	SEG_TOUCH_STORE,
	SEG_EXCHANGE,
	SEG_COPY,
	SEG_MAKE_PAGES,
	SEG_MAKE_HUGE,
	SEG_REMOVE,
	SEG_BENCHES
};

/** struct seg_name - how a row is named: names.c
 * @name:   in JSON and CSV
 * @text:   for people
 * @beside: what takes turns with it
 * @flow:   its bytes come one after the other, so that it has a GB/s
 */
struct seg_name {
	const char *name, *text, *beside;
	bool flow;
};
extern const struct seg_name seg_names[SEG_BENCHES];

/** struct seg_row - medians of what was measured in turns
 * @ns, @beside_ns: of one; the second is 0 where there is none here
 * @ratio:  how many times as fast as what is beside it, of each round
 */
struct seg_row {
	enum seg_bench bench;
	enum seg_place place;
	uint64_t bytes;
	double ns;
	double beside_ns;
	double ratio;
	uint64_t rounds;
	uint64_t dropped;
};

#define SEG_ROWS_MAX (SEG_BACKENDS * (PERF_SIZES_MAX + SEG_BENCHES))

struct seg_result {
	const struct perf_opts *opt;
	unsigned int cpus;
	bool used[SEG_BACKENDS];
	char why[SEG_BACKENDS][256]; /* it cannot be had */
	struct seg_row row[SEG_ROWS_MAX];
	size_t n;
	uint64_t wrong;
};

/** struct seg_side - an owner, and what is attached of its memory
 * @there, @own: the owner's memory, and as much of this process's
 * @memfd:  what is mapped in its place
 * @remote: where it is in the owner's memory, for process_vm_readv()
 */
struct seg_side {
	struct seg_result *res;
	enum seg_place place;
	struct proc proc;
	struct seg_owner owner;
	struct kedge_grant *grant;
	struct kedge_attachment *whole;
	char *there;
	char *own;
	uint64_t remote;
	int memfd;
	uint64_t line; /* the last number that was sent */
};

/* All rows of one side; 0, or an exit status with a message printed. */
int seg_measure(struct seg_side *side, struct util_progress *progress);

/* ---- the report ---- */

int seg_report(const struct seg_result *res);
int seg_plot(const struct seg_result *res, const char *file);

/* kedge perf --segment; an exit status. */
int seg_perf(const struct perf_opts *opt);

#endif /* TOOLS_PERF_SEGMENT_SEGMENT_H */
