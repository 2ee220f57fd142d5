/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge perf --region: what it costs to reach another process's region by its handle, and
 * what its owner does meanwhile. The owner (owner.c) is a child; this process is its peer
 * and takes the time (measure.c), in turns with the same done in memory that both share
 * without kedge, which a row has as "beside".
 */
#ifndef TOOLS_PERF_REGION_REGION_H
#define TOOLS_PERF_REGION_REGION_H

#include <kedge/kedge.h>

#include "tools/perf/perf.h"

#define REG_MOVED   ((size_t)64 << 20)
#define REG_STEP    ((size_t)1 << 20)
#define REG_GROWN   ((size_t)1 << 30)
#define REG_HANDLES 100000u
#define REG_REGIONS 10000u
#define REG_ROWS    64u
#define REG_AT_ONCE 64u /* operations that are submitted */
#define REG_SMALL   64u /* bytes of each */

enum region_kind { REG_MOVE, REG_GROW, REG_ADVERTISE, REG_REVOKE, REG_TRIM, REG_SERVE, REG_CREATE,
		   REG_CLOSE };

/** struct region_req - what the owner is asked for
 * @kind: enum region_kind
 * @n:    bytes of the region then; or how many handles, or other regions, there are then
 */
struct region_req {
	uint32_t kind;
	uint32_t pad;
	uint64_t n;
};

/** struct region_rep - its answer, and what it says first
 * @rc:  0 or a negative errno, with @why
 * @ns:  of the call; of a move that in which peers were kept out
 * @beside_ns: of a move, of a copy of as much
 * @handle: the first, or the last that was advertised
 */
struct region_rep {
	int32_t rc;
	uint32_t pad;
	double ns;
	double beside_ns;
	struct kedge_handle handle;
	char why[200];
};

/** struct region_owner - how the child is started: with a region of @len bytes; its end of a pair
 * of sockets is @raw[1]; or its region is reached by the adapter at @node */
struct region_owner {
	size_t len;
	int raw[2];
	const char *node;
};

/* The rival of a handle that is served: as many bytes over a socket, and an answer (socket.c).
 * 0 or a negative errno. */
int raw_get(int fd, void *data, size_t len);
int raw_put(int fd, const void *data, size_t len);
/* A thread that answers it, with @len bytes of memory. */
int raw_answer(int fd, size_t len);

/*
 * The rival of a handle that is reached by an adapter (verbs.c): a queue pair between the same
 * two processes, and memory of both that is registered once. 0 or a negative errno.
 */
struct raw_verbs;
int raw_verbs_use(void); /* kedge_region_use_verbs() */
/* By both, each with its end of a pair of sockets whose messages have borders; @memory: what the
 * other reads and writes, or what this side does that from and to. */
int raw_verbs_open(const char *node, int fd, void *memory, size_t len, struct raw_verbs **raw);
void raw_verbs_close(struct raw_verbs *raw);
int raw_verbs_read(struct raw_verbs *raw, size_t len);
/* @flush: with a read behind it, of the last byte; else until it is acknowledged. */
int raw_verbs_write(struct raw_verbs *raw, size_t len, bool flush);

/* The child's main; @arg is its struct region_owner. */
void region_owner_child(int fd, void *arg);

/** struct region_row - medians of what was measured in turns
 * @name, @text: for programs, and for people
 * @beside: what takes turns with it
 * @ratio: how many times as long as what is beside it, of each round
 */
struct region_row {
	const char *name, *text, *beside;
	uint64_t bytes;
	double ns;
	double beside_ns;
	double ratio;
};

struct region_result {
	const struct perf_opts *opt;
	struct region_row row[REG_ROWS];
	size_t n;
	uint64_t failed; /* accesses beside what the owner did */
	char grow_why[200];
	char regions_why[200];
};

/** struct region_side - the owner, and what is had of it */
struct region_side {
	struct region_result *res;
	struct proc proc;
	struct region_owner owner;
	struct kedge_handle handle;
	struct kedge_remote *remote;
	struct kedge_remote *served;
	struct kedge_queue *queue;
	struct raw_verbs *verbs;
	char *shared;
	char *data;
	double *sample[3];
};

/* @cnt of it; 0 or a negative errno. */
typedef int region_op_fn(struct region_side *s, size_t bytes, uint64_t cnt);

/* A row, of both in turns. 0, or an exit status with a message printed. */
int region_compare(struct region_side *s, const struct region_row *row, region_op_fn *ours,
		   region_op_fn *beside);
int region_get(struct region_side *s, size_t bytes, uint64_t cnt);
int region_put(struct region_side *s, size_t bytes, uint64_t cnt);

/* The rows of a region that is reached by an adapter; likewise. */
int region_measure_rdma(struct region_side *s);

/* All rows; 0, or an exit status with a message printed. */
int region_measure(struct region_side *s);

int region_report(const struct region_result *res);

/* kedge perf --region; an exit status. */
int region_perf(const struct perf_opts *opt);

#endif /* TOOLS_PERF_REGION_REGION_H */
